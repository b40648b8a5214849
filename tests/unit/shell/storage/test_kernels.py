"""Compiled kernels don't fill the disk, and those that are used stay."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.settings.keep import KeepRules
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.storage import kernels
from elasticd.shell.storage import tidying as module
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.tidying import Tidying

DAY = 86_400.0


def compiled(folder: Path, *ages_days: float) -> list[Path]:
    """Kernels of 4 KiB that were used so long ago."""
    found = []
    for number, age in enumerate(ages_days):
        path = folder / "0.31" / "cpu" / f"kernel-{number}.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(4096))
        used = time.time() - age * DAY
        os.utime(path, (used, used))
        found.append(path)
    return found


def test_those_used_longest_ago_go_until_the_rest_fits(tmp_path: Path) -> None:
    paths = compiled(tmp_path, 5, 1, 4, 2, 3)
    assert kernels.keep_within(tmp_path, 3 * 4096) == 2
    assert [path.exists() for path in paths] == [False, True, False, True, True]
    assert kernels.keep_within(tmp_path, 3 * 4096) == 0


def test_what_may_be_about_to_be_loaded_stays(tmp_path: Path) -> None:
    paths = compiled(tmp_path, 0, 0, 3)
    assert kernels.keep_within(tmp_path, 0) == 1
    assert [path.exists() for path in paths] == [True, True, False]


def test_what_is_used_all_the_time_stays_though_the_disk_notes_it_once_a_day(
    tmp_path: Path,
) -> None:
    paths = compiled(tmp_path, 9, 9)
    os.utime(paths[0], (time.time() - 1.04 * DAY, time.time() - 9 * DAY))
    assert kernels.keep_within(tmp_path, 0) == 1
    assert [path.exists() for path in paths] == [True, False]


def test_within_the_bound_nothing_goes_and_without_a_folder_nothing_happens(tmp_path: Path) -> None:
    paths = compiled(tmp_path, 99, 98)
    assert kernels.keep_within(tmp_path) == 0 == kernels.keep_within(tmp_path / "none")
    assert all(path.exists() for path in paths)


def test_a_daemon_sees_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MOST_BYTES", 4096)
    monkeypatch.setattr(module, "FIRST_SECONDS", 0.0)
    paths = compiled(tmp_path / "cache" / "mlx", 5, 4, 1)
    none = cast(Any, None)
    children = cast(Any, SimpleNamespace(files=ChildFiles(tmp_path), open_logs=set))
    archives = Archives(tmp_path / "archives", none, none, none)
    tidying = Tidying(tmp_path, KeepRules(), list, lambda job: None, children, archives, print)

    async def main() -> None:
        task = asyncio.create_task(tidying.rounds())
        while paths[0].exists() or paths[1].exists():  # noqa: ASYNC110  it is done in a thread
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    assert paths[2].exists()
