"""What the protocol has decided and the driver has yet to do, in order."""

from __future__ import annotations

from collections.abc import Iterable

from elasticd.core.words.trainers import FromTrainer
from elasticd.train.protocol.effects import Cargo, Drop, Effect, Say
from elasticd.train.protocol.retold import Retold


class Voice:
    """Its parts speak through it; what may have to be said again is noted in ``retold``."""

    def __init__(self) -> None:
        self.retold = Retold()
        self._effects: list[Effect] = []

    def say(self, word: FromTrainer) -> None:
        self.retold.said(word)
        self._effects.append(Say(word))

    def do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def drop(self, void: Iterable[Cargo]) -> None:
        self._effects.extend(Drop(cargo) for cargo in void)

    def taken(self) -> list[Effect]:
        """All of it; the driver does it now."""
        effects, self._effects = self._effects, []
        return effects
