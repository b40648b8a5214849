"""From what a client sends to a queued job that is one job however often it is sent."""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from elasticd.archive import MAX_ARCHIVE_BYTES
from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.core.words import requests as r
from elasticd.core.words.codec import from_plain
from elasticd.core.words.limits import most_bytes
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError, ProtocolError, UsageError
from elasticd.settings.job import JobSpec
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.storage.states import States
from elasticd.types import JobId

MAX_SPEC_BYTES = 256 * 1024
"""Of a job's settings, which every node keeps and tells."""
_ID_LETTERS = string.ascii_lowercase + string.digits
_ID = re.compile(r"-(?P<number>[1-9]\d{0,8})-[a-z0-9]{4}")
"""What follows a job's name."""


@dataclass(frozen=True, slots=True)
class Submissions:
    """Of one daemon. ``ask`` has the control plane answer an event with the number it is given."""

    node: Node
    states: States
    ask: Callable[[Callable[[int], e.Event]], Awaitable[r.Outcome]]

    def handlers(self) -> Handlers:
        return {**on(r.NameJob, self.name_job), **on(r.SubmitJob, self.submit)}

    async def name_job(self, request: r.NameJob, stream: Stream) -> r.JobNamed:
        return r.JobNamed(self._new_id(request.name))

    async def submit(self, request: r.SubmitJob, stream: Stream) -> r.Outcome:
        try:
            spec = JobSpec.from_dict(request.spec)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"bad submission: {error}") from None
        size = request.archive_bytes
        if size > MAX_ARCHIVE_BYTES:
            raise UsageError(f"the archive is larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
        data = bytearray()
        while len(data) < size:
            data += _part(await stream.receive())
        return await self.take(spec, bytes(data), request.archive_digest, request.id)

    async def take(
        self, spec: JobSpec, data: bytes, digest: str, given: JobId | None = None
    ) -> r.Submitted:
        """Queue a job whose folder is the archive ``data``; answers when it is replicated.

        ``given``: the client's id for it. A job that has it already is not queued again.

        Raises:
            UsageError: it can't be a job.
            OperationError: another job has that id.
        """
        job = given or self._new_id(spec.job.name)
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
        record = JobRecord(job, int(found["number"]), spec.to_dict(), digest, "queued")
        archives = self.states.archives
        with archives.held(digest):
            try:
                await archives.keep(data, digest)
            except ProtocolError:
                raise UsageError("the archive arrived damaged; submit again") from None
            await self.ask(lambda request: e.Submit(request, record))
        view = self.node.views.view
        members = view.members if view is not None else ()
        return r.Submitted(job, self.node.drivers.obstacle(record, members))

    def _new_id(self, name: str) -> JobId:
        number = 1 + max((record.number for record in self.node.records.values()), default=0)
        nonce = "".join(secrets.choice(_ID_LETTERS) for _ in range(4))
        return JobId(f"{name}-{number}-{nonce}")


def _part(frame: dict[str, Any]) -> bytes:
    try:
        part: r.ArchivePart = from_plain(r.ArchivePart, frame)
    except ProtocolError as error:
        raise UsageError(f"bad submission: {error}") from None
    return part.data
