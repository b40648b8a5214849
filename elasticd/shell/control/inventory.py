"""The checkpoints of a job on all living nodes, and what the command line does with them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from elasticd.checkpoints import layout, summary
from elasticd.checkpoints.manifest import Stored
from elasticd.checkpoints.port import Problem, Store
from elasticd.checkpoints.retention import (
    Policy,
    missing,
    outlived,
    policies_of,
    prunable,
    superseded,
    useless,
)
from elasticd.checkpoints.summary import Row
from elasticd.core.words.limits import in_parts
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.checkpoints import (
    ListCheckpoints,
    OpenCheckpoint,
    PruneCheckpoints,
    VerifyCheckpoints,
)
from elasticd.errors import ElasticdError, OperationError, StateError, UsageError
from elasticd.settings.job import JobSpec
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.storage.scratch import Scratch
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId, Stamp

_THREADS = 8
"""Nodes that are asked at once; not the threads that answer such questions."""

_LOOKS = 3
"""How often a replica that seems to be missing is looked for, in all."""
_LOOK_SECONDS = 1.0
_SHOWN_STEPS = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Known:
    """What the nodes said of one job; ``failed`` are those that were asked and didn't, with the
    reason, ``away`` those that could not be asked and may have copies."""

    stored: dict[NodeId, tuple[Stored, ...]]
    failed: dict[NodeId, str]
    away: tuple[NodeId, ...]

    @property
    def silent(self) -> dict[NodeId, str]:
        """Of these nothing is known, for the reason given."""
        return {**self.failed, **dict.fromkeys(self.away, "it is away")}

    @property
    def rows(self) -> list[Row]:
        return summary.rows(self.stored)


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A replica that seems damaged; ``result`` says how."""

    node: NodeId
    row: Row
    index: int
    result: dict[str, Any]

    @property
    def was_there(self) -> bool:
        """It was read; otherwise it was missing."""
        return self.node in self.row.present[self.index]

    def is_over(self, row: Row, outlived: Collection[Row]) -> bool:
        """The node has removed the checkpoint while it was looked at, or before. ``row`` is what
        there is of it now, ``outlived`` what no policy keeps on that node now."""
        return self.node not in row.nodes and (self.node in self.row.nodes or row in outlived)


class Inventory:
    """Handlers of the ``checkpoint…`` requests of docs/protocols.md §3."""

    def __init__(
        self,
        states: States,
        nodes: Callable[[], Sequence[NodeId]],
        holders: Callable[[], Collection[NodeId]],
        record_of: Callable[[JobId], JobRecord | None],
        told: Callable[..., Awaitable[list[dict[str, Any]]]],
        read: Callable[[NodeId, JobId, int, Stamp, int], Awaitable[list[Problem]]],
        scratch: Scratch,
    ) -> None:
        """``nodes``: all that answer now, this one too; ``holders``: all that may have copies, here
        or away; ``told``: a job's events of the named kinds; ``read``: has a node read a shard."""
        self._states, self._nodes, self._holders = states, nodes, holders
        self._record_of, self._told = record_of, told
        self._read, self._scratch = read, scratch
        self._threads = ThreadPoolExecutor(_THREADS, "checkpoints")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def handlers(self) -> Handlers:
        return {
            **on(ListCheckpoints, self.show),
            **on(VerifyCheckpoints, self.verify),
            **on(OpenCheckpoint, self.open),
            **on(PruneCheckpoints, self.prune),
        }

    # --- requests -------------------------------------------------------------------------------

    async def show(self, request: ListCheckpoints, stream: Stream) -> dict[str, Any]:
        """All checkpoints of a job, by step."""
        job = request.job
        known = await self._known(job)
        told = await _told(stream, request.parts, checkpoints=known.rows)
        return {"job": job, **told, "silent": known.silent}

    async def verify(self, request: VerifyCheckpoints, stream: Stream) -> None:
        """Read every replica of every shard, the nodes beside one another; a frame for each.

        What a node has removed is no damage, before we look or while we do, though another has it
        yet. Nor is what was never completed, which the first frame names.
        """
        job = request.job
        known = await self._known(job)
        chosen = _chosen(known.rows, request.step)
        begun = await self._never_completed(job, known)
        rows = [row for row in chosen if row not in begun]
        policies = self._policies(job, {})
        total = sum(len(nodes) for row in rows for nodes in row.present)
        never = [_named(row) for row in chosen if row in begun]
        await stream.send({
            "replicas": total,
            "silent": known.silent,
            "never_completed": never,
            "unreadable": await self._unreadable(job, known, request.step),
        })  # fmt: skip
        results: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(100)
        doubts: list[_Doubt] = []

        async def check(node: NodeId) -> None:
            for row in rows:
                for index in range(row.manifest.count):
                    if node in row.present[index]:
                        result = await self._check(node, row, index)
                        if result["ok"]:
                            await results.put(result)
                        else:
                            doubts.append(_Doubt(node, row, index, result))
            for row, index in missing(known.rows, policies, node):
                if row in rows:
                    result = _result(node, row, index, "is missing or has the wrong size")
                    doubts.append(_Doubt(node, row, index, result))

        async def check_all() -> None:
            try:
                await asyncio.gather(*(check(node) for node in known.stored))
                async for result in self._settled(job, doubts, policies):
                    await results.put(result)
            except Exception:
                await results.put(None)  # who asks hears of it
                raise
            await results.put(None)

        work = asyncio.create_task(check_all())
        try:
            while (result := await results.get()) is not None:
                await stream.send(result)
            await work
        finally:
            work.cancel()

    async def open(self, request: OpenCheckpoint, stream: Stream) -> None:
        """Bring all shards of a checkpoint to this machine and keep them until the client is done.

        The newest consistent one, or that of ``step``. Frames of progress, then one with ``files``;
        the client answers it when it has read them.
        """
        async with contextlib.AsyncExitStack() as brought:
            for left in reversed(range(_LOOKS)):
                row = newest((await self._known(request.job)).rows, request)
                try:
                    files = await brought.enter_async_context(self._brought(row, stream))
                    break
                except (OperationError, StateError):
                    # Beside a job that trains it may be gone meanwhile, for a newer one.
                    if not left or row in (await self._gather(request.job)).rows:
                        raise
            await stream.send({"checkpoint": row.plain(), "files": files})
            # A client that dies hangs up, which cancels this handler.
            await stream.receive(seconds=None)

    async def prune(self, request: PruneCheckpoints, stream: Stream) -> dict[str, Any]:
        """Remove what no policy keeps; never the newest consistent one of a line. A silent node may
        bring some back."""
        job = request.job
        known = await self._known(job)
        said = {
            "keep": request.keep,
            "keep_every_steps": request.keep_every_steps,
            "keep_hours": request.keep_hours,
        }
        policies = self._policies(job, {k: v for k, v in said.items() if v is not None})
        consistent = [row.manifest for row in known.rows if row.consistent]
        points = {m.point for m in prunable(consistent, policies)}
        announced = self._states.retaining.announced(job)
        spare = superseded(known.rows, announced)
        gone = [row for row in spare if row.consistent and row.manifest.point in points]
        never = await self._never_completed(job, known)
        # A node that is away may know that it was announced.
        lost = [row for row in never if set(row.absent) <= known.stored.keys()]
        lost += useless(known.rows, known.stored, announced)
        gone += [row for row in known.rows if not known.failed and row in lost and row not in gone]
        failures: list[str] = []
        if not request.dry_run:
            for row in tuple(gone):
                if failed := [*await self._remove(row), *_may_stay(row, known.silent)]:
                    failures += failed
                    gone.remove(row)
            await self._states.changed(job)
        rest = [row for row in known.rows if row not in gone]
        return {
            "job": job,
            "dry_run": request.dry_run,
            **await _told(stream, request.parts, removed=gone, kept=rest),
            "failures": failures,
            "silent": known.silent,
        }

    # --- inside ---------------------------------------------------------------------------------

    async def _known(self, job: JobId) -> Known:
        known = await self._gather(job)
        if self._record_of(job) is None and not any(known.stored.values()):
            raise OperationError(f"no job {job}")
        return known

    async def _gather(self, job: JobId) -> Known:
        nodes = sorted(self._nodes())

        async def ask(node: NodeId) -> tuple[Stored, ...] | ElasticdError:
            try:
                return tuple(await self._in_thread(self._store(node).stored, job))
            except ElasticdError as error:
                return error

        answers = await asyncio.gather(*(ask(node) for node in nodes))
        pairs = list(zip(nodes, answers, strict=True))
        return Known(
            {node: said for node, said in pairs if isinstance(said, tuple)},
            {node: str(said) for node, said in pairs if not isinstance(said, tuple)},
            tuple(sorted(set(self._holders()).difference(nodes))),
        )

    def _store(self, node: NodeId) -> Store:
        return self._states.store_of(node)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    async def _check(self, node: NodeId, row: Row, index: int) -> dict[str, Any]:
        m = row.manifest
        reason = ""
        try:
            problems = await self._read(node, m.job, m.step, m.stamp, index)
            reason = "; ".join(problem.reason for problem in problems)
        except ElasticdError as error:
            reason = str(error)
        return _result(node, row, index, reason)

    async def _coming(self, doubt: _Doubt) -> bool:
        """The shard is there, and the checkpoint not final on that node yet."""
        m = doubt.row.manifest
        with contextlib.suppress(ElasticdError):
            coming = await self._in_thread(
                self._store(doubt.node).coming, m.job, m.step, m.stamp, m.count
            )
            return doubt.index in coming
        return False

    async def _settled(
        self, job: JobId, doubts: list[_Doubt], policies: Collection[Policy]
    ) -> AsyncIterator[dict[str, Any]]:
        """What becomes of doubts: beside a job that trains a checkpoint may have been on its way to
        a node that was asked early, or may be gone by now."""
        for look in itertools.count():
            if not doubts:
                return
            await asyncio.sleep(_LOOK_SECONDS if look else 0.0)
            known = await self._gather(job)
            listed = known.rows
            rows = {_key(row): row for row in listed}
            gone = {node: outlived(listed, policies, node) for node in known.stored}
            fresh, waiting = list[_Doubt](), list[_Doubt]()
            for doubt in doubts:
                row = rows.get(_key(doubt.row))
                if doubt.node not in known.stored:
                    waiting.append(doubt)
                elif row is None or doubt.is_over(row, gone[doubt.node]):
                    continue
                elif doubt.was_there:
                    yield doubt.result
                elif doubt.node in row.present[doubt.index]:
                    result = await self._check(doubt.node, row, doubt.index)
                    if result["ok"]:
                        yield result
                    else:
                        fresh.append(replace(doubt, row=row, result=result))
                elif not await self._coming(doubt):
                    waiting.append(doubt)
            if look + 1 >= _LOOKS:
                for doubt in waiting:
                    yield doubt.result
                waiting = []
            doubts = fresh + waiting

    @contextlib.asynccontextmanager
    async def _brought(self, row: Row, stream: Stream) -> AsyncIterator[list[list[str]]]:
        """Files with all shards of a checkpoint, and their digests; the checkpoint stays here as
        long."""
        m, files = row.manifest, list[list[str]]()
        with self._states.pins.held(m.job, m.step, m.stamp), self._scratch.folder() as at:
            for index, shard in enumerate(m.shards):
                path = await self._file(row, index, at)
                files.append([str(path), shard.digest])
                await stream.send({"shard": index, "shards": m.count})
            yield files

    async def _file(self, row: Row, index: int, scratch: Path) -> Path:
        """A file with a shard whose digest is right: ours if it is, else a peer's."""
        m = row.manifest
        local = self._states.store
        if self._states.me in row.present[index]:
            result = await self._check(self._states.me, row, index)
            if result["ok"]:
                return local.folder(m.job) / layout.final_name(m.step, m.stamp) / layout.shard_name(
                    index, m.count
                )  # fmt: skip
        path = scratch / layout.shard_name(index, m.count)
        await self._states.copies.pull_to(path, m, index, row.present[index])
        return path

    async def _unreadable(self, job: JobId, known: Known, step: int | None) -> list[dict[str, Any]]:
        names = dict[NodeId, list[str]]()
        for node in known.stored:
            with contextlib.suppress(ElasticdError):
                names[node] = await self._in_thread(self._store(node).unreadable, job)
        return _torn(known.rows, names, step)

    async def _never_completed(self, job: JobId, known: Known) -> list[Row]:
        """As far as the job's history is known from its beginning."""
        announced = None
        events = await self._told(job, "job_submitted", "checkpoint_committed")
        if any(event["kind"] == "job_submitted" for event in events):
            stored = (event for event in events if event["kind"] == "checkpoint_committed")
            announced = {(event["generation"], event["step"]) for event in stored}
        return summary.never_completed(known.rows, announced)

    def _policies(self, job: JobId, given: Mapping[str, float]) -> list[Policy]:
        """Those of the job; ``given`` wins."""
        record = self._record_of(job)
        spec = JobSpec.from_dict(record.spec).checkpoint if record is not None else None
        if not all(value >= 0 for value in given.values()):
            raise UsageError("what is kept is given as numbers from 0 up")
        return policies_of(spec, given)

    async def _remove(self, row: Row) -> list[str]:
        m = row.manifest
        failures = []
        for node in row.nodes:
            try:
                await self._in_thread(self._store(node).remove, m.job, m.step, m.stamp)
            except ElasticdError as error:
                said = str(error).removeprefix(f"{node}: ")
                failures.append(f"step {m.step} stays on {node}: {said}")
        return failures


async def _told(
    stream: Stream, parts: bool | None, **lists: Sequence[Row]
) -> dict[str, list[dict[str, Any]]]:
    """Lists for the answer, in plain maps: what of each is left for it where it may come in parts,
    once those before are sent."""
    left: dict[str, list[dict[str, Any]]] = {}
    for name, rows in lists.items():
        left[name] = []
        for part in in_parts(row.plain() for row in rows):
            if parts and left[name]:
                await stream.send({name: left[name], "more": True})
                left[name] = []
            left[name] += part
    return left


def _chosen(rows: list[Row], step: int | None) -> list[Row]:
    if step is None:
        return rows
    chosen = [row for row in rows if row.manifest.step == step]
    if not chosen:
        raise OperationError(f"there is no checkpoint of step {step}{_steps(rows)}")
    return chosen


def _steps(rows: list[Row]) -> str:
    """Which ones there are instead, to be added to an error."""
    steps = [str(step) for step in sorted({row.manifest.step for row in rows})]
    if not steps:
        return ""
    older = "…, " if len(steps) > _SHOWN_STEPS else ""
    return f"; there are those of step {older}{', '.join(steps[-_SHOWN_STEPS:])}"


def newest(rows: list[Row], asked: OpenCheckpoint) -> Row:
    """The newest consistent one of those that are meant."""
    if (lineage := asked.lineage) is not None:
        lineages = sorted({row.manifest.lineage for row in rows})
        rows = [row for row in rows if row.manifest.lineage == lineage]
        if not rows:
            there = f"; there are those of {', '.join(lineages)}" if lineages else ""
            raise OperationError(f"{asked.job} has no checkpoint of lineage {lineage}{there}")
    found = [row for row in _chosen(rows, asked.step) if row.consistent]
    if not found:
        which = f"step {asked.step} has" if asked.step is not None else "has"
        whole = _steps([row for row in rows if row.consistent])
        raise OperationError(
            f"{asked.job} {which} no consistent checkpoint on the living nodes{whole}"
        )
    return max(found, key=lambda row: (row.manifest.step, row.manifest.lineage))


def _may_stay(row: Row, silent: Mapping[NodeId, str]) -> list[str]:
    step, named = row.manifest.step, (node for node in row.absent if node in silent)
    return [
        f"step {step} may stay on {node} ({silent[node]}): prune again once it answers"
        for node in named
    ]


def _named(row: Row) -> dict[str, Any]:
    m = row.manifest
    return {"step": m.step, "lineage": m.lineage, "on": list(row.nodes)}


def _key(row: Row) -> tuple[object, ...]:
    return row.manifest.point, row.manifest.shards


def _result(node: NodeId, row: Row, index: int, reason: str) -> dict[str, Any]:
    m = row.manifest
    return {
        "node": node,
        "step": m.step,
        "lineage": m.lineage,
        "shard": index,
        "shards": m.count,
        "bytes": m.shards[index].bytes,
        "ok": not reason,
        "reason": reason or None,
    }


def _torn(
    rows: Sequence[Row], names: Mapping[NodeId, Sequence[str]], step: int | None
) -> list[dict[str, Any]]:
    """Where checkpoints are, of all or of ``step``, of which nobody has a readable manifest, given
    the folders in which each node has none."""
    known = {layout.final_name(row.manifest.step, row.manifest.stamp) for row in rows}
    found = []
    for node, name in [(at, name) for at, its in names.items() for name in its]:
        of_step, *_ = layout.parse_folder(name) or (-1,)
        if name not in known and of_step >= 0 and step in (None, of_step):
            found.append({"node": node, "step": of_step})
    return found
