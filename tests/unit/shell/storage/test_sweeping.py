"""A restarted daemon, and the checkpoints that the trainer it has taken over is writing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from elasticd.checkpoints import layout
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


def test_what_an_adopted_trainer_writes_is_swept_only_after_its_end(tmp_path: Path) -> None:
    writing = {}
    for job in JOBS:
        folder = tmp_path / "checkpoints" / job / layout.partial_name(3, Stamp("ab" * 16))
        folder.mkdir(parents=True)
        writing[job] = folder / "shard-00000-of-00001.safetensors.tmp"
        writing[job].touch()

    async def main() -> None:
        here: Any = Here(tmp_path)
        states = States(
            tmp_path,
            cast(Neighbours, here),
            cast(Children, here),
            lambda job: here,
            lambda event: None,
            lambda *told: None,
        )
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
