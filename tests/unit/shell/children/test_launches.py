"""Where a child's temporary files go."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from elasticd.shell.children.launches import temporary_folder


@pytest.fixture
def long(tmp_path: Path) -> Path:
    folder = tmp_path.joinpath("christopher.johnson", "Library", "Application Support" * 5, "cache")
    folder.mkdir(parents=True)
    return folder


def opens_socket(temporary: str) -> bool:
    folder = Path(temporary) / "pymp-12345678"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(folder / "listener-12345678"))
        except OSError:
            return False
    return True


def test_a_long_home_leaves_room_for_sockets_and_keeps_the_kernels(
    long: Path, tmp_path: Path
) -> None:
    assert not opens_socket(str(long))
    (long / "pymp-12345678").rmdir()
    found = temporary_folder(long, "linux", tmp_path)
    assert found == temporary_folder(long, "linux", tmp_path) != str(long)
    assert Path(found).samefile(long)
    assert len(found) < len(str(tmp_path)) + 40


def test_the_link_in_tmp_is_short_enough(long: Path) -> None:
    found = temporary_folder(long, "linux")
    try:
        assert opens_socket(found) and (long / "pymp-12345678").is_dir()
    finally:
        os.unlink(found)


def test_a_short_home_has_its_cache(tmp_path: Path) -> None:
    assert temporary_folder(Path("/var/lib/elasticd/cache"), "linux", tmp_path) == (
        "/var/lib/elasticd/cache"
    )
    assert not list(tmp_path.iterdir())


def test_what_is_in_the_way_is_not_followed(long: Path, tmp_path: Path) -> None:
    link = Path(temporary_folder(long, "linux", tmp_path))
    link.unlink()
    link.symlink_to("/etc")
    assert temporary_folder(long, "linux", tmp_path) == str(long)
    assert temporary_folder(long, "linux", tmp_path / "absent") == str(long)


def test_a_long_one_of_a_mac_goes_by_a_link_too(long: Path, tmp_path: Path) -> None:
    """A socket's path has 103 bytes there (sys/un.h, sun_path)."""
    given = "/" + "x" * (103 - len("/pymp-XXXXXXXX/listener-XXXXXXXX") - 1)
    assert temporary_folder(long, "darwin", tmp_path, own=given) == given
    link = Path(temporary_folder(long, "darwin", tmp_path, own=f"{given}x"))
    assert link.parent == tmp_path and link.readlink() == Path(f"{given}x")


def test_a_mac_has_a_short_one_of_its_own(long: Path) -> None:
    assert temporary_folder(long, "darwin", own="/var/folders/ab/T") == "/var/folders/ab/T"
    assert temporary_folder(long, "darwin", own="") == ""
