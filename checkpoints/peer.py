"""Another node's checkpoints, read over its daemon's ``fetch`` (docs/protocols.md §4).

Both ends are here: :class:`PeerStore` asks, :func:`answer` answers. How bytes travel is the
caller's business.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgpack

from elasticd.checkpoints import manifest
from elasticd.checkpoints.disk import refusing
from elasticd.checkpoints.manifest import Stored
from elasticd.checkpoints.port import Problem, Store
from elasticd.errors import ProtocolError, StateError
from elasticd.types import JobId, NodeId, Stamp

Call = Callable[[Mapping[str, Any], int], int]
"""Has a request answered into a descriptor; returns the bytes. Raises OperationError."""

REQUESTS = ("stored_jobs", "stored", "held", "verify", "remove")
"""What :func:`answer` answers; ``shard`` is served as a file."""
MAX_SHARDS = 4096
RUNNING = {"running": True}
RUNNING_ANSWER: bytes = msgpack.packb(RUNNING)
"""The answer to ``verify`` while a long one goes on: ask again."""


class PeerStore:
    """Implements :class:`elasticd.checkpoints.port.Store` for the store of another node."""

    def __init__(self, node: NodeId, call: Call) -> None:
        self._node, self._call = node, call

    def jobs(self) -> list[JobId]:
        return [JobId(str(job)) for job in self._ask({"what": "stored_jobs"})["jobs"]]

    def stored(self, job: JobId) -> list[Stored]:
        rows = self._ask({"what": "stored", "job": job})["stored"]
        where = f"a manifest from {self._node}"
        return [
            Stored(manifest.decode(data, where), tuple(int(index) for index in held))
            for data, held in rows
        ]

    def held(
        self, job: JobId, step: int, stamp: Stamp, count: int | None = None
    ) -> tuple[int, ...]:
        request = {"what": "held", "job": job, "step": step, "stamp": stamp, "count": count}
        return tuple(int(index) for index in self._ask(request)["held"])

    def open_shard(self, job: JobId, step: int, stamp: Stamp, index: int, count: int) -> BinaryIO:
        request = {"what": "shard", "job": job, "step": step, "stamp": stamp}
        return self._fetch({**request, "index": index, "count": count})

    def verify(
        self, job: JobId, step: int, stamp: Stamp, index: int | None = None
    ) -> list[Problem]:
        request = {"what": "verify", "job": job, "step": step, "stamp": stamp, "index": index}
        while (said := self._ask(request)) == RUNNING:
            pass  # Each answer takes seconds.
        return [
            Problem(Path(str(path)), shard, str(reason)) for path, shard, reason in said["problems"]
        ]

    def remove(self, job: JobId, step: int, stamp: Stamp) -> None:
        self._ask({"what": "remove", "job": job, "step": step, "stamp": stamp})

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._fetch(request) as file:
            try:
                said = msgpack.unpackb(file.read(), raw=False)
            except (ValueError, msgpack.UnpackException) as error:
                raise ProtocolError(f"{self._node} sent no answer: {error}") from None
        if not isinstance(said, dict):
            raise ProtocolError(f"{self._node} sent no answer to {request['what']}")
        if "refused" in said:
            raise StateError(f"{self._node}: {said['refused']}")
        return said

    def _fetch(self, request: Mapping[str, Any]) -> BinaryIO:
        with refusing(Path(tempfile.gettempdir())):
            file = nameless_file()
            try:
                self._call(request, file.fileno())
                file.seek(0)
            except BaseException:
                file.close()
                raise
        return file


def answer(store: Store, request: Mapping[str, Any]) -> bytes:
    """What a :class:`PeerStore` is told of ``store``.

    Raises:
        ProtocolError: the request is none of :data:`REQUESTS`, or lacks something.
    """
    try:
        said = _answer(store, request)
    except StateError as error:
        said = {"refused": str(error)}
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"bad request: {error!r}") from None
    packed = msgpack.packb(said, use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def _answer(store: Store, request: Mapping[str, Any]) -> dict[str, Any]:
    what = request["what"]
    if what == "stored_jobs":
        return {"jobs": store.jobs()}
    job = JobId(str(request["job"]))
    if what == "stored":
        found = store.stored(job)
        return {"stored": [[manifest.encode(s.manifest), list(s.held)] for s in found]}
    step, stamp = int(request["step"]), Stamp(str(request["stamp"]))
    match what:
        case "held":
            count = request["count"]
            if count is not None and not 0 <= count <= MAX_SHARDS:
                raise ProtocolError(f"a checkpoint of {count} shards")
            return {"held": list(store.held(job, step, stamp, count))}
        case "verify":
            problems = store.verify(job, step, stamp, request["index"])
            return {"problems": [[str(p.path), p.shard, p.reason] for p in problems]}
        case "remove":
            store.remove(job, step, stamp)
            return {}
    raise ProtocolError(f"nothing is called {what!r}")


def nameless_file() -> BinaryIO:
    """A file without a name: memory on Linux, an unlinked file elsewhere."""
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("elasticd-answer", os.MFD_CLOEXEC), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
