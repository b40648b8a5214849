"""From what a client sends to a queued job that is one job however often it is sent."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from elasticd.archive import MAX_ARCHIVE_BYTES
from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.core.words.codec import from_plain
from elasticd.core.words.limits import most_bytes
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.requests.jobs import ArchivePart, JobNamed, NameJob, SubmitJob, Submitted
from elasticd.errors import OperationError, ProtocolError, UsageError
from elasticd.ipc.accounts import account_of
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import DAY_VARIABLE
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.jobfiles import JobFiles
from elasticd.shell.control.preflights import Preflights
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.storage.arrival import Arrival
from elasticd.shell.storage.places import Places
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

MAX_SPEC_BYTES = 256 * 1024
"""Of a job's settings, which every node keeps and tells."""
MAX_RECEIVING = 4
"""So many archives are received at once."""
MAX_WAITING = 32
"""So many more clients may wait to send theirs."""
PART_SECONDS = 10.0
"""How long a client may take for a part, while others wait."""
_BUSY = "other jobs are being sent to this node: submit again in a moment"
NO_SCRIPT = "this [recipe] needs a later version of elasticd on this node"
"""Of a job without a script: what a build that knows no recipes says that it lacks."""
_MOST_AHEAD = 100_000
"""A client's number for its job may be so much higher than any that is known here: another node may
have given it. One near the highest that there can be would leave no number for later jobs."""
_ID_LETTERS = string.ascii_lowercase + string.digits
_ID = re.compile(r"-(?P<number>[1-9]\d{0,8})-[a-z0-9]{4}")
"""What follows a job's name."""


@dataclass(slots=True)
class LastNumber:
    """The highest that this daemon has given to a job, or was given with one. Its files may be on
    their way for long, and until they are here no record has the number."""

    value: int = 0


Foresee = Callable[[JobRecord, Callable[[], None]], Awaitable[tuple[JobRecord, Callable[[], None]]]]


async def _as_it_is(
    record: JobRecord, waits: Callable[[], None]
) -> tuple[JobRecord, Callable[[], None]]:
    return record, lambda: None


@dataclass(slots=True)
class Submissions:
    """Of one daemon. ``ask`` has the control plane answer an event with the number it is given.
    ``foresee`` adds to a job's record what is known before it runs, and says so if that takes a
    while; what it returns beside that tells of it, once the job is known."""

    node: Node
    states: States
    files: JobFiles
    ask: Callable[[Callable[[int], e.Event]], Awaitable[Outcome]]
    foresee: Foresee = _as_it_is
    preflights: Preflights = field(default_factory=Preflights)
    now: Callable[[], float] = unix_seconds
    _last: LastNumber = field(default_factory=LastNumber)
    _receiving: Places = field(default_factory=lambda: Places(MAX_RECEIVING, MAX_WAITING, _BUSY))

    def handlers(self) -> Handlers:
        return {**on(NameJob, self.name_job), **on(SubmitJob, self.submit)}

    async def name_job(self, request: NameJob, stream: Stream) -> JobNamed:
        return JobNamed(self.new_id(request.name))

    async def submit(self, request: SubmitJob, stream: Stream) -> Outcome:
        try:
            spec = JobSpec.from_dict(request.spec)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"bad submission: {error}") from None
        size = request.archive_bytes
        if size > MAX_ARCHIVE_BYTES:
            raise UsageError(f"the archive is larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
        record = self._record(spec, request.archive_digest, request.id)
        with self.states.archives.held(record.archive), self.states.archives.arrival() as arriving:
            with stream.held_back():
                await self._receiving.begin()
            try:
                await receive_archive(stream, arriving, size)
            finally:
                self._receiving.end()
            record = await self._signed(record, stream.uid)
            return await self._queue(record, self.states.archives.take_in(arriving, record.archive))

    def new_id(self, name: str) -> JobId:
        """Which no job has, for one of that name."""
        self._last.value = number = 1 + self._highest()
        nonce = "".join(secrets.choice(_ID_LETTERS) for _ in range(4))
        return JobId(f"{name}-{number}-{nonce}")

    async def take(
        self,
        spec: JobSpec,
        data: bytes,
        digest: str,
        uid: int | None = None,
        given: JobId | None = None,
    ) -> Submitted:
        """Queue a job whose folder is the archive ``data``; answers when it is replicated.
        ``uid``: who has submitted it; ``given``: as in :meth:`_record`.

        Raises:
            UsageError: it can't be a job.
            OperationError: another job has that id.
        """
        record = await self._signed(self._record(spec, digest, given), uid)
        archives = self.states.archives
        with archives.held(digest):
            return await self._queue(record, archives.keep(data, digest))

    def _record(self, spec: JobSpec, digest: str, given: JobId | None) -> JobRecord:
        """Of a new job. ``given``: the client's id for it; a job that has it already is not queued
        again.

        Raises:
            UsageError: it can't be a job.
            OperationError: another job has that id.
        """
        job = given or self.new_id(spec.job.name)
        found = _ID.fullmatch(job.removeprefix(spec.job.name))
        if found is None or not job.startswith(spec.job.name):
            raise UsageError(f"{job!r} is no id for a job named {spec.job.name}")
        if (size := most_bytes(spec.to_dict())) > MAX_SPEC_BYTES:
            raise UsageError(
                f"the job's settings have {size} bytes, more than {MAX_SPEC_BYTES}: put what is"
                " long into a file of its folder"
            )
        known = self.node.records.get(job)
        if known is not None and known.archive != digest:
            raise OperationError(f"{job} is another job already")
        number = int(found["number"])
        if number > self._highest() + _MOST_AHEAD:
            raise UsageError(f"{job!r} has a number far above those of other jobs: let it be given")
        self._last.value = max(self._last.value, number)
        plain = spec.to_dict()
        passed = tuple(plain["job"].pop("pass_env", ()))
        recipe = plain.pop("recipe", None)
        if recipe is not None:
            plain["job"]["entrypoint"] = NO_SCRIPT
            plain["job"]["env"] = {DAY_VARIABLE: self._today(), **plain["job"]["env"]}
        return JobRecord(
            job, number, plain, digest, "queued", passed=passed,
            recipe="" if recipe is None else json.dumps(recipe, sort_keys=True),
        )  # fmt: skip

    def _today(self) -> str:
        """The same for all nodes, wherever they are: in UTC."""
        return datetime.fromtimestamp(self.now(), UTC).date().isoformat()

    async def _signed(self, record: JobRecord, uid: int | None) -> JobRecord:
        """With who has submitted it, and where; not by what a client says of itself."""
        by = await asyncio.to_thread(account_of, uid)
        return replace(record, submitter=by, submitted_on=self.files.me if by else NodeId(""))

    async def _queue(self, record: JobRecord, kept: Awaitable[None]) -> Submitted:
        """Its files are here once ``kept``. They are on other nodes before anybody knows the job,
        so that no job is known whose files are lost."""
        try:
            await kept
        except ProtocolError:
            raise UsageError("the archive arrived damaged; submit again") from None
        short = await self.files.spread(record)
        with self.preflights.of(record) as waits:
            foreseen, tell = await self.foresee(record, waits)
            is_new = record.id not in self.node.records
            await self.ask(lambda request: e.Submit(request, foreseen))
        if is_new:
            tell()
        obstacle = self.node.drivers.obstacle(foreseen, self._members())
        return Submitted(record.id, obstacle, short)

    def _members(self) -> tuple[NodeId, ...]:
        view = self.node.views.view
        return view.members if view is not None else ()

    def _highest(self) -> int:
        """Number of a job that is known, or on its way."""
        known = (record.number for record in self.node.records.values())
        return max(self._last.value, max(known, default=0))


async def receive_archive(stream: Stream, arriving: Arrival, size: int) -> None:
    """Write all of an archive that a client sends."""
    received = 0
    while received < size:
        part = _part(await stream.receive(PART_SECONDS))
        if not part:
            raise UsageError("a part of the archive is empty")
        await asyncio.to_thread(arriving.write, part)
        received += len(part)


def _part(frame: dict[str, Any]) -> bytes:
    try:
        part: ArchivePart = from_plain(ArchivePart, frame)
    except ProtocolError as error:
        raise UsageError(f"bad submission: {error}") from None
    return part.data
