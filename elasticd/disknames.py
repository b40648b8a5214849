"""Which names of files can't be in one folder on every disk."""

from __future__ import annotations

import unicodedata


def folded(name: str) -> str:
    """The same for all names that are one name on some disk: APFS knows neither case nor how a
    letter with an accent is written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


def folders_of(name: str) -> list[str]:
    """The folders that a file lies in, from the top."""
    parts = name.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


class DiskNames:
    """Names of files, and of folders, that lie below one folder, on every disk."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        """Of each folder a file that lies in it, or itself."""

    def add(self, name: str, *, folder: bool = False) -> str | None:
        """Take in one more, unless it can't lie beside one that is here: then that is returned.
        There two are one name, or one is a file where the other has a folder."""
        own = folded(name)
        above = folders_of(own)
        for known, keys in ((self._files, [own, *above]), (self._folders, [own])):
            for key in keys if known is self._files or not folder else ():
                if key in known:
                    return known[key]
        if not folder:
            self._files[own] = name
        for each in [*above, own] if folder else above:
            self._folders.setdefault(each, name)
        return None
