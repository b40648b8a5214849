"""States and updates for others: what is ordered to be kept, what is asked for, what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from elasticd.core.words.trainers import LendState, TrainerHolds, TrainerLends, TrainerNotExported
from elasticd.train.protocol.effects import Export
from elasticd.train.protocol.lending import Lending, Request, S, U
from elasticd.train.protocol.voice import Voice
from elasticd.train.world import TrainerWorld
from elasticd.types import Point, Stamp


@dataclass(slots=True)
class StateInPlace(Generic[S]):
    """The state in place; ``readable`` while nothing changes it."""

    point: Point | None = None
    began: int | None = None
    """The step of the first one that this process has had."""
    committed: int | None = None
    readable: S | None = None
    updating: bool = False
    replays: bool = False
    """Updates of others can be applied to it."""
    given: bool = False
    """It came from elsewhere: its step's body never ran here."""
    complete: bool = False
    """It came as what its step's body has left elsewhere."""
    unproven: bool = False
    """Nobody has seen yet that this process computes from it what others do."""
    freezes: tuple[int, ...] = ()
    """To be answered when the update is done."""

    @property
    def at(self) -> int | None:
        """The step that it is of, or is about to be."""
        return None if self.point is None else self.point.step + self.updating

    def move(self, point: Point) -> None:
        """It is that of ``point`` now."""
        self.point = point
        if self.began is None:
            self.began = point.step

    def reads(self, readable: S) -> bool:
        """It can be read, unless it was disowned."""
        self.readable = None if self.point is None else readable
        return self.point is not None

    def disown(self) -> None:
        """It is not what its step's body makes of it elsewhere, and another is to replace it:
        nobody shall have it."""
        self.point = self.readable = None

    def may_replay(self, takes: bool) -> None:
        """Whether others' updates can be applied to it."""
        self.replays = takes

    def told(self, serial: int, gives: tuple[Stamp, ...]) -> TrainerHolds:
        """The answer to a freeze."""
        return TrainerHolds(
            serial,
            self.point,
            self.committed,
            gives,
            self.replays,
            self.given,
            unproven=self.unproven,
        )


class Sharing(Generic[S, U]):
    """What a trainer gives of what it holds."""

    def __init__(self, voice: Voice, held: StateInPlace[S]) -> None:
        self.lending: Lending[S, U] = Lending()
        self._voice, self._held = voice, held
        self._requests: list[Request] = []

    def order(self, world: TrainerWorld, word: LendState) -> None:
        """Keep, in this world, what the daemon wants; or say why not."""
        step, lending = word.step, self.lending
        lending.order(word.generation, step, word.log)
        if step is None:
            return
        if world.relief:
            self._refuse(world, step, "memory is short", never=True)
        elif reason := lending.refuses(self._held.at):
            self._refuse(world, step, reason)

    def _refuse(self, world: TrainerWorld, step: int, reason: str, *, never: bool = False) -> None:
        self.lending.drop()
        self._voice.say(TrainerLends(world.generation, step, Stamp(""), reason, never))

    def holds(self, readable: S, update: U | None, world: TrainerWorld | None) -> None:
        """A state is in place, which may be the one that was ordered; ``update`` led to it."""
        if update is not None:
            self.lending.complete(update)
        if world is not None and self.lending.holds(readable, world.generation):
            point = readable.point
            self._voice.say(TrainerLends(world.generation, point.step, point.stamp))

    def ask(self, request: Request) -> None:
        self._requests.append(request)
        self.serve()

    def serve(self) -> None:
        """Answer what can be answered; the rest waits until the state in place can be read."""
        requests, self._requests = self._requests, []
        for request in requests:
            readable = self._held.readable
            given = self.lending.answer(request, readable)
            if given is not None:
                self._voice.do(Export(request.serial, given))
            elif readable is None and self._held.point is not None:
                self._requests.append(request)
            else:
                reason = f"this trainer holds {readable and readable.point}"
                self._voice.say(TrainerNotExported(request.serial, reason))

    def forget_requests(self) -> None:
        """Who asked has gone."""
        self._requests.clear()
