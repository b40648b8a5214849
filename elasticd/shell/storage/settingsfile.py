"""HOME/elasticd.toml changed for its user: their comments stay, and a wrong file is never left."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from elasticd.errors import ConfigError, UsageError
from elasticd.namedfile import refuse_no_file
from elasticd.settings import config
from elasticd.settings.config import NodeConfig
from elasticd.settings.places import FILE_NAME
from elasticd.settings.rules import Value
from elasticd.settings.toml import Document
from elasticd.shell.storage.durable import write_durable

_NEW_MODE = 0o600


def keys_in(path: Path) -> frozenset[str]:
    """The keys that the user has set in an elasticd.toml, which may be missing.

    Raises:
        ConfigError: the file is wrong.
    """
    return frozenset(Document.read(path).data) if path.exists() else frozenset()


def change(home: Path, values: Mapping[str, Value | None]) -> NodeConfig:
    """Set keys in the file, ``table.key`` for one in a table; None: its default is to hold. A file
    that is new has comments. What it says then.

    Raises:
        UsageError: it is wrong, or would be; nothing has changed.
        OSError: the disk is full or broken; nothing has changed.
    """
    # Loaded only here: every command should start quickly.
    from elasticd.settings.commented import commented
    from elasticd.settings.toml_change import with_keys

    refuse_no_file(home / FILE_NAME)
    path, as_root = home / FILE_NAME, os.geteuid() == 0
    if not as_root or home.stat().st_uid == 0:
        path = path.resolve()  # a link to a file kept elsewhere stays one
    elif path.is_symlink():  # what it leads to, now or in a moment, is its owner's choice
        raise UsageError(f"{path}: is a link of another account, which root doesn't follow")
    there = path.exists()
    if there:
        config.load(home)
        text = path.read_bytes().decode("utf-8-sig")
    else:
        text = commented()
    try:
        changed = with_keys(text, values)
    except ValueError as error:
        raise ConfigError(str(error), file=str(path)) from None
    config.parse(Document.parse(changed, str(path)))
    if changed != text or not there:
        mode = stat.S_IMODE(path.stat().st_mode) if there else _NEW_MODE
        owner = (path if there else path.parent).stat()
        # Under sudo it stays its user's, whose daemon reads it.
        its = (owner.st_uid, owner.st_gid) if as_root else None
        write_durable(path, changed.encode(), mode, its)
    return config.load(home)
