"""What this daemon is asked: by its user on the control socket and in a folder, and by peers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from elasticd import archive
from elasticd.core.words.bulk import (
    WANTS,
    CutHere,
    OfOutputs,
    OfStates,
    Relay,
    StrikeHere,
    WantBlank,
)
from elasticd.errors import ProtocolError, UsageError
from elasticd.settings import job
from elasticd.shell.chaos.inject import Chaos
from elasticd.shell.control.diskdesk import DiskDesk
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.jobsfolder import JobsFolder
from elasticd.shell.control.outputdesk import OutputDesk
from elasticd.shell.control.queries import Queries
from elasticd.shell.control.server import ControlServer
from elasticd.shell.network.bulk import BLANK_BYTES
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.shell.storage.states import States


@dataclass(slots=True)
class Desk:
    """Takes requests in, once it has been started, and has the right part answer."""

    home: Path
    queries: Queries
    inventory: Inventory
    output_desk: OutputDesk
    chaos: Chaos
    states: States
    _control: ControlServer = field(init=False)
    _jobs: JobsFolder | None = None

    def __post_init__(self) -> None:
        handlers = {
            **self.queries.handlers(),
            **self.inventory.handlers(),
            **self.output_desk.handlers(),
            **self.chaos.handlers(),
            **DiskDesk(self.home, self.states.me).handlers(),
        }
        self._control = ControlServer(self.home, self.queries.names().completing(handlers))

    async def start(self) -> None:
        await self._control.start()

    def watch_jobs(self) -> None:
        """Submit what appears in the jobs folder from now on."""
        self._jobs = JobsFolder.start(self.home / "jobs", self._submit_file)

    async def leave_jobs(self) -> None:
        if self._jobs is not None:
            await self._jobs.close()

    async def stop_work(self) -> None:
        """End what requests have begun."""
        self.inventory.close()
        await self.chaos.close()

    async def close(self) -> None:
        await self._control.close()

    async def serve(self, request: dict[str, Any]) -> int:
        """A descriptor of what a peer fetches, which the caller closes.

        Raises:
            ElasticdError: it can't have that.
        """
        wanted = WANTS.decode(request)
        if isinstance(wanted, OfStates):
            return await self.states.serve(wanted)
        if isinstance(wanted, OfOutputs):
            return await self.output_desk.outputs.serve(wanted)
        match wanted:
            case CutHere() | StrikeHere():
                return await self.chaos.serve(wanted)
            case WantBlank():
                fd = nameless_file()
                os.ftruncate(fd, BLANK_BYTES)
                return fd
            case Relay():
                raise ProtocolError("it wants what this node only passes on")
            case _:
                assert_never(wanted)

    async def _submit_file(self, path: Path) -> str:
        if path.parent == self.home.absolute() / "jobs":
            # Its folder is shipped, and that would be everybody's jobs.
            raise UsageError(f"{path.name}: give it a folder of its own, with its script")
        spec = job.load(path)
        packed = await asyncio.to_thread(archive.pack, path.parent)
        answer = await self.queries.submit_archive(spec, packed.data, packed.digest)
        return answer.id
