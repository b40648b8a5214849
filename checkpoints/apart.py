"""A folder on a disk of its own, told from the mount point that is left where that is away: a mount
point takes all that is written there, and hides it once the disk is back.

A daemon lays a sign in such a folder, and notes it beside the folder, as ``NAME.apart``. A folder
without that sign is another one. Who removes the note says that it is to count.
"""

from __future__ import annotations

from pathlib import Path

from elasticd.errors import DiskError
from elasticd.pasting import pasted

SIGN = ".elasticd-folder"
NOTE_SUFFIX = ".apart"


def note_of(folder: Path) -> Path:
    """Where the sign of ``folder`` is noted; there only if it was on a disk of its own."""
    return Path(f"{folder}{NOTE_SUFFIX}")


def is_another(folder: Path) -> bool:
    """Whether it isn't the one that was noted. Raises OSError: it can't be read."""
    noted = _read(note_of(folder))
    return noted is not None and _read(folder / SIGN) != noted


def explained(folder: Path) -> tuple[str, str]:
    """The cause and the cure of a folder that is another one."""
    return (
        "is another folder than it was: that one was on a disk of its own",
        "Mount that disk. If this folder is to take its place, say"
        f" {pasted('rm', note_of(folder))}",
    )


def refuse_another(folder: Path) -> None:
    """Raises DiskError: it isn't the one that was noted; OSError: it can't be read."""
    if is_another(folder):
        cause, cure = explained(folder)
        raise DiskError(f"{folder} {cause}. {cure}")


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
