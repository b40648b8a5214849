"""What a daemon prints into a file of its home doesn't grow for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticd.launchd.otherdisk import LOG
from elasticd.shell.storage.ownlog import NAME, close_to_others, files, rotate


@pytest.mark.parametrize("appends", [True, False])
def test_it_is_rotated_and_gone_on_with_at_its_beginning(tmp_path: Path, appends: bool) -> None:
    path = tmp_path / NAME
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if appends else 0)
    printed = [os.open(path, flags, 0o600), os.open(path, flags, 0o600)]
    try:
        os.write(printed[0], b"x" * 100)
        assert not rotate(tmp_path, printed, 100)
        os.write(printed[0], b"y" * 100)
        assert rotate(tmp_path, printed, 100)
        for fd in printed:
            os.write(fd, b"later\n")
        assert path.read_bytes() == b"later\nlater\n"
        assert (tmp_path / f"{NAME}.1").read_bytes() == b"x" * 100 + b"y" * 100
    finally:
        for fd in printed:
            os.close(fd)


def test_so_is_the_one_of_a_service_whose_home_is_on_another_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / LOG
    path.parent.mkdir(parents=True)
    printed = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(printed, b"x" * 200)
        assert rotate(tmp_path / "home", [printed], 100)
        os.write(printed, b"later\n")
        assert path.read_bytes() == b"later\n"
        system = Path(f"/Library/Logs/elasticd-{os.geteuid()}/daemon.log")
        assert files(tmp_path / "home")[1:] == (path, system)
    finally:
        os.close(printed)


def test_nobody_else_reads_it_however_it_was_made(tmp_path: Path) -> None:
    path, other = tmp_path / NAME, tmp_path / "other"
    printed = [os.open(each, os.O_WRONLY | os.O_CREAT) for each in (path, other)]
    try:
        for each in (path, other):
            each.chmod(0o644)
        close_to_others(tmp_path, printed)
        assert [each.stat().st_mode & 0o777 for each in (path, other)] == [0o600, 0o644]
    finally:
        for fd in printed:
            os.close(fd)


def test_a_file_to_which_we_do_not_print_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / NAME
    elsewhere = os.open(tmp_path / "elsewhere", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        assert not rotate(tmp_path, [elsewhere], 1)
        path.write_bytes(b"x" * 100)
        assert not rotate(tmp_path, [elsewhere], 1)
        assert path.read_bytes() == b"x" * 100
    finally:
        os.close(elsewhere)
