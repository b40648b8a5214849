"""A world of several ranks in one process: each is a thread with its own model, and one runs at
a time, since the condition's lock is handed on only where a rank waits. It plays daemons, reducers
and network; a rank can be made to die at any of its calls.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elasticd.checkpoints.codec import write_memory
from elasticd.core.words.trainers import Newcomers
from elasticd.errors import GenerationLost
from elasticd.ipc.plan import ChunkPlan
from elasticd.recovery import tree
from elasticd.settings.job import JobSpec
from elasticd.train.protocol.calls import Answer
from elasticd.train.protocol.lending import Lending, Request
from elasticd.train.protocol.newcomers import joins
from elasticd.train.states.exports import contents
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.steps.seat import HOST, Delivery, Files, Parts, ProbeResult
from elasticd.train.world import Share, TrainerWorld, Writes
from elasticd.types import JobId, Lineage, NodeId, Point, ProofPart, Tag, first_stamp
from tests.unit.train.newcomers import Judge
from tests.unit.train.quiet import Quiet, share_a_stream

WAIT_SECONDS = 60
JOB, LINEAGE = JobId("job"), Lineage("lineage")


class Killed(BaseException):
    """What a rank dies of."""


class LeftOut(BaseException):
    """What a rank ends with that computes something else than the others."""


def spec(**changes: Any) -> JobSpec:
    tables: dict[str, dict[str, Any]] = {
        "job": {"name": "job", "entrypoint": "train.py"},
        "batch": {"global": 20, "micro": 3},
        "train": {"steps": 4, "seed": 7},
    }
    for name, value in changes.items():
        table, key = name.split("__")
        tables.setdefault(table, {})[key] = value
    return JobSpec.from_dict(tables)


@dataclass
class Result:
    """What a rank's script returned or died of."""

    value: Any = None
    error: BaseException | None = None
    grains: list[tuple[int, int]] = field(default_factory=list)


class Cohort:
    """Ranks, by name, and the world they form."""

    def __init__(self, job: JobSpec, script: Callable[[Seat], Any], dice: random.Random) -> None:
        self.job, self.script, self.draw = job, script, dice.randrange
        self.changed = threading.Condition()
        self.generation = self.committed = 0
        self.members: list[Seat] = []
        self.results: dict[str, Result] = {}
        self.deposits: dict[Any, dict[str, Any]] = {}
        self.asked: dict[str, int] = {}
        """After which step ranks of this world want to stop."""
        self.last = -1
        self.kills: dict[str, int] = {}
        self.dies_behind: dict[str, int] = {}
        """A rank dies before the update of this step, when the first of the others has made it."""
        self.dies_after: dict[str, int] = {}
        """A rank dies in the body of this step, where its script looks here."""
        self.respawn = self.on_cpu = False
        self.respawns = 0
        """How many of those that die, besides, have a successor."""
        self.delivers = False
        """Who comes later is given a state before it is given a world."""
        self.keeps_updates = True
        """Else who is a step behind is given the whole state."""
        self.worlds: list[tuple[int, int]] = []
        self.replays = 0
        """How often a rank was given updates instead of a state."""
        self.outputs = Path("/nowhere")
        """Below it each node has a folder. A successor is on the node of the dead, or ..."""
        self.moves = False
        """... on a new one."""
        self.judge = Judge()
        self.caller: Seat | None = None
        self.calls: dict[tuple[int, int], bytes] = {}
        """What calls of run.on_main have returned."""
        self.made: dict[tuple[int, str], int] = {}
        """How many calls ranks have made in a body."""
        self.losses: dict[int, float | None] = {}
        """What was told of steps."""
        self._threads: list[threading.Thread] = []

    def output_of(self, name: str) -> Path:
        """The folder of the node that this rank is on."""
        return self.outputs / (name if self.moves else name.rstrip("'"))

    def run(self, names: list[str]) -> dict[str, Result]:
        """Run until every rank has ended; each result by name."""
        with self.changed:
            self.members = [Seat(self, name) for name in names]
            self._form()
            for seat in self.members:
                self._start(seat)
        for thread in self._threads:  # grows while it is looped over
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "a rank hangs"
        return self.results

    def _start(self, seat: Seat) -> None:
        thread = threading.Thread(target=self._rank, args=(seat,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _rank(self, seat: Seat) -> None:
        with self.changed:
            share_a_stream()
            result = self.results[seat.name] = Result()
            HOST.prepare(seat)
            try:
                result.value = self.script(seat)
            except Killed as death:
                # Its frames go now, while the lock is held: they end the script's loop.
                result.error = death.with_traceback(None)
                self._bury(seat)
            except LeftOut as end:
                result.error = end
            except BaseException as error:  # the top of a thread
                result.error = error
                for other in self.members:
                    other.doomed = True
                self.changed.notify_all()

    def _bury(self, seat: Seat) -> None:
        self.members.remove(seat)
        if self.respawn or self.respawns or not self.members:
            self.respawns -= not self.respawn and self.respawns > 0
            self.respawn = False
            fresh = Seat(self, seat.name + "'")
            self.members.append(fresh)
            self._start(fresh)
        self._form()

    def _form(self) -> None:
        """A new world from the newest state that a member holds."""
        self.generation += 1
        # What the body of a newcomer has made of a state that was not compared yet is nobody's.
        sure = [s for s in self.members if s.point is not None and not s.unproven]
        for seat in self.members:
            seat.distrusted = bool(sure) and seat.unproven and not seat.given
        held = [s for s in self.members if s.point is not None and not s.distrusted]
        newest = max(held, key=lambda seat: seat.point.step if seat.point else 0, default=None)
        point = Point(LINEAGE, 0, first_stamp(JOB, LINEAGE))
        if newest is not None and newest.point is not None:
            point = newest.point
        self.worlds.append((point.step, len(self.members)))
        self.asked.clear()
        now, later = self._shares(), self._shares()
        stays = [s.point == point and not s.unproven for s in self.members]
        unproven = tuple(rank for rank, stayed in enumerate(stays) if any(stays) and not stayed)
        keeping = [s for s in self.members if s.point == point and not s.distrusted]
        self.caller = max(keeping, key=lambda seat: seat.body, default=self.members[0])
        for rank, seat in enumerate(self.members):
            seat.world = None
            state: Literal["keep", "load", "init"]
            keeps = seat.point == point and not seat.distrusted
            state = "keep" if keeps else "load" if newest else "init"
            if newest is None and rank:
                state = "load"
            seat.donor = newest or self.members[0]
            seat.next = TrainerWorld(
                generation=Tag(self.generation, NodeId("n"), "x"),
                job=JOB,
                rank=rank,
                size=len(self.members),
                members=tuple(NodeId(member.name) for member in self.members),
                point=point,
                state=state,
                shares_now=now,
                shares=later,
                reduction=self.job.world.reduction,
                checkpointed=-1,
                checkpoint_folder=Path("/nowhere"),
                writes=Writes(2, 1, 1),
                last=self.last,
                newcomers=Newcomers(unproven, stays.index(True) if unproven else -1),
                on_cpu=self.on_cpu,
            )
        self.changed.notify_all()

    def weigh_stops(self) -> None:
        """Name the last step once all have asked to stop, or begun the next step."""
        if not self.asked or self.last >= 0:
            return
        step = max(self.asked.values())
        others = {m.name for m in self.members if not m.came_with(step)} - self.asked.keys()
        beyond = self.deposits.get((self.members[0].generation, ("begun", step + 1)), {})
        if others <= beyond.keys():
            self.last = step + 1 if others else step
            self._form()

    def shows(
        self, seat: Seat, world: TrainerWorld, part: ProofPart, digests: dict[str, str]
    ) -> None:
        """Compare what newcomers have come to with what the keeper has; leave out who differs."""
        if seat.world is not world:
            return
        if odd := self.judge.hears(world, part, digests):
            self._leave_out(odd)
            return
        for member in self.members:
            member.unproven &= not self.judge.has_proven(world, member.name)
        self.changed.notify_all()

    def _leave_out(self, name: str) -> None:
        (seat,) = (member for member in self.members if member.name == name)
        self.members.remove(seat)
        seat.world, seat.left_out = None, True
        self._form()

    def _shares(self) -> tuple[Share, ...]:
        """Random shares, unequal, not in order, some empty."""
        owners = [self.draw(len(self.members)) for _ in range(self.job.grains)]
        return tuple(
            tuple((g, g + 1) for g, owner in enumerate(owners) if owner == rank)
            for rank in range(len(self.members))
        )


class Seat(Quiet):
    """Implements :class:`elasticd.train.steps.seat.Seat` for one rank of a cohort."""

    def __init__(self, cohort: Cohort, name: str) -> None:
        super().__init__()
        self.cohort, self.name, self.spec = cohort, name, cohort.job
        self.output_dir = cohort.output_of(name)
        self._reductions: dict[Any, int] = {}
        """How many there were, by world and step."""
        self.world: TrainerWorld | None = None
        self.next: TrainerWorld | None = None
        self.donor: Seat = self
        self.point: Point | None = None
        self.body = -1
        self.snapshot: Snapshot | None = None
        self.probe: ProbeResult | None = None
        self.doomed = self.left_out = False
        self.given = self.unproven = self.distrusted = False
        self.calls = 0
        self.lending: Lending[Snapshot, Update] = Lending()
        self.takes_updates = False
        self.delivery: Delivery | None = None

    def _call(self) -> None:
        if self.doomed:
            raise AssertionError("another rank failed")
        if self.left_out:
            raise LeftOut
        self.calls += 1
        if self.cohort.kills.get(self.name) == self.calls:
            raise Killed

    def _wait(self, ready: Callable[[], bool]) -> None:
        done = self.cohort.changed.wait_for(
            lambda: self.doomed or self.left_out or ready(), WAIT_SECONDS
        )
        if self.left_out:
            raise LeftOut
        assert done and not self.doomed, f"{self.name} waits in vain"

    def at_run(self, fingerprint: Mapping[str, str]) -> None:
        self._call()

    def take(self) -> TrainerWorld | Delivery | None:
        self._call()
        self._wait(lambda: self.next is not None)
        if self.cohort.delivers and self._came_later() and self._has_donor():
            snapshot = self.donor.snapshot
            assert snapshot is not None
            self.delivery = Delivery(1, (write_memory(snapshot.tensors, snapshot.metadata()),))
            return self.delivery
        self.world, self.next = self.next, None
        return self.world

    def _came_later(self) -> bool:
        """Not one that has stayed, and is a step behind: it runs that step's body itself."""
        return self.point is None and self.delivery is None

    def _has_donor(self) -> bool:
        held = self.donor.snapshot
        return self.donor is not self and held is not None and held.point.step > 0

    def check(self) -> None:
        self._present()

    def came_with(self, step: int) -> bool:
        """Whether it was given the state of that step: it never ran its body."""
        world = self.world or self.next
        return world is not None and world.state == "load" and world.point.step == step

    @property
    def generation(self) -> Tag | None:
        return None if self.world is None else self.world.generation

    def _present(self) -> TrainerWorld:
        self._call()
        if self.world is None:
            raise GenerationLost("ended")
        return self.world

    def files(self, world: TrainerWorld) -> Files:
        self._call()

        def there() -> bool:
            held = self.donor.snapshot
            return self.world is not world or (held is not None and held.point == world.point)

        self._wait(there)
        self.check()
        donor, held = self.donor, self.donor.snapshot
        assert held is not None
        follows = self.takes_updates and not self.distrusted
        since = self.point.stamp if self.point is not None and follows else None
        request = Request(0, held.point.step, held.point.stamp, since, 0, 1)
        given = donor.lending.answer(request, held)
        assert given is not None
        tensors, metadata = contents(given)
        self.cohort.replays += "gradient" in str(list(tensors))
        return Files((write_memory(tensors, metadata),))

    def adopt(self, point: Point) -> None:
        self.check()
        self.point = point
        self._settle()

    def _settle(self) -> None:
        if self.world is not None:
            self.unproven = joins(self.world)

    def hold(
        self, snapshot: Snapshot, update: Update | None = None, *, loaded: bool = False
    ) -> None:
        self._call()
        self.snapshot = snapshot
        if update is not None:
            self.lending.complete(update)
        self.cohort.changed.notify_all()

    def begin_update(self) -> None:
        self.check()
        self._fall_behind()
        self.snapshot = None

    def _fall_behind(self) -> None:
        step = self.cohort.dies_behind.get(self.name)
        if step is None or self.point is None or self.point.step + 1 != step:
            return
        self._wait(lambda: any(s.point and s.point.step == step for s in self.cohort.members))
        raise Killed

    def begin_preparing(self, delivery: Delivery) -> None:
        self._call()

    def keeps_updates(self) -> bool:
        return self.cohort.keeps_updates

    def owes_update(self) -> bool:
        return bool(self.lending.starts)

    def replays(self, takes: bool) -> None:
        self.takes_updates = takes

    def end_update(self, point: Point, loss: float | None, update: Update | None) -> None:
        self.cohort.losses[point.step] = loss
        self.lending.applied(update, None)
        self.point, self.given = point, False
        if self.world is not None and self.world.point == point:
            self._settle()
        self._call()

    def end_load(self, point: Point, *, complete: bool) -> None:
        self.lending.drop()
        self.point, self.given, self.unproven = point, True, True
        self._settle()
        self._call()

    def give_up_update(self) -> None:
        self._call()

    def stop(self, point: Point, reason: str) -> None:
        reason.encode()  # as it goes to a daemon
        world = self._present()
        self.cohort.asked[self.name] = point.step
        self.cohort.weigh_stops()
        self._wait(lambda: self.world is not world)

    def _together(self, key: Any, value: Any) -> dict[str, Any]:
        world = self._present()
        deposits = self.cohort.deposits.setdefault((world.generation, key), {})
        deposits[self.name] = value
        self.cohort.weigh_stops()
        self.cohort.changed.notify_all()
        self._wait(lambda: self.world is not world or len(deposits) == world.size)
        self.check()
        return deposits

    def reduce(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        flat = {node: np.concatenate(part) for node, part in parts.items()}
        sums: dict[Any, NDArray[np.float32]] = {}
        where = self.generation, step
        self._reductions[where] = number = self._reductions.get(where, 0) + 1
        for theirs in self._together(("reduce", step, number), flat).values():
            for node, part in theirs.items():  # of a fast sum all have the same node
                sums[node] = sums[node] + part if node in sums else part
        out[:] = tree.finish(sums, (0, plan.grains), lambda a, b: a + b)

    tell = reduce

    def barrier(self, point: Point) -> None:
        points = self._together(("barrier", point.step), point)
        assert set(points.values()) == {point}
        self.cohort.committed = max(self.cohort.committed, point.step)
        self.lending.committed(self._present().generation)

    def halt(self, point: Point) -> None:
        """Nobody pauses a cohort. But it is told that the next step has begun."""
        key = self.generation, ("begun", point.step + 1)
        self.cohort.deposits.setdefault(key, {})[self.name] = None
        self.cohort.weigh_stops()

    def call(self, body: int, index: int, step: int) -> Answer:
        self._call()
        key = body, index

        def void() -> bool:
            return self.next is not None and self.next.state == "load"

        self._wait(lambda: key in self.cohort.calls or self.cohort.caller is self or void())
        if key in self.cohort.calls:
            return self.cohort.calls[key]
        return "void" if void() else "run"

    def returned(self, body: int, index: int, data: bytes) -> None:
        self._call()
        if self.cohort.caller is self:
            self.cohort.calls.setdefault((body, index), data)
            self.cohort.changed.notify_all()

    def body_begins(self, body: int) -> None:
        self.body = body

    def body_ends(self, body: int, calls: int) -> None:
        self.cohort.made[body, self.name] = calls

    def disown(self) -> None:
        self.point = self.snapshot = None

    def agree(self, result: ProbeResult) -> None:
        self.check()
        self.probe = result

    def prove(
        self, world: TrainerWorld, part: ProofPart, digests: Callable[[], dict[str, str]]
    ) -> None:
        self.cohort.shows(self, world, part, digests())

    def await_proof(self, part: ProofPart) -> None:
        world = self._present()
        key = (world.generation, part, self.name)
        self._wait(lambda: self.world is not world or key in self.cohort.judge.proven)
        self.check()

    def finish(self, point: Point) -> bool:
        self._call()
        world = self.world
        if world is None:
            return False
        try:
            self._together(("finish", point.step), None)
        except GenerationLost:
            # Who has died since had finished, too: the others have left.
            deposits = self.cohort.deposits[world.generation, ("finish", point.step)]
            return len(deposits) == world.size
        return True
