"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` to write into, which takes its place if all goes well, and goes if
    not. ``folder`` may be there if it is empty; the parent must exist. Who may look into it the
    umask says, or whoever of our account has made it: what lay there later is perhaps another's.

    Raises:
        OSError: it can't be made, or can't take that place.
    """
    mode = _own_mode(folder)
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        yield beside
        if mode is not None:
            beside.chmod(mode)
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _own_mode(folder: Path) -> int | None:
    """Of a folder of ours that is there."""
    with contextlib.suppress(FileNotFoundError):
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            return stat.S_IMODE(found.st_mode)
    return None
