"""A folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` to write into, which takes its place if all goes well, and goes if
    not. ``folder`` may be there if it is empty; the parent must exist.

    Raises:
        OSError: it can't be made, or can't take that place.
    """
    # The umask says who may look into it, or whoever has made it.
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    beside.mkdir()
    try:
        yield beside
        with contextlib.suppress(FileNotFoundError):
            beside.chmod(folder.stat().st_mode & 0o7777)
        beside.rename(folder)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
