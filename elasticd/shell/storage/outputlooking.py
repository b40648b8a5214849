"""What scripts show in their output folders is looked for, and done soon.

Main's may ask that what it has written is kept on other nodes. Another's may have been given the
state of others: then what main has written belongs to it, and is copied. Or it asks for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from elasticd.outputsigns import asked_ns, given_ns, note_came, wanted_ns
from elasticd.shell.storage.outputs import LastWorld, Outputs
from elasticd.shell.tasks import Tasks
from elasticd.types import JobId

LOOK_SECONDS = 0.25
"""What a script shows is seen after so long at most."""


class OutputLooking:
    """Of all jobs that run here."""

    def __init__(
        self,
        outputs: Outputs,
        output_folder: Callable[[JobId], Path],
        runs: Callable[[JobId], bool],
        entered: Mapping[JobId, LastWorld],
        follow: Callable[[JobId], Coroutine[Any, Any, None]],
        tasks: Tasks,
    ) -> None:
        """``entered``: of each job the last world that this node has entered. ``follow`` copies
        what main has."""
        self._outputs, self._output_folder, self._runs = outputs, output_folder, runs
        self._entered, self._follow, self._tasks = entered, follow, tasks
        self._asked: dict[JobId, int] = {}
        """When each job's script here asked last for copies, of what others were told."""
        self._given: dict[JobId, tuple[int, int]] = {}
        """When it was given a state last, and asked for main's files, of what they were copied
        for."""

    def forget(self, job: JobId) -> None:
        self._asked.pop(job, None)
        self._given.pop(job, None)

    async def rounds(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for job, world in tuple(self._entered.items()):
                if self._runs(job):
                    await self._look(job, world)

    async def _look(self, job: JobId, world: LastWorld) -> None:
        folder = self._output_folder(job)
        if world[1][0] == self._outputs.me:
            asked = await asyncio.to_thread(wanted_ns, folder)
            if asked != self._asked.get(job, 0):
                self._asked[job] = asked
                await self._outputs.have_copied(job)
        else:
            given = await asyncio.to_thread(lambda: (given_ns(folder), asked_ns(folder)))
            if given != self._given.get(job, (0, 0)):
                told = await self._outputs.last_world(job)
                if told is not None and told[0] >= world[0]:  # else main is not known here yet
                    self._given[job] = given
                    self._tasks.start(self._bring(job, given[1]))

    async def _bring(self, job: JobId, asked: int) -> None:
        await self._follow(job)
        if asked:
            await asyncio.to_thread(note_came, self._output_folder(job), asked)
