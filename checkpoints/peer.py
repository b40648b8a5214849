"""Another node's checkpoints, read over its daemon's ``fetch`` (docs/protocols.md §4).

Both ends are here: :class:`PeerStore` asks, :func:`answer` answers. How bytes travel is the
caller's business.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, assert_never

import msgpack

from elasticd.checkpoints import manifest
from elasticd.checkpoints.disk import refusing
from elasticd.checkpoints.manifest import Stored
from elasticd.checkpoints.port import Problem, Store
from elasticd.checkpoints.questions import (
    HeldShards,
    Question,
    RemoveStored,
    StoredJobs,
    StoredOfJob,
    VerifyStored,
    WantShard,
)
from elasticd.errors import ProtocolError, StateError
from elasticd.types import JobId, NodeId, Stamp

Call = Callable[[Question | WantShard, int], int]
"""Has a question answered into a descriptor; returns the bytes. Raises OperationError."""

MAX_SHARDS = 4096
RUNNING = {"running": True}
RUNNING_ANSWER: bytes = msgpack.packb(RUNNING)
"""The answer to ``verify`` while a long one goes on: ask again."""


class PeerStore:
    """Implements :class:`elasticd.checkpoints.port.Store` for the store of another node."""

    def __init__(self, node: NodeId, call: Call) -> None:
        self._node, self._call = node, call

    def jobs(self) -> list[JobId]:
        return [JobId(str(job)) for job in self._ask(StoredJobs())["jobs"]]

    def stored(self, job: JobId) -> list[Stored]:
        rows = self._ask(StoredOfJob(job))["stored"]
        where = f"a manifest from {self._node}"
        return [
            Stored(manifest.decode(data, where), tuple(int(index) for index in held))
            for data, held in rows
        ]

    def unreadable(self, job: JobId) -> list[str]:
        # Older versions don't say.
        return [str(name) for name in self._ask(StoredOfJob(job)).get("unreadable", [])]

    def held(
        self, job: JobId, step: int, stamp: Stamp, count: int | None = None
    ) -> tuple[int, ...]:
        said = self._ask(HeldShards(job, step, stamp, count))
        return tuple(int(index) for index in said["held"])

    def coming(self, job: JobId, step: int, stamp: Stamp, count: int) -> tuple[int, ...]:
        said = self._ask(HeldShards(job, step, stamp, count))
        # Older versions say only what is held.
        return tuple(int(index) for index in said.get("coming", said["held"]))

    def open_shard(self, job: JobId, step: int, stamp: Stamp, index: int, count: int) -> BinaryIO:
        return self._fetch(WantShard(job, step, stamp, index, count))

    def verify(
        self, job: JobId, step: int, stamp: Stamp, index: int | None = None
    ) -> list[Problem]:
        question = verification(job, step, stamp, index)
        while (found := problems_of(self._node, self._answer_to(question))) is None:
            pass  # Each answer takes seconds.
        return found

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        self._ask(RemoveStored(job, step, stamp))

    def _ask(self, question: Question) -> dict[str, Any]:
        return _said(self._node, question.kind, self._answer_to(question))

    def _answer_to(self, question: Question) -> bytes:
        with self._fetch(question) as file:
            return file.read()

    def _fetch(self, wanted: Question | WantShard) -> BinaryIO:
        with refusing(Path(tempfile.gettempdir())):
            file = _answer_file()
            try:
                self._call(wanted, file.fileno())
                file.seek(0)
            except BaseException:
                file.close()
                raise
        return file


def verification(job: JobId, step: int, stamp: Stamp, index: int | None = None) -> VerifyStored:
    """A question of which no other has the name: an answer to somebody who has given up must not be
    taken for this one's."""
    return VerifyStored(job, step, stamp, index, secrets.token_hex(8))


def problems_of(node: NodeId, said: bytes) -> list[Problem] | None:
    """What a node has answered to :func:`verification`. None: it still reads, ask again.

    Raises:
        ProtocolError: that is no answer.
        StateError: it refuses.
    """
    found = _said(node, VerifyStored.kind, said)
    if found == RUNNING:
        return None
    return [
        Problem(Path(str(path)), shard, str(reason)) for path, shard, reason in found["problems"]
    ]


def _said(node: NodeId, kind: str, data: bytes) -> dict[str, Any]:
    try:
        said = msgpack.unpackb(data, raw=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise ProtocolError(f"{node} sent no answer: {error}") from None
    if not isinstance(said, dict):
        raise ProtocolError(f"{node} sent no answer to {kind}")
    if "refused" in said:
        raise StateError(f"{node}: {said['refused']}")
    return said


def answer(store: Store, question: Question) -> bytes:
    """What a :class:`PeerStore` is told of ``store``.

    Raises:
        ProtocolError: no checkpoint is cut like that.
    """
    try:
        said = _answer(store, question)
    except StateError as error:
        said = {"refused": str(error)}
    packed = msgpack.packb(said, use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def _answer(store: Store, question: Question) -> dict[str, Any]:
    match question:
        case StoredJobs():
            return {"jobs": store.jobs()}
        case StoredOfJob(job):
            found = store.stored(job)
            return {
                "stored": [[manifest.encode(s.manifest), list(s.held)] for s in found],
                "unreadable": store.unreadable(job),
            }
        case HeldShards(job, step, stamp, count):
            if count is not None and not 0 <= count <= MAX_SHARDS:
                raise ProtocolError(f"a checkpoint of {count} shards")
            held = list(store.held(job, step, stamp, count))
            coming = [] if count is None else list(store.coming(job, step, stamp, count))
            return {"held": held, "coming": coming}
        case VerifyStored(job, step, stamp, index, _):
            problems = store.verify(job, step, stamp, index)
            return {"problems": [[str(p.path), p.shard, p.reason] for p in problems]}
        case RemoveStored(job, step, stamp):
            store.remove(job, step, stamp)
            return {}
        case _:
            assert_never(question)


def _answer_file() -> BinaryIO:
    """A file without a name: memory on Linux, an unlinked file elsewhere."""
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("elasticd-answer", os.MFD_CLOEXEC), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
