"""What the leader asked of this node's trainer, until the trainer has said."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticd.core.context import Context
from elasticd.core.engines.spares import Warm
from elasticd.core.taking_part.trainers import Trainer
from elasticd.core.words.effects import PrepareState, TellTrainer
from elasticd.core.words.trainers import FreezeTrainer, TrainerHolds
from elasticd.core.words.worlds import Freeze, Holding, Prepare, Prepared
from elasticd.types import JobId, Point, Tag

_CAN_SAY = ("ready", "active", "finished")
"""Phases of trainers that hold a state or could take one."""
_NOTHING = TrainerHolds(0, None, None)
_HAS_NOTHING = ("starting", "waiting", "done")


@dataclass(slots=True)
class Pending:
    """A freeze that has not been answered yet."""

    epoch: Tag
    serial: str
    asked: int
    """The serial that the trainer was given."""
    deadline: float
    alone: bool
    """Nobody else is asked: the next world needs no reducer."""
    said: TrainerHolds = _NOTHING
    """What the trainer has answered, if it could."""
    answered: bool = False


@dataclass(slots=True)
class Answers:
    """Of one job."""

    ctx: Context
    job: JobId
    pending: Pending | None = None
    answerer: int | None = None
    """The trainer that answered the last freeze: no other may enter the world that is then
    formed."""
    serial: int = 0
    """Of the last freeze or delivery."""
    held: Point | None = None
    """What the trainer held by its last answer."""
    preparing: tuple[int, Tag] | None = None
    """The serial of the state that is being brought to a trainer in no world, and for which."""

    def freeze(self, trainer: Trainer) -> None:
        """Make a trainer leave its world."""
        self.serial += 1
        self.ctx.do(TellTrainer(trainer.child, FreezeTrainer(self.serial)))

    def on_freeze(self, freeze: Freeze, trainer: Trainer | None) -> None:
        """The leader asks what we hold."""
        self.answerer = None
        deadline = self.ctx.now + self.ctx.timing.holding_seconds
        asked = self.serial + 1
        self.pending = Pending(freeze.epoch, freeze.serial, asked, deadline, freeze.alone)
        if trainer is None or trainer.phase in _HAS_NOTHING:
            self.serial, self.pending.answered = asked, True
        else:
            self.freeze(trainer)

    def on_holds(self, said: TrainerHolds) -> None:
        """The trainer answers."""
        pending = self.pending
        if pending is not None and said.serial == pending.asked:
            pending.said, pending.answered = said, True

    def recall(self, serial: int) -> None:
        """Of the last freeze or delivery that a daemon before this one has ordered."""
        self.serial = serial

    def void(self) -> None:
        """Whoever asked wants no answer any more."""
        self.pending = None

    def expire(self) -> None:
        """What was answered last counts no more: no trainer may enter a world by it."""
        self.answerer = None

    def trainer_ended(self) -> None:
        """Who was to answer holds nothing any more."""
        self.answerer = None
        if self.pending is not None:
            self.pending.answered = True
            self.pending.said = replace(self.pending.said, point=None)

    def ready(self, warm: Warm | None, trainer: Trainer | None) -> Holding | None:
        """The answer, once the trainer has said what it holds and a reducer is warm."""
        pending = self.pending
        if pending is None or not pending.answered or (warm is None and not pending.alone):
            return None
        self.pending = None
        able = trainer is not None and trainer.phase in _CAN_SAY
        self.answerer = trainer.child if trainer is not None and able else None
        said, self.held = pending.said, pending.said.point
        return Holding(
            epoch=pending.epoch,
            job=self.job,
            serial=pending.serial,
            able=able,
            point=said.point,
            entered=trainer.entered if trainer is not None else None,
            committed=said.committed or 0,
            host=warm.host if warm is not None else "",
            counter=self.ctx.counter,
            gives=said.gives,
            replays=said.replays,
            given=said.given,
            calls=said.calls,
            body=said.body,
            unproven=said.unproven,
            ended=said.ended,
            proves=warm is not None and warm.proves,
            walks=warm is not None and warm.walks,
            chains=warm is not None and warm.chains,
            on_cpu=True,
        )

    # --- states for a trainer in no world ---------------------------------------------------------

    def on_prepare(self, order: Prepare, trainer: Trainer | None) -> Prepared | None:
        """Have a state brought, or say why not."""
        if trainer is None or trainer.phase != "ready" or self.pending is not None:
            text = "no trainer waits here for a state"
            return Prepared(self.job, order.generation, None, text)
        # The trainer lets no delivery in that was ordered before its last freeze.
        self.serial += 1
        self.preparing = self.serial, order.generation
        self.ctx.do(
            PrepareState(trainer.child, self.job, order.generation, order.wanted, self.serial)
        )
        return None

    def prepared(
        self, serial: int, point: Point | None, reason: str, replays: bool = False
    ) -> Prepared | None:
        """What came of it, if it is still wanted."""
        if self.preparing is None or self.preparing[0] != serial:
            return None
        generation, self.preparing = self.preparing[1], None
        return Prepared(self.job, generation, point, reason, replays)

    # --- time -------------------------------------------------------------------------------------

    def overdue(self) -> bool:
        """Whether the trainer should have answered by now; said again after as long."""
        pending = self.pending
        if pending is None or pending.answered or self.ctx.now < pending.deadline:
            return False
        pending.deadline = self.ctx.now + self.ctx.timing.holding_seconds
        return True

    def deadlines(self) -> list[float]:
        pending = self.pending
        return [pending.deadline] if pending is not None and not pending.answered else []
