"""Steps that kill whoever computes them: what is tried, rung by rung, before the job is ended.

Each death at a step is an instance of a *signature*: a signal, a hang, want of memory. Each
signature has a budget of its own at each step, so accidents of several kinds don't add up. A *try*
is a world in which a trainer died of it. After some the step is given to one node alone: the others
wait with empty shares, so it is plain who died of it, and they keep the state. The step is to blame
when it has ended different nodes alone, with memory to spare. It may take whole machines down, that
of who leads among them: worlds carry the tries to later leaders. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from elasticd.recovery.fitness import clipped
from elasticd.recovery.relief import shortage_of
from elasticd.recovery.signatures import FATAL_SIGNALS, WAITED
from elasticd.types import NO_TAG, NodeId, Range, Sign, Tag

PoisonRung = Literal["retry", "relief", "older", "alone"]

TOLD = 2
"""After so many people are told of the step: once may be an accident."""
RETRIES = 3
"""After so many tries memory is given up that costs no bits, as the want of it may be the cause."""
OLDER = 4
"""After so many all go back to a checkpoint, as the state may be the cause."""
ALONE = 5
"""After so many one node at a time computes the step."""
_NODES = 2
"""So many have to die of it alone; and all members of the world, or one more."""

HANG, MEMORY, LOST = "a hang", "want of memory", "the loss of the node"
_AWAY_SECONDS = 300.0
"""A file server may be away for a while, and whoever reads from it hangs. Where the kernel says so,
the step is not to blame at all. Nor has a node to go down for what it computes: power may fail."""
_OUTSIDE_SECONDS = 30.0
"""What kills from outside, or takes the memory, may go away."""
_AMPLE_BYTES = 1 << 30
"""Who had so much left when an allocation failed had memory to spare."""
_MOST_TRIES = 64
_MOST_SAMPLES = 8
"""Ranges of samples that are named."""

Ranges = tuple[Range, ...]
_OF_ANY_STATUS: Mapping[Sign, str] = {"hang": HANG, "peer_lost": LOST}


def signature_of(fault: Sign, status: int | None) -> str:
    """Of which kind a death, or a failed allocation, is; empty: of none that a step can cause.

    Args:
        status: exit code of the trainer, or minus its signal; None: it lives.
    """
    if fault in _OF_ANY_STATUS:
        return _OF_ANY_STATUS[fault]
    signal = 0 if status is None else -status if status < 0 else status - 128
    if fault in ("worker_exit", "oom") and 0 < signal < 65:
        return f"signal {signal}"
    return MEMORY if fault == "oom" else ""


def is_short(fault: Sign, status: int | None, text: str, *, relieved: bool) -> bool:
    """Whether memory was short on the node, or a file server away, so that its death says nothing
    against the step. A node that is lost may be cut off, until it comes back.

    ``relieved``: nothing is left that could be given up. ``text`` is what the process said.
    """
    if fault == "hang":
        return WAITED in text
    if fault != "oom":
        return fault == "peer_lost"
    known = shortage_of(text)
    if status is not None or not relieved or known.asked_bytes is None or known.room_bytes is None:
        return True
    return known.room_bytes < min(_AMPLE_BYTES, known.asked_bytes)


@dataclass(frozen=True, slots=True)
class Dealt:
    """A world that computes: the samples of its first step, and of later ones, by node."""

    generation: Tag
    first: int
    now: Mapping[NodeId, Ranges]
    later: Mapping[NodeId, Ranges]
    apart: bool = False
    """One node has all of the later ones, too, since it is to compute a step alone."""

    def of(self, step: int) -> Mapping[NodeId, Ranges]:
        """Who computes what of that step."""
        return self.now if step == self.first else self.later


@dataclass(frozen=True, slots=True)
class Try:
    """A world in which trainers died at a step of the same signature."""

    step: int
    generation: Tag
    signature: str
    at_seconds: float
    """When the first did; of a try that a world carries: reckoned from when that was made."""
    alone: NodeId | None
    """The one node that had to compute anything."""
    samples: Ranges
    """What those had to compute who died."""
    died: tuple[tuple[NodeId, bool], ...]
    """Whose trainers, and whether that says nothing (:func:`is_short`)."""
    said: str = ""
    """The evidence of the last of them."""

    @property
    def victims(self) -> list[NodeId]:
        """Who died, as far as that is known: a node that is lost may be cut off."""
        return [node for node, short in self.died if self.signature != LOST or not short]

    @property
    def convicted(self) -> NodeId | None:
        """The node that died of the step alone, with memory to spare."""
        alone = self.alone
        return alone if alone is not None and dict(self.died).get(alone) is False else None

    def joined(self, other: Try) -> Try:
        """With what somebody else, or later evidence, says of it."""
        died = dict(self.died)
        for node, short in other.died:
            known = died.get(node, short)
            died[node] = known and short if self.signature == LOST else known or short
        return replace(
            self,
            at_seconds=min(self.at_seconds, other.at_seconds),
            samples=tuple(sorted({*self.samples, *other.samples})),
            died=tuple(sorted(died.items())),
            said=other.said or self.said,
        )


Tries = tuple[Try, ...]


@dataclass(slots=True)
class Ladder:
    """Of one job: the tries at each step that was never committed."""

    tries: dict[int, list[Try]] = field(default_factory=dict)
    dealt: Dealt = field(default_factory=lambda: Dealt(NO_TAG, 0, {}, {}))
    """The last world that has computed."""
    planned: Dealt = field(default_factory=lambda: Dealt(NO_TAG, 0, {}, {}))
    """The last one that was to form."""
    gone_back: set[int] = field(default_factory=set)
    """Steps before which all went back to a checkpoint for their sake."""
    outlived: Tag = NO_TAG
    """The last world that has lived through such a step, or was paused: of the tries up to then
    nothing counts that is told once more."""

    def plan(self, dealt: Dealt) -> None:
        """A world is to form. Its members begin to compute before all are known to be ready."""
        self.planned = dealt

    def begin(self, dealt: Dealt) -> None:
        """A world computes from now on."""
        self.dealt = self.planned = dealt

    def took(
        self,
        node: NodeId,
        signature: str,
        step: int,
        generation: Tag,
        now: float,
        *,
        short: bool,
        said: str = "",
    ) -> None:
        """A trainer died while ``step`` was computed in the world of ``generation``. ``said``: the
        evidence, as people are told it."""
        world = self.dealt if generation == self.dealt.generation else self.planned
        dealt = world.of(step)
        if not signature or generation != world.generation or node not in dealt:
            return
        if signature == LOST and not dealt[node]:
            return  # It only waited, and need not have died at all.
        owners = [owner for owner, ranges in dealt.items() if ranges]
        alone = owners[0] if len(owners) == 1 else None
        died, text = ((node, short),), f"{node}: {said}"
        self._add(Try(step, generation, signature, now, alone, tuple(dealt[node]), died, text))

    def _add(self, new: Try) -> None:
        tries = self.tries.setdefault(new.step, [])
        for at, known in enumerate(tries):
            if (known.generation, known.signature) == (new.generation, new.signature):
                tries[at] = known.joined(new)
                return
        tries.append(new)
        tries.sort(key=lambda each: each.generation)
        del tries[:-_MOST_TRIES]

    def came_back(self, node: NodeId, generation: Tag) -> None:
        """``node``, which was in that world last, was started again: if it was lost there, it was
        not just cut off."""
        for each in [each for tries in self.tries.values() for each in tries]:
            if (each.generation, each.signature) == (generation, LOST) and node in dict(each.died):
                self._add(replace(each, died=((node, False),)))

    def carried(self, now: float) -> Tries:
        """For the leaders to come; the last evidence of each step will do."""
        return tuple(
            replace(
                each,
                at_seconds=each.at_seconds - now,
                said=clipped(each.said) if each is tries[-1] else "",
            )
            for tries in self.tries.values()
            for each in tries
        )

    def recall(self, tries: Tries, now: float, committed: int) -> None:
        """A world carries these, of which an earlier leader, or another side's, knew."""
        for each in tries:
            if each.step > committed and each.generation > self.outlived:
                self._add(replace(each, at_seconds=now + each.at_seconds))

    def forgive(self, generation: Tag) -> None:
        """Somebody may have mended what killed in the worlds up to that one."""
        self.tries, self.gone_back, self.outlived = {}, set(), generation

    def passed(self, step: int) -> None:
        """That step is committed, be it for the first time or again."""
        if self.tries and min(self.tries) <= step:
            self.tries = {n: tries for n, tries in self.tries.items() if n > step}
            self.gone_back = {n for n in self.gone_back if n > step}
            self.outlived = max(self.outlived, self.dealt.generation)

    def went_back(self) -> None:
        """The next world starts from a checkpoint because of the worst step."""
        self.gone_back.add(self.worst[0])

    @property
    def worst(self) -> tuple[int, list[Try]]:
        """The step, and its tries of one signature, of which there are most; (-1, []): none."""
        counted = {
            step: [t for t in tries if t.victims] for step, tries in sorted(self.tries.items())
        }
        found = (
            (step, [t for t in tries if t.signature == signature])
            for step, tries in counted.items()
            for signature in sorted({t.signature for t in tries})
        )
        return max(found, key=lambda each: len(each[1]), default=(-1, []))

    @property
    def told(self) -> str:
        """Which step has ended trainers again and again, how often and how; empty: none has."""
        step, tries = self.worst
        if len(tries) < TOLD:
            return ""
        nodes = ", ".join(sorted({node for each in tries for node in each.victims}))
        return f"step {step} has ended trainers {len(tries)} times: {tries[0].signature} on {nodes}"

    @property
    def said(self) -> str:
        """The last evidence of that; empty: no step has done so."""
        said = (each.said for each in reversed(self.worst[1]) if each.said)
        return next(said, "") if self.told else ""

    def rung(self) -> PoisonRung:
        """What the next world is to try."""
        step, tries = self.worst
        if len(tries) >= ALONE:
            return "alone"
        if len(tries) == OLDER and step not in self.gone_back and _by_the_state(tries):
            return "older"
        return "relief" if len(tries) == RETRIES else "retry"

    @property
    def is_over(self) -> bool:
        """Whether one node computes alone for the sake of a step that is committed by now."""
        return self.dealt.apart and self.rung() != "alone"

    def choose(self, members: Sequence[NodeId]) -> NodeId | None:
        """To whom of ``members`` the next world gives its steps alone; None: to all."""
        if self.rung() != "alone" or not members:
            return None
        tries = self.worst[1]
        guilty = {t.convicted for t in tries}
        alone = [t.alone for t in tries]
        return min(members, key=lambda node: (node in guilty, alone.count(node)))

    def verdict(self, members: Collection[NodeId], now: float) -> str:
        """Why the job can't go on, or nothing; ``members``: of the world."""
        step, tries = self.worst
        guilty = sorted({t.convicted for t in tries if t.convicted is not None})
        if len(tries) < ALONE + _NODES or len(guilty) < _NODES:
            return ""
        if not {*members} <= {*guilty} and len(guilty) <= _NODES:
            return ""
        signature = tries[0].signature
        if now - tries[0].at_seconds < _least_seconds(signature):
            return ""
        spared = "" if signature == LOST else " and with memory to spare"
        return (
            f"step {step} ends every trainer that computes it: {signature} on"
            f" {', '.join(guilty)}, each of them alone{spared},"
            f" {len(tries)} times without progress; samples {_named(_suspects(tries))} of its batch"
        )


def _least_seconds(signature: str) -> float:
    """For so long it has to go on before the step is to blame."""
    own = {f"signal {number}" for number in FATAL_SIGNALS}
    if signature in (HANG, LOST):
        return _AWAY_SECONDS
    return 0.0 if signature in own else _OUTSIDE_SECONDS


def _by_the_state(tries: Sequence[Try]) -> bool:
    """Whether an older state may help: not where memory is short, or a file server away, nor where
    it may be the power."""
    spared = any(not short for t in tries for _, short in t.died)
    return spared and tries[0].signature not in (HANG, MEMORY, LOST)


def _suspects(tries: Sequence[Try]) -> list[int]:
    """The samples that each try had given to somebody who died."""
    found = [{n for start, end in t.samples for n in range(start, end)} for t in tries]
    # Two samples may be to blame; then no single one is in all of them.
    return sorted(set.intersection(*found) or set.union(*found))


def _named(samples: Sequence[int]) -> str:
    """As few words as will do, as 4-7, 9."""
    runs = []
    for _, group in groupby(enumerate(samples), key=lambda each: each[1] - each[0]):
        run = [sample for _, sample in group]
        runs.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}")
    more = ["…"] if len(runs) > _MOST_SAMPLES else []
    return ", ".join([*runs[:_MOST_SAMPLES], *more])
