"""A daemon whose home goes away, or is another one, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.errors import DiskError
from elasticd.shell.storage.homewatch import HomeWatch
from tests.tinydisk import tiny_disk


def moved(home: Path) -> None:
    home.rename(home.with_name("elsewhere"))


def replaced(home: Path) -> None:
    moved(home)
    home.mkdir()


def a_file(home: Path) -> None:
    moved(home)
    home.touch()


@pytest.mark.parametrize("change", [moved, replaced, a_file])
def test_a_home_that_is_another_one_is_told_of_once(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    home, told = tmp_path / "home", list[DiskError]()
    home.mkdir()
    watch = HomeWatch(home, told.append)
    watch.look()
    change(home)
    asyncio.run(watch.rounds())
    (error,) = told
    assert str(error).startswith(f"{home}: is not the folder any more") and "mount" in str(error)


def test_a_disk_that_is_unmounted_below_a_home_is_noticed(tmp_path: Path) -> None:
    with tiny_disk(tmp_path):
        watch = HomeWatch(tmp_path, print)
        watch.look()
    with pytest.raises(DiskError):
        watch.look()


def test_a_home_that_is_moved_behind_a_link_is_the_same(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    watch = HomeWatch(home, print)
    moved(home)
    home.symlink_to(tmp_path / "elsewhere")
    watch.look()
