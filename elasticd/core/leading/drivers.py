"""The leader's drivers, one for each job that runs: begun by the queue's order, ended with records.

On a node that does not lead there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from elasticd.core.context import Context
from elasticd.core.jobs.nodes import NodeTable
from elasticd.core.jobs.table import JobTable, account_of
from elasticd.core.leading.leader import Driver
from elasticd.core.leading.phases.moves import Outcome, Rest
from elasticd.core.leading.turns import NodesThere, Turns, obstacle, waits_for
from elasticd.core.words.records import JobRecord, JobState, View, World
from elasticd.core.words.worlds import Report, ToLeader
from elasticd.types import JobId, NodeId


@dataclass(slots=True)
class Drivers:
    ctx: Context
    jobs: JobTable
    nodes: NodeTable
    by_job: dict[JobId, Driver] = field(default_factory=dict)
    turns: Turns = field(init=False)

    def __post_init__(self) -> None:
        timing = self.ctx.timing
        self.turns = Turns(timing.restore_seconds, timing.yield_seconds)

    def schedule(self, view: View) -> None:
        """Run the first job of the queue that can run, if none does."""
        nodes, waiting = self._there(view.members), self.jobs.runnable()
        running = [record for record in self.jobs.queue() if record.state == "running"]
        for other in running[1:]:  # two sides of a cut had come to different turns
            self._put_back(other, f"it yielded its turn to {running[0].id}")
        first = running[0] if running else None
        driver = self.by_job.get(first.id) if first is not None else None
        stall = driver.stall if driver is not None else None
        if first is not None and (why := self.turns.yields(self.ctx.now, stall, waiting, nodes)):
            self.turns.yielded(self.ctx.now, first, nodes)
            self._put_back(first, why)
            first = None
        if first is None and (chosen := self.turns.first(self.ctx.now, waiting, nodes)) is not None:
            # What is known of its course is its leader's to tell from now on.
            first = replace(chosen, state="running", turn=chosen.turn + 1, reason=None, account={})
            self.jobs.update(first)
        if first is not None and first.id not in self.by_job:
            self.by_job[first.id] = Driver.of(self.ctx, first, view)
            self._want(first.id)
            for node in view.members:
                self.ctx.send(node, Report(first.id))

    def waits_for(self, record: JobRecord, members: Sequence[NodeId]) -> str:
        """Behind whom a queued job waits, and for which nodes."""
        if record.state != "queued":
            return ""
        return waits_for(record, self.jobs.queue(), self._there(members))

    def obstacle(self, record: JobRecord, members: Sequence[NodeId]) -> str:
        """Why a job can't run on these nodes, or nothing."""
        return obstacle(record, self._there(members))

    def _there(self, members: Sequence[NodeId]) -> NodesThere:
        standing = self.nodes.standing()
        return NodesThere(members, standing.unwanted, standing.idle)

    def _put_back(self, record: JobRecord, why: str) -> None:
        """Its trainers end; it goes on from its newest checkpoint when its turn comes again."""
        if (driver := self.by_job.pop(record.id, None)) is not None:
            driver.summarise(at_once=True)
            if (world := driver.world) is not None:
                # That its trainers are not there when it comes back is nobody's fault.
                record = replace(record, step=driver.committed, rested=str(world.generation))
        self.jobs.update(replace(record, state="queued", turn=record.turn + 1, reason=why))
        self.ctx.emit("job_yielded", why, record.id)

    def drop(self) -> None:
        """We lead no more."""
        self.by_job.clear()
        self.turns.forget()

    def on_view(self, view: View, reborn: tuple[NodeId, ...], missed: tuple[NodeId, ...]) -> None:
        """We lead this view, too."""
        for job, driver in self.by_job.items():
            self._want(job)
            driver.on_view(view, reborn, missed)

    def dealt(self) -> list[tuple[World, int]]:
        """The newest world of each job, with the grains that its shares deal."""
        worlds = [(driver, driver.world) for driver in self.by_job.values()]
        return [(w, driver.cut_of(w).grains) for driver, w in worlds if w is not None]

    def deadlines(self) -> list[float]:
        drivers = self.by_job.values()
        times = [time for driver in drivers for time in self.turns.deadlines(driver.stall)]
        return [*times, *(time for driver in drivers for time in driver.deadlines())]

    def tick(self) -> None:
        for job, driver in self.by_job.items():
            self._want(job)
            driver.tick()
            driver.summarise()

    def _want(self, job: JobId) -> None:
        record = self.jobs.records[job]
        away = self.nodes.away({*record.offered, *record.served})
        self.by_job[job].want(record, away, self.nodes.standing())

    def keep_records(self) -> None:
        """What the drivers decided goes into the jobs' records."""
        for job in list(self.by_job):
            driver, record = self.by_job[job], self.jobs.records[job]
            if (relieved := driver.relieved(record)) != record:
                self.jobs.update(relieved)
            driver.recall(record)
            if (historied := driver.historied(record)) != record:
                self.jobs.update(historied)
                driver.recall(self.jobs.records[job])
            if not record.ended:
                self._end(job, driver)
            if self.jobs.records[job].ended:
                self._keep_account(job, driver)
            if self.jobs.records[job].state != "running":
                driver.summarise(at_once=True)
                del self.by_job[job]
                self.turns.forget()

    def _end(self, job: JobId, driver: Driver) -> None:
        """What has become of the job, if it runs no more."""
        match driver.end:
            case None:
                pass
            case Outcome(state, reason):
                self._over(job, driver, state, reason)
            case Rest() as rest:
                self._rest(job, driver, rest)
            case _:
                assert_never(driver.end)

    def _rest(self, job: JobId, driver: Driver, rest: Rest) -> None:
        """A job that was paused has come to rest; the next one of the queue may run."""
        record = self.jobs.records[job]
        if record.state == "running":
            self.jobs.update(
                replace(
                    record, state="queued", turn=record.turn + 1, step=rest.step,
                    rested=rest.generation, account=account_of(driver.summary()),
                )
            )  # fmt: skip
            stored = driver.office.stored_step
            text = f"it rests at step {rest.step}, which is stored"
            if stored < rest.step:
                text = f"it rests; of its {rest.step} steps {stored} are stored here"
            if driver.plain:
                text = "it rests: its script was ended, and begins anew when it is resumed"
            self.ctx.emit("job_paused", text, job, step=rest.step)

    def _over(self, job: JobId, driver: Driver, state: JobState, reason: str) -> None:
        newest, step, digest = driver.newest, driver.committed, None
        if state == "finished" and newest is not None:
            # Who leads when all have left may know of the last checkpoint only.
            step, digest = max(step, newest.step), newest.digest
        record = self.jobs.records[job]
        self.jobs.update(
            replace(record, state=state, reason=reason or None, step=step, digest=digest)
        )
        world = driver.world
        generation = world.generation.counter if world is not None else None
        if state == "finished":
            text = f"all {step} steps are done" if step != 1 else "its one step is done"
            if world is not None and world.last >= 0:
                text = f"it is done with step {step}, as its script asked"
            if driver.plain:
                text = "every rank's script has exited with 0"
            text = "; ".join(filter(None, (text, reason)))
            self.ctx.emit("job_finished", text, job, generation, steps=step, digest=digest)
        else:
            driver.office.account.given_up()
            self.ctx.emit("job_failed", reason, job, generation)

    def _keep_account(self, job: JobId, driver: Driver) -> None:
        record, account = self.jobs.records[job], account_of(driver.summary())
        ended_here = isinstance(driver.end, Outcome)
        if record.state == "finished" and not ended_here:
            return  # another side has finished it: its step counts, and our course is not the job's
        if record.account and driver.committed <= record.step and not ended_here:
            return  # who cancelled it knew as much: we may lead only since then
        step = max(record.step, driver.committed)
        self.jobs.update(replace(record, step=step, account=account))

    def measured(self, job: JobId, seconds: Mapping[NodeId, float], reason: str) -> None:
        """Deal the first shares of a job by these, until its members' own times say otherwise."""
        driver = self.by_job.get(job)
        if driver is not None:
            driver.measured(seconds, reason)

    def receive(self, node: NodeId, message: ToLeader) -> None:
        """Hand a member's word to the driver of its job, if we drive it."""
        if (driver := self.by_job.get(message.job)) is not None:
            driver.hear(node, message)
