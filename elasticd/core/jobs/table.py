"""The job table: every node's records of all jobs, merged by union, and what operators ask of them.

A request is answered when every member of the view has the record on its disk, so that it survives
the loss of the node that it was given to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.core.context import Context
from elasticd.core.jobs.ended import MANY, EndedJobs
from elasticd.core.words import effects as e
from elasticd.core.words.limits import in_parts
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.ends import Failed
from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.requests.jobs import JobChanged, JobRetried, Submitted
from elasticd.core.words.tables import Jobs, JobsKept
from elasticd.errors import OperationError
from elasticd.recovery import fitness
from elasticd.types import JobId, NodeId

TOLD_AT_ONCE = 64
"""Of the ended jobs that a node lacks; it is told of more when it has taken these in."""
ACCOUNT = (
    "generation", "loss", "values", "recoveries", "lost_steps", "exact", "exact_reason",
    "updates_on_cpu", "bytes_per_step", "fast_bytes_per_step", "digest", "digest_step",
    "quarantined", "restarts",
)  # fmt: skip
"""Of a summary: what is kept of a job that rests or has ended."""
_ENDS = {"failed": "failed", "finished": "finished", "cancelled": "was cancelled"}


def account_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a record keeps of it."""
    return {key: summary[key] for key in ACCOUNT if key in summary}


def how_ended(record: JobRecord) -> str:
    """What is said to who wants something of a job that has ended."""
    return f"{record.id} has ended: it {_ENDS[record.state]}"


@dataclass(slots=True)
class PendingAnswer:
    """A client's request that is answered when every member has the record on disk."""

    request: int
    job: JobId
    nodes: set[NodeId]
    body: Outcome


@dataclass(slots=True)
class JobTable:
    """``near`` gives the nodes that news are sent to, ``members`` those of the view (none without
    one)."""

    ctx: Context
    near: Callable[[], Sequence[NodeId]]
    members: Callable[[], Sequence[NodeId]]
    records: dict[JobId, JobRecord] = field(default_factory=dict)
    waiting: list[PendingAnswer] = field(default_factory=list)
    many: int = MANY
    """So many ended jobs are not told unasked any more, only their digests."""
    live: dict[JobId, JobRecord] = field(init=False, default_factory=dict)
    """Those that have not ended."""
    ended: EndedJobs = field(init=False, default_factory=EndedJobs)
    elders: set[NodeId] = field(init=False, default_factory=set)
    """Nodes whose daemons know no digests."""
    lacking: dict[NodeId, list[JobId]] = field(init=False, default_factory=dict)
    """Of which ended jobs each node has asked to be told, the next one last; the very last is one
    that it was told and has not taken in yet."""
    heard: set[JobId] = field(init=False, default_factory=set)
    """Jobs of which this daemon has heard from another node, or from an operator."""

    def __post_init__(self) -> None:
        self.records = {job: record.bounded() for job, record in self.records.items()}
        for record in self.records.values():
            self._file(record)
        # While nobody waits for this node: there may be thousands.
        self.ended.digests()

    # --- operators --------------------------------------------------------------------------------

    def submit(self, request: int, record: JobRecord) -> None:
        """Take a job; one that is known was submitted before, and its answer may have been lost."""
        if record.id not in self.records:
            self.heard.add(record.id)
            self.update(record)
            name = record.spec["job"]["name"]
            text, said = f"{record.id} was submitted", dict[str, Any](name=name)
            if record.submitter:
                text, said = f"{text} by {record.submitter}", {**said, "account": record.submitter}
            self.ctx.emit("job_submitted", text, record.id, **said)
        self._answer_when_kept(request, record.id, Submitted(record.id))

    def cancel(self, request: int, job: JobId, summary: Mapping[str, Any]) -> None:
        """``summary`` is what the job's leader told last. That it has ended is no error: who got
        no answer asks again."""
        record = self.records.get(job)
        if record is None:
            self.ctx.do(e.Reply(request, Failed(f"no job {job}")))
            return
        if record.ended:
            self.ctx.do(e.Reply(request, JobChanged(job, record.state, already=True)))
            return
        step = max(record.step, summary.get("step", 0))
        # Of one that rests the record has all, and a daemon that began anew less.
        kept, told = record.account, account_of(summary)
        account = {**told, **kept} if record.state == "queued" else {**kept, **told}
        ended = replace(record, state="cancelled", reason="cancelled by the user")
        self.update(replace(ended, step=step, account=account))
        self.ctx.emit("job_cancelled", "cancelled by the user", job)
        self._answer_when_kept(request, job, JobChanged(job, "cancelled"))

    def forget(self, request: int, job: JobId) -> None:
        record = self.records.get(job)
        if record is None:
            self.ctx.do(e.Reply(request, Failed(f"no job {job}")))
            return
        if not record.ended:
            text = f"{job} has not ended; end it first: elasticctl cancel {job}"
            self.ctx.do(e.Reply(request, Failed(text)))
            return
        self.update(replace(record, forgotten=True))
        self._answer_when_kept(request, job, JobChanged(job, "forgotten"))

    def discard(self, jobs: Iterable[JobId]) -> None:
        """Forget those that have ended. There may be hundreds: the others hear of them at once."""
        known = [record for job in jobs if (record := self.records.get(job)) is not None]
        self.update(*(replace(record, forgotten=True) for record in known if record.ended))

    def pause(self, request: int, job: JobId, paused: bool) -> None:
        """Pause or resume a job; it stays as it is if that is what it was asked to be already."""
        record = self._unended(request, job)
        if record is None:
            return
        # Said again it rises too: on the other side of a partition the opposite may have been said.
        intent = record.intent + 1 + (record.paused == paused)
        # Who has it at rest already, and nobody has heard of that, is to hear that it goes on.
        turn = record.turn + (record.state == "running" and not paused)
        self.update(replace(record, intent=intent, turn=turn))
        if record.paused != paused:
            kind, text = ("job_pausing", "paused") if paused else ("job_resumed", "resumed")
            self.ctx.emit(kind, f"{text} by the user", job)
        state = "paused" if paused else record.state
        self._answer_when_kept(request, job, JobChanged(job, state))

    def retry(self, request: int, job: JobId, memory: bool = False) -> None:
        """Try the nodes again that the job goes on without; with ``memory`` also to do without
        relief."""
        record = self._unended(request, job)
        if record is None:
            return
        nodes = tuple(fitness.left_out(record.unfit))
        level = record.relief if memory else 0
        if memory:
            # Also if nothing is given up here: on the other side of a partition something may be.
            record = replace(record, relief=0, relief_turn=record.relief_turn + 1)
            self.update(record)
        self.update(_retried(record, nodes))
        self._answer_when_kept(request, job, JobRetried(job, nodes, level))

    def _unended(self, request: int, job: JobId) -> JobRecord | None:
        """The job's record; None, and the request is answered, if there is none or it has ended."""
        record = self.records.get(job)
        if record is None:
            self.ctx.do(e.Reply(request, Failed(f"no job {job}")))
        elif record.ended:
            self.ctx.do(e.Reply(request, Failed(how_ended(record))))
        else:
            return record
        return None

    def begins(self) -> None:
        """The daemon has just been started: what kept jobs from this node may have passed."""
        for record in list(self.live.values()):
            self.update(_retried(record, [self.ctx.me]))

    def _answer_when_kept(self, request: int, job: JobId, body: Outcome) -> None:
        nodes = {node for node in self.members() if node != self.ctx.me}
        # They say that they keep it also if it is no news to them.
        for node in sorted(nodes):
            self.ctx.send(node, Jobs((self.records[job],), ()))
        self.waiting.append(PendingAnswer(request, job, nodes, body))

    def answer(self) -> None:
        """Answer the requests that no living member of the view stands against any more."""
        if not self.waiting:
            return
        members = set(self.members())
        for waiting in list(self.waiting):
            if not waiting.nodes & members:
                self.waiting.remove(waiting)
                self.ctx.do(e.Reply(waiting.request, waiting.body))

    # --- other nodes ------------------------------------------------------------------------------

    def on_jobs(self, node: NodeId, told: Jobs) -> None:
        """Another node told of jobs, or asks for some."""
        if told.digests is None and node not in self.elders:
            self.elders.add(node)
            self.share([node])
        elif told.digests is not None:
            self.elders.discard(node)
        self._take(node, told)
        if told.digests and (wanted := self.ended.differing(told.digests)):
            self.ctx.send(node, Jobs((), (), wanted))
        if told.wanted:
            self.lacking[node] = self.ended.jobs(told.wanted)[::-1]
            self._tell_lacking(node)

    def _take(self, node: NodeId, told: Jobs) -> None:
        if not told.records:
            return
        news = self._news(told.records)
        if news and not told.asked:
            self._spread(news)
        self._meet(told.records)
        # Who tells of a job keeps it: its own answer to us may have been lost.
        kept = tuple(record.id for record in told.records)
        self.on_kept(node, kept)
        self.ctx.send(node, JobsKept(kept))
        # It may not have heard of an end that is too old to be told unasked.
        mine = [self.records[r.id] for r in told.records if not r.ended]
        self._tell(node, [record for record in mine if record.ended])

    def _meet(self, records: Iterable[JobRecord]) -> None:
        """Jobs of which others tell for the first time since the daemon was started: its journal
        may have lost that they go on without this node, as :meth:`begins` knows it otherwise. Jobs
        that are new may know from the start that they do without it."""
        new = [r.id for r in records if not r.ended and r.id not in self.heard]
        self.heard.update(new)
        for job in new:
            record = self.records[job]
            self.update(replace(record, unfit=fitness.heard(record.unfit, self.ctx.me)))

    def _tell(self, node: NodeId, records: Sequence[JobRecord]) -> None:
        for part in in_parts(records):
            self.ctx.send(node, Jobs(part, (), asked=True))

    def _tell_lacking(self, node: NodeId) -> None:
        """Some of it. There may be thousands, and to say so many at once takes seconds."""
        left = self.lacking[node]
        told = next(in_parts(self.records[job] for job in left[: -TOLD_AT_ONCE - 1 : -1]), ())
        del left[len(left) - len(told) :]
        if not told:
            del self.lacking[node]
            return
        left.append(told[-1].id)
        self.ctx.send(node, Jobs(told, (), asked=True))

    def on_kept(self, node: NodeId, jobs: Sequence[JobId]) -> None:
        """What a node has of these jobs is on its disk."""
        if (left := self.lacking.get(node)) and left[-1] in jobs:
            left.pop()
            self._tell_lacking(node)
        for waiting in self.waiting:
            if waiting.job in jobs:
                waiting.nodes.discard(node)

    def known(self, job: JobId) -> JobRecord:
        """The record of a job that nobody has forgotten.

        Raises:
            OperationError: there is none.
        """
        record = self.records.get(job)
        if record is None or record.forgotten:
            raise OperationError(f"no job {job}" + (": it was forgotten" if record else ""))
        return record

    def share(self, nodes: Sequence[NodeId]) -> None:
        """Tell nodes of all jobs; of ended ones only the digests, if there are many."""
        if not self.records:
            return
        short = self.ended.count >= self.many
        whole: list[tuple[JobRecord, ...]] | None = None
        for node in nodes:
            if short and node not in self.elders:
                # One record with them: who knows no digests, and has nothing to tell, tells it on.
                one = self.records[self.ended.one()]
                self.ctx.send(node, Jobs((one,), self.ended.digests()))
                for part in in_parts(self.live[job] for job in sorted(self.live)):
                    self.ctx.send(node, Jobs(part, ()))
                continue
            if whole is None:
                whole = list(in_parts(self.records[job] for job in sorted(self.records)))
            for part in whole:
                self.ctx.send(node, Jobs(part, ()))

    # --- the records ------------------------------------------------------------------------------

    def follow(self) -> None:
        """A new view: its members are about to be told of every job."""
        for record in list(self.live.values()):
            self._merge(record)

    def update(self, *records: JobRecord) -> None:
        """Merge records into the table; keep what is news, and tell it to the others."""
        if news := self._news(records):
            self._spread(news)

    def _news(self, records: Iterable[JobRecord]) -> list[JobRecord]:
        """What these records told, as it is kept now."""
        return [merged for record in records if (merged := self._merge(record)) is not None]

    def _merge(self, record: JobRecord) -> JobRecord | None:
        """The record as it is kept now; None: it is no news."""
        known, record = self.records.get(record.id), record.bounded()
        merged = self._offered(record if known is None else known.merged(record))
        if merged == known:
            return None
        self.records[record.id] = merged
        self._file(merged)
        self.ctx.persist("job", merged)
        return merged

    def _offered(self, record: JobRecord) -> JobRecord:
        if record.ended:
            return record
        nodes = {*record.offered, *self.members(), self.ctx.me}
        return replace(record, offered=tuple(sorted(nodes)))

    def _file(self, record: JobRecord) -> None:
        if record.ended:
            self.live.pop(record.id, None)
            self.heard.discard(record.id)
            self.ended.keep(record)
            self.ctx.over(record.id)
        else:
            self.live[record.id] = record

    def _spread(self, news: Sequence[JobRecord]) -> None:
        for node in self.near():
            if node != self.ctx.me:
                for part in in_parts(news):
                    self.ctx.send(node, Jobs(part, ()))

    def all(self) -> list[JobRecord]:
        """All jobs in the order in which they were or will be run."""
        return _in_order(self.records.values())

    def queue(self) -> list[JobRecord]:
        """Those that have not ended, in that order."""
        return _in_order(self.live.values())

    def runnable(self) -> list[JobRecord]:
        """Those that wait for their turn, in its order."""
        return [r for r in self.queue() if r.state == "queued" and not r.paused]


def _retried(record: JobRecord, nodes: Sequence[NodeId]) -> JobRecord:
    return replace(record, unfit=fitness.again(record.unfit, nodes))


def _in_order(records: Iterable[JobRecord]) -> list[JobRecord]:
    return sorted(records, key=lambda r: (-r.priority, r.number, r.id))
