"""What may be replaced where the user names a file to be written."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from elasticd.errors import UsageError
from elasticd.namedfile import place_of
from elasticd.shell.storage import settingsfile
from elasticd.shell.storage.durable import write_durable, write_whole
from tests.nobody import NOBODY

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be tricked by another")


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    for name in ("fifo", "socket", "folder", "link", "dangling", "ring"):
        with pytest.raises(UsageError, match=name):
            place_of(tmp_path / name, overwrite=True)


def test_a_link_of_ones_own_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert place_of(tmp_path / "link", overwrite=True) == (tmp_path / "target").resolve()
    with pytest.raises(UsageError, match="is there already"):
        place_of(tmp_path / "link", overwrite=False)


@only_root
def test_a_link_of_another_account_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    with pytest.raises(UsageError, match="link of another account"):
        place_of(tmp_path / "link", overwrite=True)


@pytest.mark.parametrize("write", [write_durable, write_whole])
def test_nothing_is_written_through_a_link_that_lies_in_the_way(
    tmp_path: Path, write: object
) -> None:
    secret, path = tmp_path / "secret", tmp_path / "file"
    secret.write_text("old")
    (tmp_path / "file.partial").symlink_to(secret)
    assert callable(write)
    write(path, b"new")
    assert secret.read_text() == "old" and path.read_text() == "new" and not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600


@only_root
def test_root_follows_no_link_that_another_has_in_the_place_of_settings(tmp_path: Path) -> None:
    home, secret = tmp_path / "home", tmp_path / "cron"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    (home / "elasticd.toml").symlink_to(secret)
    with pytest.raises(UsageError, match="is a link of another account"):
        settingsfile.change(home, {"node.name": "mac-9"})
    assert not secret.exists()


@only_root
def test_changed_settings_stay_their_owners(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    settingsfile.change(home, {})
    found = (home / "elasticd.toml").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (NOBODY, NOBODY, 0o600)
