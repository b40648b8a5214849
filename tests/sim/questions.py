"""States on their way from trainers to who asks, as shell/storage/obtain.py and
shell/children/exports.py bring them: an answer may come late, when nobody waits for it any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from elasticd.core.words.records import Wanted
from elasticd.types import JobId, NodeId

from .chips import mixed
from .states import Brought

if TYPE_CHECKING:
    from .host import Host
    from .trainer import Trainer

Answer = Brought | str
"""What is given, or why nothing is."""
Answered = Callable[[Answer], None]
_LOOK_SECONDS = 0.1
"""How soon one end sees that the other has gone."""


class StateWish:
    """A part of a state from each of its holders, all at once; of those that fail, from another."""

    def __init__(self, host: Host, job: JobId, wanted: Wanted, done: Answered) -> None:
        self._host, self._job, self._wanted, self._done = host, job, wanted, done
        self._parts: dict[int, Answer] = {}

    def ask(self) -> None:
        """``done`` is called once, unless a trainer never answers."""
        holders = self._wanted.holders
        for part in range(len(holders)):
            self._try((*holders[part:], *holders[:part]), part, "nobody was asked")

    def _try(self, holders: tuple[NodeId, ...], part: int, why: str) -> None:
        if not holders:
            self._came(part, why)
            return
        first, *others = holders
        ask_others = partial(self._try, tuple(others), part)

        def answered(answer: Answer) -> None:
            if isinstance(answer, str):
                ask_others(answer)
            else:
                self._came(part, answer)

        Question(self._host, self._host.cluster.hosts[first], self._job, answered).ask(self._wanted)

    def _came(self, part: int, answer: Answer) -> None:
        self._parts[part] = answer
        if len(self._parts) < len(self._wanted.holders):
            return
        parts = [self._parts[number] for number in sorted(self._parts)]
        given = [each for each in parts if not isinstance(each, str)]
        if len({(each.point.step, each.point.stamp, each.seen) for each in given}) > 1:
            self._host.cluster.checkers.broken(f"a state is put together from {given}")
        failed = next((each for each in parts if isinstance(each, str)), None)
        self._done(_joined(given) if failed is None else failed)


def _joined(given: Sequence[Brought]) -> Brought:
    """One state of parts of several, which may have been otherwise on each."""
    last = given[-1]
    return replace(last, drift=mixed([each.drift for each in given]))


class Question:
    """What one node asks of the trainers of another, of one after the other."""

    def __init__(self, asker: Host, asked: Host, job: JobId, answered: Answered) -> None:
        self._asker, self._asked, self._job, self._answered = asker, asked, job, answered
        self._boots = asker.boot, asked.boot
        self._over = False
        self._trainers: Iterator[Trainer] = iter(())

    def ask(self, wanted: Wanted) -> None:
        """``answered`` is called once, unless a trainer never answers."""
        self._trainers = iter([t for t in self._asked.trainers() if t.job == self._job])
        if not self._ends_if_gone():
            self._next(wanted, f"no trainer on {self._asked.name}")
            self._look()

    def _next(self, wanted: Wanted, why: str) -> None:
        trainer = next((t for t in self._trainers if t.alive), None)
        if trainer is None:
            self._end(f"step {wanted.point.step}: {why}")
            return

        def told(answer: Answer) -> None:
            if self._over or self._ends_if_gone():
                return
            if isinstance(answer, str):
                self._next(wanted, answer)
            else:
                self._end(answer)

        trainer.ask(wanted, told)

    def _end(self, answer: Answer) -> None:
        self._over = True
        self._answered(answer)

    def _ends_if_gone(self) -> bool:
        """Whether the two don't hear each other any more."""
        asker, asked = self._asker, self._asked
        same = self._boots == (asker.boot, asked.boot)
        if same and asker.cluster.network.fetches(asker, asked):
            return False
        self._end(f"{asked.name} is not connected")
        return True

    def _look(self) -> None:
        """Whoever waits sees it when the other end has gone."""
        if not self._over and not self._ends_if_gone():
            self._asker.cluster.after(_LOOK_SECONDS, self._look)
