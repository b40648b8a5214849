"""What this daemon is asked: by its user on the control socket and in a folder, and by peers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import structlog

from elasticd import archive
from elasticd.core.words.bulk import (
    WANTS,
    CutHere,
    OfOutputs,
    OfPreflight,
    OfStates,
    Relay,
    StrikeHere,
    WantBlank,
)
from elasticd.errors import ProtocolError
from elasticd.shell.chaos.inject import Chaos
from elasticd.shell.control.diskdesk import DiskDesk
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.jobsfolder import ItsId, JobsFolder
from elasticd.shell.control.logdesk import LogDesk
from elasticd.shell.control.lossdesk import LossDesk
from elasticd.shell.control.noticedesk import NoticeDesk
from elasticd.shell.control.outputdesk import OutputDesk
from elasticd.shell.control.preflightdesk import PreflightDesk
from elasticd.shell.control.queries import Queries
from elasticd.shell.control.server import ControlServer, Handlers
from elasticd.shell.control.settingswatch import SettingsWatch
from elasticd.shell.network.bulk import BLANK_BYTES
from elasticd.shell.storage.forgetting import Forgetting
from elasticd.shell.storage.losses import Losses
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.shell.storage.states import States
from elasticd.types import JobId

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Desk:
    """Takes requests in, once it has been started, and has the right part answer."""

    home: Path
    queries: Queries
    inventory: Inventory
    output_desk: OutputDesk
    log_desk: LogDesk
    chaos: Chaos
    states: States
    members: Handlers
    settings: SettingsWatch
    forgetting: Forgetting
    notices: NoticeDesk
    losses: Losses
    preflight: PreflightDesk
    _control: ControlServer = field(init=False)
    _jobs: JobsFolder | None = None

    def __post_init__(self) -> None:
        disk = self._disk_desk()
        handlers = {
            **self.queries.handlers(),
            **self.queries.submissions.handlers(),
            **self.inventory.handlers(),
            **self.output_desk.handlers(),
            **self.log_desk.handlers(),
            **self.chaos.handlers(),
            **self.members,
            **disk.handlers(),
            **self.notices.handlers(),
            **self.preflight.handlers(),
            **LossDesk(self.losses, self.queries.known).handlers(),
        }
        in_full = self.queries.names().completing(disk.saying(handlers))
        self._control = ControlServer(self.home, in_full)

    def _disk_desk(self) -> DiskDesk:
        ask = self.queries
        remove = self.forgetting.remove_stray
        return DiskDesk(self.home, self.states.me, ask.is_known, ask.away, ask.forget, remove)

    async def start(self) -> None:
        await self._control.start()

    async def watch_home(self) -> None:
        """Submit what appears in the jobs folder from now on, and follow elasticd.toml."""
        self.settings.start()
        folder = self.home / "jobs"
        try:
            self._jobs = await JobsFolder.start(folder, self._submit_file)
        except OSError as error:  # the daemon has other work than that
            log.error("the jobs folder is not watched", path=str(folder), reason=str(error))

    async def leave_home(self) -> None:
        await self.settings.close()
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
        if isinstance(wanted, OfPreflight):
            return await self.preflight.serve(wanted)
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

    async def _submit_file(self, path: Path, its_id: ItsId) -> JobId:
        # One that lies there itself is not to ship everybody's jobs.
        bare = path.parent == self.home.absolute() / "jobs"
        spec, packed = await asyncio.to_thread(archive.of_job, path, bare=bare)
        owner = (await asyncio.to_thread(path.lstat)).st_uid
        submissions = self.queries.submissions
        job = await its_id(partial(submissions.new_id, spec.job.name))
        await submissions.take(spec, packed.data, packed.digest, owner, job)
        return job
