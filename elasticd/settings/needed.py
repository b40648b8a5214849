"""What a job can't do without in its folder, and whether that is sent."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from elasticd.settings.rules import show


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file or folder that a key of job.toml names. ``parts``: patterns of those files of a folder
    that have to be there if the folder has them; none: any file of it."""

    key: str
    name: str
    parts: tuple[str, ...] = ()

    def unsent(
        self, folder: Path, sent: Collection[str], only: Sequence[str] | None, ignore: str
    ) -> str:
        """Why the job's nodes would miss it, with the cure; "": they have it.

        Args:
            folder: the job's.
            sent: the names of the files that are sent.
            only: what was named to be sent; None: the whole folder is.
            ignore: the file that says what is not.
        """
        if PurePosixPath(self.name).is_absolute():
            return ""
        name = posixpath.normpath(self.name)
        if name.split("/")[0] == "..":
            return (
                f"{show(self.name)} is not shipped, as it lies outside of the job's folder: copy it"
                " there, or give the absolute path of one that every node has"
            )
        missing = next((each for each in self._files(folder, name) if not _has(sent, each)), None)
        if missing is None:
            return ""
        named = only is None or any(_is_below(missing, posixpath.normpath(each)) for each in only)
        why = f"; see {ignore}" if named else ", as job.files doesn't name it; add it there"
        return f"{show(missing)} is not shipped{why}"

    def holds(self, folder: Path, file: str) -> bool:
        """Whether a file of the job's ``folder`` is one of these."""
        name = posixpath.normpath(self.name)
        return file in self._files(folder, name) if self.parts else _is_below(file, name)

    def _files(self, folder: Path, name: str) -> Iterator[str]:
        path = folder / name
        found = sorted({each.name for part in self.parts for each in path.glob(part)})
        yield from (posixpath.normpath(f"{name}/{each}") for each in found)
        if not found:
            yield name


def _has(sent: Collection[str], name: str) -> bool:
    """A file, or any file of a folder."""
    return name in sent or any(_is_below(each, name) for each in sent)


def _is_below(name: str, folder: str) -> bool:
    return folder == "." or name == folder or name.startswith(f"{folder}/")
