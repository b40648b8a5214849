"""A restarted daemon, and the checkpoints that the trainer it has taken over is writing."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.checkpoints import layout
from elasticd.checkpoints.disk import LocalDisk
from elasticd.checkpoints.store import LocalStore
from elasticd.shell.children.children import Children
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.states import States
from elasticd.shell.storage.sweeping import Sweeping
from elasticd.types import JobId, NodeId, Stamp

JOBS = (JobId("adopted"), JobId("over"))


class Here:
    """This node: its name, its processes."""

    me = NodeId("node-0")

    def __init__(self, home: Path) -> None:
        self.files = ChildFiles(home)
        self.running = {JOBS[0]}

    def runs(self, job: JobId) -> bool:
        return job in self.running


class Keeping(LocalDisk):
    """Removes nothing of the first job."""

    def remove_file(self, path: Path) -> None:
        if JOBS[0] in path.parts:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        super().remove_file(path)


def begun(folder: Path) -> dict[JobId, Path]:
    """What a crash has left of each job."""
    found = {}
    for job in JOBS:
        of_job = folder / "checkpoints" / job / layout.partial_name(3, Stamp("ab" * 16))
        of_job.mkdir(parents=True)
        found[job] = of_job / "shard-00000-of-00001.safetensors.tmp"
        found[job].touch()
    return found


def states_of(here: Any, home: Path) -> States:
    return States(
        home,
        cast(Neighbours, here),
        cast(Children, here),
        lambda job: here,
        lambda event: None,
        lambda *told: None,
    )


def test_what_the_disk_keeps_of_a_job_keeps_no_daemon_from_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor what is swept of others."""
    left = begun(tmp_path)
    here = Here(tmp_path)
    here.running.clear()
    states = states_of(here, tmp_path)
    states.store = LocalStore(tmp_path / "checkpoints", here.me, disk=Keeping())
    assert set(Sweeping(states, here.runs).begin()) == set(JOBS)
    assert [path.exists() for path in left.values()] == [True, False]
    out = capsys.readouterr().out
    assert out.count("not swept") == 1 and str(left[JOBS[0]]) in out


def test_what_an_adopted_trainer_writes_is_swept_only_after_its_end(tmp_path: Path) -> None:
    writing = begun(tmp_path)

    async def main() -> None:
        here = Here(tmp_path)
        states = states_of(here, tmp_path)
        sweeping = Sweeping(states, here.runs)
        sweeping.begin()
        assert [path.exists() for path in writing.values()] == [True, False]
        sweeping.child_ended()  # another one
        await states._tasks.ended()
        assert writing[JOBS[0]].exists()
        here.running.clear()
        sweeping.child_ended()
        await states._tasks.ended()
        assert not writing[JOBS[0]].exists()

    asyncio.run(main())
