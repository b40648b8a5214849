"""Signs in those folders of a home that are on a disk of their own (checkpoints/apart.py): laid,
and noted in the home, when a daemon starts there."""

from __future__ import annotations

import secrets
from pathlib import Path

import structlog

from elasticd.checkpoints.apart import SIGN, note_of
from elasticd.shell.storage.durable import write_durable
from elasticd.shell.storage.homefolders import SIGNED

_DIGITS = 16

log = structlog.get_logger(__name__)


def lay(home: Path) -> None:
    """For a home that nothing keeps from starting: its folders are those that they were, or new."""
    for folder in (home / name for name in SIGNED):
        try:
            _lay(folder)
        except OSError as error:  # a disk that takes no sign takes nothing else
            log.warning("a folder's disk is not remembered", path=str(folder), reason=str(error))


def _lay(folder: Path) -> None:
    note = note_of(folder)
    if not folder.is_dir():
        note.unlink(missing_ok=True)  # the link was removed: what comes in its place is new
    elif (folder.is_symlink() or folder.is_mount()) and not note.exists():
        sign = folder / SIGN
        if not sign.exists():
            write_durable(sign, f"{secrets.token_hex(_DIGITS)}\n".encode())
        write_durable(note, sign.read_bytes())
