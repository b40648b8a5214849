"""What of a trainer's words is said again to a daemon that was restarted.

A frame that the old daemon had not read yet died with it. So whatever still matters is kept, and
repeated behind ``here``, the first word to the new one. What the old daemon did hear is repeated as
well: nobody can tell which it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from elasticd.core.words import trainers as w
from elasticd.recovery.samples import NO_SAMPLES
from elasticd.types import NO_TAG, Lineage, Point, ProofPart, Stamp, Tag

_KEPT_REPORTS = 4
"""What became of the shards of this many states is told again; older ones are of no use any
more."""


@dataclass(slots=True)
class _InWorld:
    """What was said in the present world, and means nothing in the next."""

    came: w.TrainerCame | None = None
    stops: w.TrainerStops | None = None
    finished: w.TrainerFinished | None = None
    gone: w.FromTrainer | None = None
    proofs: dict[ProofPart, w.TrainerProves] = field(default_factory=dict)


class Retold:
    """Hears whatever is said, and what makes it void."""

    def __init__(self) -> None:
        self._at_run: w.TrainerAtRun | None = None
        self._waiting = self._judged = self._released = False
        self._serial = 0
        self._entered: Tag | None = None
        self._given: Tag | None = None
        self._newest = self._took = NO_TAG  # of worlds that we were given, or left since
        self._probe: w.TrainerProbed | None = None
        self._here = _InWorld()
        self._digest: w.TrainerDigest | None = None
        self._prepared: Point | None = None
        self._shards: deque[w.TrainerWrote] = deque(maxlen=_KEPT_REPORTS)
        self._skipped: deque[w.TrainerSkipped] = deque(maxlen=_KEPT_REPORTS)

    def said(self, word: w.FromTrainer) -> None:
        """Keep what is to be repeated."""
        match word:
            case w.TrainerWaiting():
                self._waiting = True
            case w.TrainerAtRun():
                self._at_run = word
            case w.TrainerCame():
                self._here.came = word
            case w.TrainerLoaded():
                self._entered = self._given
            case w.TrainerProbed():
                self._probe, self._judged = word, False
            case w.TrainerProves(generation, part):
                if generation == self._given:
                    self._here.proofs[part] = word
            case w.TrainerStops():
                self._here.stops = word
            case w.TrainerFinished():
                self._here.finished = word
            case w.TrainerDigest():
                self._digest = word
            case w.TrainerWrote():
                self._shards.append(word)
                for late in [s for s in self._skipped if _state(s) == _state(word)]:
                    self._skipped.remove(late)
            case w.TrainerSkipped():
                self._skipped.append(word)  # else the leader waits for these shards
            case (
                w.TrainerLostReducer() | w.TrainerOutOfMemory() | w.TrainerLostScript()
                | w.TrainerRefused()
            ):  # fmt: skip
                self._here.gone = word  # ways of leaving a world that the leader must hear of
            case w.TrainerNotFinite(policy=policy):
                if policy == "restore":
                    self._here.gone = word
            case w.TrainerPrepared(point=point):
                self._prepared = point or self._prepared
            case w.TrainerLends():
                pass  # the view that follows the daemon's return begins growth again
            case w.TrainerSpoilt() | w.TrainerUnloaded():
                pass  # said while a world forms, which ends with that view
            case w.TrainerHolds() | w.TrainerExported() | w.TrainerNotExported():
                pass  # who asked has gone, and whoever still wants to know asks again
            case w.TrainerRechecked() | w.TrainerSampled():
                pass  # a sample: one that is lost is one check fewer, and nobody waits for it
            case w.TrainerProgress() | w.TrainerHere():
                pass  # made anew
            case w.TrainerReturned() | w.TrainerCounts():
                pass  # Calls knows them
            case _:
                assert_never(word)

    def given(self, generation: Tag, holds_state: bool) -> None:
        """The daemon gave us a world, for which the state is in place or will be brought."""
        self._given = self._newest = generation
        self._here, self._prepared = _InWorld(), None
        self._probe = None  # who was told no verdict computes it anew
        self._skipped.clear()  # nobody waits for shards of an older world
        if holds_state:
            self._entered = generation

    def brought(self) -> None:
        """A state from elsewhere is in place of ours."""
        self._took = self._newest

    def frozen(self) -> None:
        """The daemon made us leave our world."""
        self._given, self._here = None, _InWorld()

    def asked(self, serial: int) -> None:
        """The daemon has given an order with this number; it shall not be given again."""
        self._serial = max(self._serial, serial)

    def judged(self) -> None:
        """A verdict over our probe has come."""
        self._probe, self._judged = None, True

    def proven(self, part: ProofPart) -> None:
        """Nobody needs to hear of that again."""
        self._here.proofs.pop(part, None)

    def released(self) -> None:
        """We may leave the loop."""
        self._released = True

    def again(
        self, calls: Iterable[w.FromTrainer], progress: w.TrainerProgress | None
    ) -> list[w.FromTrainer]:
        """What tells a daemon that was restarted how we are: of ``calls`` before of how far we
        are, since who is further has given its results."""
        run = self._at_run
        here = w.TrainerHere(
            fingerprint=None if run is None else run.fingerprint,
            waiting=self._waiting,
            generation=self._given,
            entered=self._entered,
            used=self._newest != NO_TAG,
            serial=self._serial,
            judged=self._judged,
            released=self._released,
            prepared=self._prepared,
            took=self._took,
            samples=NO_SAMPLES if run is None else run.samples,
        )
        repeated = (
            self._here.came,
            *calls,
            progress,
            self._probe,
            *self._skipped,
            *self._shards,
            self._digest,
            *self._here.proofs.values(),
            self._here.stops,
            self._here.finished,
            self._here.gone,
        )
        return [here, *(word for word in repeated if word is not None)]


def _state(word: w.TrainerWrote | w.TrainerSkipped) -> tuple[Tag, Lineage, int, Stamp]:
    return word.generation, word.lineage, word.step, word.stamp
