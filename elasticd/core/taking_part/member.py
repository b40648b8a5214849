"""A node's own part in one job: whether it should run here, and what is told of it.

It follows two masters. The job table says whether the job should run here at all; the leader of the
present view says which world the job's part on this node is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, assert_never

from elasticd.core.context import Context
from elasticd.core.engines.spares import SpareReducers
from elasticd.core.taking_part.adoption import AdoptedReducer, AdoptedTrainer
from elasticd.core.taking_part.answers import Answers
from elasticd.core.taking_part.crew import Crew
from elasticd.core.taking_part.elastic import Elastic
from elasticd.core.taking_part.looking import SecondLook
from elasticd.core.taking_part.part import Part
from elasticd.core.taking_part.reports import Reports
from elasticd.core.words.effects import EnsureArchive, FetchShards, ShardsFetched
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.shards import PullShards, ShardsFailed, ShardsWritten
from elasticd.core.words.worlds import (
    Discharge,
    Form,
    Freeze,
    MemberStatus,
    OfJob,
    Report,
    ToPart,
)
from elasticd.recovery import fitness
from elasticd.settings.job import JobSpec
from elasticd.types import Tag

_UNWANTED = "the node is being drained"


@dataclass(slots=True)
class Member:
    ctx: Context
    record: JobRecord
    reducers: SpareReducers
    reports: Reports = field(init=False)
    part: Part = field(init=False)
    archive: Literal["wanted", "asked", "ready", "failed"] = "wanted"
    """The job's files here."""
    archive_at: float = 0.0
    no_archive: str = ""
    """Why the job's files are not here, as far as is known while they are asked for again."""
    ended: bool = False
    unwanted: str = ""
    """Why the job is not to run on this node."""
    short: bool = True
    """Too few nodes are known to be there: nothing is started until there are more. Of a job that
    goes on with children of a daemon before us nothing is known at first."""
    look: SecondLook = field(default_factory=SecondLook)
    let_go: bool = False
    """The world runs without us, and our trainer has ended."""

    def __post_init__(self) -> None:
        ctx, job, spec = self.ctx, self.record.id, JobSpec.from_dict(self.record.spec)
        self.reports = reports = Reports(ctx, job, self._status)
        reports.begin_anew(fitness.turn_of(self.record.unfit, ctx.me))
        crew, answers = Crew(ctx, job), Answers(ctx, job)
        self.part = Elastic(ctx, spec, reports, self.reducers, self.look, crew, answers)

    @property
    def world(self) -> World | None:
        """The newest world that this node was made a member of, also after it has left it."""
        return self.reports.world

    @property
    def trouble(self) -> str:
        """Why nothing can run here."""
        own = self._script_fails
        return own.splitlines()[-1] if own else self.no_archive or self.ctx.station.idle

    @property
    def _script_fails(self) -> str:
        failing = self.part.failing.reason if self.part.failing is not None else ""
        return self.part.fatal or failing

    @property
    def _left_out(self) -> bool:
        """The job goes on without this node."""
        return self.ctx.me in fitness.left_out(self.record.unfit)

    # --- what should run here ---------------------------------------------------------------------

    def attend(self, record: JobRecord, unwanted: bool, short: bool) -> None:
        """Bring the node in line with the job's record, with what operators want of it, and with
        whether too few nodes are known to be there for the job (``short``)."""
        me, turn = self.ctx.me, fitness.turn_of(record.unfit, self.ctx.me)
        why = _UNWANTED if unwanted else fitness.left_out(record.unfit).get(me, "")
        why = why if self.ctx.station.trains else self.ctx.station.idle
        news = (self.record, self.unwanted, self.short) != (record, why, short)
        news = news or (self.archive == "wanted" and self.ctx.station.trains)
        self.record, self.unwanted, self.short = record, why, short
        if turn > self.reports.tried and not self._left_out:
            self.reports.begin_anew(turn)
            self.part.renew("the node is tried again")
            self.reports.report()
        if news:
            self.look.again()
        self._look()
        self._tick()
        self._look()

    def _look(self) -> None:
        if self.look.take():
            self._reconcile()
            self.part.answer()

    def _reconcile(self) -> None:
        """Bring the children in line with the job's record."""
        if self.record.ended or self.record.state == "queued":
            self._end()
            return
        if self.record.state != "running":
            return
        if self._left_out or not self.ctx.station.trains:
            self._may_run()
            return
        if self._script_fails:
            return
        if self.archive == "wanted":
            self.archive = "asked"
            self.ctx.do(EnsureArchive(self.record))
        if self.archive == "ready" and self._may_run() and not self.short:
            self.part.run(self.record)

    def _may_run(self) -> bool:
        """False on a node that the job is not to run on, unless its trainer still takes part."""
        if not self.unwanted:
            self.let_go = False
            return True
        if self.part.stand_down(self.unwanted) and not self.let_go:
            self.let_go = True
            self.reports.report()
        return False

    def _discharge(self) -> None:
        """The world runs without us, and we are to leave."""
        busy = self.part.trains or self.part.is_asked
        if self.unwanted and (self._left_out or not busy):
            self.part.discharge(self.unwanted)
            self._may_run()

    @property
    def wants_reducer(self) -> bool:
        """Whether a world may have to be formed."""
        if not self.ctx.station.trains:
            return False
        if self.part.is_asked:
            return True
        runs = self.record.state == "running" and not self.trouble and self.archive == "ready"
        return runs and not self.let_go and self.part.wants_reducer

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            paused = self.record.state == "queued"
            self.part.end("job paused" if paused else f"job {self.record.state}")
            self.reports.close()

    def adopt(
        self, trainers: Sequence[AdoptedTrainer], reducers: Sequence[AdoptedReducer]
    ) -> set[int]:
        """Go on with children that a daemon before this one has started; returns those that are
        kept."""
        return self.part.adopt(trainers, reducers)

    # --- view and status --------------------------------------------------------------------------

    def follow(self, epoch: Tag) -> None:
        """A new view: tell its leader all we know."""
        self.part.new_view()
        self.reports.follow(epoch, self.part.trains, self.part.calls())

    def _status(self, epoch: Tag) -> MemberStatus:
        reports, part, reducer = self.reports, self.part, self.part.reducer()
        return MemberStatus(
            epoch=epoch,
            job=self.record.id,
            trainer=part.status(),
            trouble=self.trouble or part.why_none,
            hopeless=part.hopeless,
            fatal=part.fatal,
            world=reports.world,
            formed=part.formed,
            ready=part.ready,
            faults=tuple(reports.faults),
            committed=reports.committed,
            warm=self.reducers.warm() is not None,
            reducer_pid=self.reducers.pids.get(reducer) if reducer is not None else None,
            counter=self.ctx.counter,
            stored=reports.stored,
            domain=self.ctx.station.domain,
            hosts=self.ctx.reach.hosts,
            paths=self.ctx.reach.ways(),
            failing=part.failing,
            tried=reports.tried,
            chip=self.ctx.station.chip,
        )

    def on_ways(self, gather: bool) -> None:
        """Links changed: the leader chooses rings by them. With ``gather`` it is told of several at
        once, unless our engine needs one that is dead."""
        trouble = self.part.trouble()
        if not gather or trouble:
            self.reports.report()
        else:
            self.reports.gather()
        if trouble:
            self.reports.accuse("link_lost", trouble)

    # --- the leader's orders ----------------------------------------------------------------------

    def on_order(self, order: OfJob, epoch: Tag, bound: bool) -> None:
        """Of the leader of the view ``epoch``; ``bound``: we have promised a newer view."""
        if isinstance(order, ToPart):
            self.part.on_order(order)
            return
        match order:
            case Report():
                self.follow(epoch)
            case Freeze():
                if order.epoch == epoch:
                    self.part.on_freeze(order)
            case Form():
                if order.world.epoch == epoch and not bound:
                    self.part.on_form(order)
            case Discharge():
                self._discharge()
            case PullShards():
                self._pull(order)
            case _:
                assert_never(order)

    # --- the store --------------------------------------------------------------------------------

    def _pull(self, pull: PullShards) -> None:
        if not self.ctx.station.holds:
            self.reports.tell(pull.undone(self.ctx.station.idle, refused=True))
            return
        report = ShardsWritten(
            self.record.id, pull.generation, pull.lineage, pull.step, pull.stamp, pull.count,
            pull.shards, pull.digest, 0.0, 0.0, last=pull.last,
        )  # fmt: skip
        effect = FetchShards(
            self.record.id, pull.step, pull.stamp, pull.count, pull.shards, pull.sources, report
        )
        self.ctx.do(effect)

    def on_pulled(self, fetched: ShardsFetched) -> None:
        report, reason = fetched.report, fetched.reason
        if fetched.ok:
            self.reports.wrote(report)
            return
        self.ctx.log("warning", "shards could not be pulled", reason=reason)
        failed = ShardsFailed(
            report.job, report.generation, report.lineage, report.step, report.stamp,
            report.count, reason, fetched.refused, fetched.rotten,
        )  # fmt: skip
        self.reports.tell(failed)

    def on_archive(self, ok: bool, reason: str) -> None:
        self.archive = "ready" if ok else "failed"
        self.archive_at = self.ctx.now + self.ctx.timing.retry_seconds
        self.no_archive = "" if ok else f"the job's files could not be brought here: {reason}"
        self.look.again()
        self.reports.report()

    # --- time -------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self.ctx.now
        self.part.tick(self.let_go)
        if now >= self.reports.ways_at:
            self.reports.report()
        if self.archive == "failed" and now >= self.archive_at:
            self.archive = "wanted"
            self.look.again()

    def deadlines(self) -> list[float]:
        times = self.part.deadlines(self.let_go)
        if self.reports.ways_at < inf:
            times.append(self.reports.ways_at)
        if self.archive == "failed":
            times.append(self.archive_at)
        return times
