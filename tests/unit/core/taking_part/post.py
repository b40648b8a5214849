"""One node's part in one job, and what its processes and its leader say: no process runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from elasticd.core.context import Context
from elasticd.core.engines.spares import SpareReducers, Warm
from elasticd.core.taking_part.member import Member
from elasticd.core.words import effects as e
from elasticd.core.words.effects import FromChild
from elasticd.core.words.messages import Message
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.trainers import FreezeTrainer, TrainerAtRun, TrainerHolds, TrainerProgress
from elasticd.core.words.worlds import Form, Freeze, MemberStatus
from elasticd.types import NodeId, Point, Stamp, Tag
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME, SPEC

EPOCH = Tag(1, LEADER, "e")
RECORD = JobRecord(EMPTY.job, 1, SPEC.to_dict(), "digest", "running")
HELD = Point(EMPTY.lineage, 3, Stamp("three"))

Kind = TypeVar("Kind")


def world_of(
    *members: NodeId, counter: int = 2, step: int = 0, sources: tuple[str, ...] = (), **more: Any
) -> World:
    """A world that the leader forms of these, who keep what they hold."""
    share = ((),) * len(members)
    return replace(
        EMPTY, generation=Tag(counter, LEADER, "w"), members=members, step=step,
        sources=sources or ("keep",) * len(members), hosts=("10.0.0.1:1",) * len(members),
        shares_now=share, shares=share, rung="regroup", **more,
    )  # fmt: skip


class Post:
    """The member that a node is of a job; what it does and says is taken out when it is read."""

    def __init__(self, record: JobRecord = RECORD) -> None:
        self.ctx = Context(ME, lambda: "nonce", now=100.0)
        self.record = record
        self.wants: tuple[bool, bool] | None = None
        """Unwanted, short: as it was when the member attended last."""
        self.reducers = SpareReducers(self.ctx)
        self.member = Member(self.ctx, record, self.reducers)
        self.member.follow(EPOCH)

    # --- what happens -----------------------------------------------------------------------------

    def attend(self, unwanted: bool = False, short: bool = False, **record: Any) -> None:
        """After an event: the job's record and what operators want as they are now; ``short``: the
        view has too few nodes."""
        self.record = replace(self.record, **record)
        self.wants = unwanted, short
        self._settle()

    def _settle(self) -> None:
        """After another event: all is as it was."""
        if self.wants is not None:
            self.member.attend(self.record, *self.wants)

    def archive(self, ok: bool = True, reason: str = "") -> None:
        """The job's files are here, or can't be had."""
        self.member.on_archive(ok, reason)
        self._settle()

    def start(self) -> int:
        """The job's files are here, and a trainer is started; its number."""
        self.attend()
        self.archive()
        return self.started()

    def ready(self) -> int:
        """Its script has come to ``Run(…)``."""
        child = self.start()
        self.says(child, TrainerAtRun({}))
        return child

    def says(self, child: int, word: FromChild) -> None:
        self.member.part.on_child(e.ChildSaid(child, word))

    def ends(self, child: int, status: int | None = 1, tail: str = "") -> None:
        self.member.part.on_child(e.ChildExited(child, status, tail))
        self._settle()

    def warm(self) -> int:
        """A spare reducer is at hand; its number."""
        self.reducers.ensure()
        (start,) = self.done(e.StartReducer)
        self.reducers.became_ready(start.child, Warm("10.0.0.1:1", proves=True))
        self.member.part.on_reducer_ready()
        return int(start.child)

    def freeze(self, serial: str = "s1", alone: bool = True) -> None:
        self.member.on_order(Freeze(EPOCH, EMPTY.job, serial, alone), EPOCH, bound=False)

    def form(self, world: World, bound: bool = False) -> None:
        self.member.on_order(Form(world), EPOCH, bound)

    def holds(self, child: int, serial: int, point: Point | None = HELD) -> None:
        """The trainer answers its freeze."""
        self.says(child, TrainerHolds(serial, point, 3))

    def enter(self, world: World) -> int:
        """A trainer is frozen and taken into a world; its number."""
        child = self.ready()
        if len(world.members) > 1:
            self.warm()
        self.freeze(alone=len(world.members) == 1)
        self.holds(child, self.freezes()[-1])
        self.form(world)
        self.ctx.effects.clear()
        return child

    def progress(self, child: int, world: World, step: int) -> None:
        """The trainer has committed a step."""
        said = TrainerProgress(
            world.generation, step, Stamp(f"{step}"), step, 0.5, "compute", 1.0, 0, {}
        )
        self.says(child, said)

    # --- what follows -----------------------------------------------------------------------------

    def done(self, kind: type[Kind]) -> list[Kind]:
        """Effects of a kind; they are taken out."""
        found: list[Kind] = [f for f in self.ctx.effects if isinstance(f, kind)]
        self.ctx.effects = [f for f in self.ctx.effects if not isinstance(f, kind)]
        return found

    def told(self, kind: type[Kind]) -> list[Kind]:
        """What the leader was told, of a kind; it is taken out."""
        sends = [
            f for f in self.ctx.effects if isinstance(f, e.Send) and isinstance(f.message, kind)
        ]
        self.ctx.effects = [f for f in self.ctx.effects if f not in sends]
        messages: list[Message] = [f.message for f in sends]
        return [message for message in messages if isinstance(message, kind)]

    def to_trainer(self, kind: type[Kind]) -> list[Kind]:
        """What the trainer was told, of a kind; it is taken out."""
        found = [
            f for f in self.ctx.effects
            if isinstance(f, e.TellTrainer) and isinstance(f.message, kind)
        ]  # fmt: skip
        self.ctx.effects = [f for f in self.ctx.effects if f not in found]
        return [f.message for f in found if isinstance(f.message, kind)]

    def started(self, spare: bool = False) -> int:
        """The one trainer that was started."""
        (start,) = [f for f in self.done(e.StartTrainer) if f.spare is spare]
        return int(start.child)

    def freezes(self) -> list[int]:
        """The serials with which the trainer was frozen."""
        return [word.serial for word in self.to_trainer(FreezeTrainer)]

    def killed(self) -> list[int]:
        return [kill.child for kill in self.done(e.KillChild)]

    def status(self) -> MemberStatus:
        """As the leader was told last."""
        return self.told(MemberStatus)[-1]
