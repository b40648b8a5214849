"""Makes the first step of a job on this node, and has others do so (docs/protocols.md §4).

Its script runs in processes of its own, which give way to all others, as far as the first gradient.
Nothing is submitted, and nothing of it stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from elasticd import archive
from elasticd.archive import MAX_ARCHIVE_BYTES
from elasticd.core.words.bulk import WantFirstStep
from elasticd.core.words.codec import UNKNOWN, from_plain
from elasticd.counting import gibibytes
from elasticd.errors import ElasticdError, OperationError, ProtocolError, UsageError
from elasticd.machinememory import machine_memory
from elasticd.preflight.firststeps import StepSeen, of_runs
from elasticd.preflight.needs import ScriptOffer
from elasticd.settings.job import JobSettings, JobSpec
from elasticd.shell.children import launches
from elasticd.shell.children.environment import Variables
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.children.temporary import TemporaryFolders
from elasticd.shell.control.answers import file_with, told_by, trained
from elasticd.shell.control.givingway import tried_aside
from elasticd.shell.control.server import Stream
from elasticd.shell.control.submissions import receive_archive
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.scratch import Scratch
from elasticd.types import JobId, NodeId

MODULE = "elasticd.train.firststep"
RUNS = 2
"""Processes, one after the other: bits may differ from one to the next alone."""
RUN_SECONDS = 60.0
"""For each."""
LEAST_BYTES = 1 << 30
"""So much memory is to be free, whatever the job needs."""
_ANSWER_SECONDS = 30.0
"""To bring its files, and to tell."""


@dataclass(slots=True)
class StepDesk:
    """One node's.

    Attributes:
        used: whether a job has the archive of that digest.
        trains: the jobs that have processes here now.
        daemons: the daemon's own variables.
        free: bytes of memory that are free; None: the system doesn't say it.
        module: what makes the step.
    """

    neighbours: Neighbours
    archives: Archives
    files: ChildFiles
    scratch: Scratch
    daemons: Variables
    trains: Callable[[], Sequence[JobId]]
    used: Callable[[str], bool]
    free: Callable[[], int | None] = lambda: machine_memory().available_bytes
    module: str = MODULE
    _making: bool = field(default=False, init=False)

    @contextlib.asynccontextmanager
    async def taken(self, offer: ScriptOffer, stream: Stream) -> AsyncIterator[None]:
        """The files of a job that a client sends now are here meanwhile.

        Raises:
            UsageError: they are none.
        """
        if offer.archive_bytes > MAX_ARCHIVE_BYTES:
            raise UsageError(f"the archive is larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
        digest = offer.archive_digest
        try:
            with self.archives.held(digest), self.archives.arrival() as arriving:
                await receive_archive(stream, arriving, offer.archive_bytes)
                try:
                    await self.archives.take_in(arriving, digest)
                except ProtocolError:
                    raise UsageError("the archive arrived damaged; ask again") from None
                yield
        finally:
            await self._left(digest)

    async def serve(self, wanted: WantFirstStep) -> int:
        """A descriptor of what another node asks for; the caller closes it."""
        return file_with(await self._own(wanted))

    async def told(self, node: NodeId, wanted: WantFirstStep) -> StepSeen | None:
        """What the step comes to on ``node``; None: its version can't make it."""
        late = RUNS * RUN_SECONDS + _ANSWER_SECONDS
        try:
            own = partial(self._own, wanted)
            return replace(
                await told_by(self.neighbours, node, wanted, StepSeen, own, late), node=node
            )
        except TimeoutError:
            return StepSeen(node, error=f"it has not told it in {late:g} s")
        except (ElasticdError, OSError, ValueError) as error:
            return None if UNKNOWN in str(error) else StepSeen(node, error=str(error))

    async def _own(self, wanted: WantFirstStep) -> StepSeen:
        me = self.neighbours.me
        if not wanted.busy and (job := trained(self.trains)):
            return StepSeen(me, trains=job)
        needs, free = max(wanted.needs_bytes, LEAST_BYTES), self.free()
        if free is not None and needs > free:
            return StepSeen(
                me, short=f"it needs {gibibytes(needs)}, and {gibibytes(free)} are free"
            )
        if self._making:
            return StepSeen(me, error="it is made for somebody else just now: ask again")
        self._making = True
        try:
            return await self._made(wanted)
        except (ElasticdError, OSError, LookupError, TypeError, ValueError) as error:
            if not wanted.busy and (job := trained(self.trains)):
                return StepSeen(me, trains=job)  # it began meanwhile
            return StepSeen(me, error=str(error))
        finally:
            self._making = False

    async def _made(self, wanted: WantFirstStep) -> StepSeen:
        spec = JobSpec.from_dict(wanted.spec)
        async with self.packed(wanted.digest) as data:
            with self.scratch.folder() as folder, self.variables(spec.job, folder) as own:
                runs = []
                for number in range(RUNS):
                    place = folder / str(number)
                    await asyncio.to_thread(place.mkdir)
                    await asyncio.to_thread(archive.unpack, data, place / "job")
                    runs.append(await self._run(spec, place, own, wanted.busy))
        return of_runs(runs)

    @contextlib.contextmanager
    def variables(self, job: JobSettings, folder: Path) -> Iterator[dict[str, str]]:
        """Of a process that runs a job's script, with temporary files in ``folder``. Raises as
        :func:`launches.trainer`."""
        with TemporaryFolders(self.files).lent(folder / "tmp") as temporary:
            yield launches.variables(job, job.pass_env, self.files, self.daemons, temporary)

    @contextlib.asynccontextmanager
    async def packed(self, digest: str) -> AsyncIterator[bytes]:
        """A job's files, which some node has. Nothing of them stays here, unless a job has them.

        Raises:
            OperationError: they can't be had, or are damaged.
        """
        try:
            with self.archives.held(digest):
                await self.archives.have(digest)
                yield await asyncio.to_thread(self._packed, digest)
        finally:
            await self._left(digest)

    def _packed(self, digest: str) -> bytes:
        with open(self.archives.open(digest), "rb") as file:
            data = file.read()
        if archive.digest(data) != digest:
            raise OperationError("its files are damaged: ask again")
        return data

    async def _run(self, spec: JobSpec, place: Path, own: Variables, busy: bool) -> StepSeen:
        told, result = place / "spec.json", place / "result.json"
        await asyncio.to_thread(told.write_text, json.dumps(spec.to_dict()))
        command = [spec.job.python or sys.executable, "-m", self.module, str(told), str(result)]
        await tried_aside(
            command, own, place / "job", RUN_SECONDS, lambda: not busy and trained(self.trains)
        )
        try:
            found = json.loads(await asyncio.to_thread(result.read_bytes))
        except FileNotFoundError:
            raise OperationError("the script ends before its first step") from None
        seen: StepSeen = from_plain(StepSeen, {**found, "node": self.neighbours.me})
        return seen

    async def _left(self, digest: str) -> None:
        """Nothing of it stays, unless it is a job's; what the disk keeps is looked after as all
        that no job has."""
        await self.archives.remove(digest, lambda: self.used(digest))
