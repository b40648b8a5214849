"""What the calls of ``run.on_main`` have returned, as far as this trainer knows.

A call is named by the step whose body makes it (0: above the loop) and by its index there. Its
function runs on one rank, the world's caller. The result goes to every member; it may be used once
the leader has said that every member has it. So whoever outlives a world knows whatever has been
used in it: the next caller is one that knows all of it, gives that again, and goes on from there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Literal

from elasticd.core.words.records import Called
from elasticd.core.words.trainers import (
    TellAgreed,
    TellResult,
    TrainerCounts,
    TrainerHolds,
    TrainerRefused,
    TrainerReturned,
)
from elasticd.counting import counted
from elasticd.train.protocol.arrivals import Arrivals
from elasticd.train.protocol.voice import Voice
from elasticd.train.world import TrainerWorld
from elasticd.types import Tag

Answer = bytes | Literal["run", "void", "over"]
"""What a call comes to: a result; the function is to run here; the body counts for nothing here, as
the job goes on from another state or ends before it; the job has ended."""


@dataclass(slots=True)
class _Body:
    results: list[bytes] = field(default_factory=list)
    fresh: int = 0
    """So many of them were given, or given again, in the present world."""
    agreed: int = 0
    """So many may be used."""
    agreed_in: Tag | None = None
    """The newest world that has said so."""

    def agree(self, world: TrainerWorld, count: int) -> None:
        """So many may be used, as is said in this world."""
        self.agreed, self.agreed_in = max(self.agreed, count), world.generation

    @property
    def usable(self) -> list[bytes]:
        return self.results[: self.agreed]


class Calls:
    """Of one trainer."""

    def __init__(self, voice: Voice, arrivals: Arrivals) -> None:
        self._voice, self._arrivals = voice, arrivals
        self.over = False
        """The job has ended."""
        self._bodies: dict[int, _Body] = {}
        """What has led to the state in place, or may have."""
        self._coming: dict[int, _Body] | None = None
        """The same of the state that the world starts from, while that isn't in place yet. The
        world may end before it is: ours is what we hold then, with all that was used in it."""
        self._world: TrainerWorld | None = None
        """The newest that was given, until it is frozen; the script may not be in it yet."""
        self._wanted: tuple[int, int, int] | None = None
        """What was said of a call that waits in this world: body, results wanted, step."""
        self._body = -1
        """The one that has begun last."""
        self._ended: tuple[int, int] | None = None
        """The body that has ended last, and how many calls it made."""

    # --- worlds -----------------------------------------------------------------------------------

    @property
    def _newest(self) -> dict[int, _Body]:
        """What the newest world is about."""
        return self._bodies if self._coming is None else self._coming

    def enter(self, world: TrainerWorld) -> None:
        """A world is given. Of what led to its state, if that is another, nothing is known yet."""
        self._stay()
        self._world, self._wanted = world, None
        if world.state != "keep":
            self._coming = {}
        self.passed(world.point.step)
        if world.rank == world.caller:
            self._give_again(world)
            return
        known = dict(world.calls)
        for body, here in self._newest.items():
            del here.results[max(here.agreed, known.get(body, 0)) :]
            here.fresh = 0

    def _stay(self) -> None:
        """The state that was to come does not. The body that was under way meanwhile may have gone
        on with what was to lead to that one."""
        coming, self._coming = self._coming, None
        there = None if coming is None else coming.get(self._body)
        if there is None:
            return
        here = self._bodies.setdefault(self._body, _Body())
        if there.agreed > here.agreed:
            here.results[here.agreed :] = there.usable[here.agreed :]
            here.agreed, here.agreed_in = there.agreed, there.agreed_in

    def settled(self) -> None:
        """The state that the world starts from is in place."""
        if self._coming is not None:
            self._bodies, self._coming, self._ended = self._coming, None, None

    def replaced(self) -> None:
        """A state from elsewhere is in place: nothing is known of what led to it, and the script is
        in no body that leads on from it."""
        self._bodies, self._ended, self._body = {}, None, -1

    def _give_again(self, world: TrainerWorld) -> None:
        for here in self._newest.values():
            here.fresh = len(here.results)
            if world.size == 1:
                here.agree(world, here.fresh)
        for word in self._given():
            self._voice.say(word)

    def leave(self) -> None:
        """What is told of the present world counts no more."""
        self._stay()
        self._world = self._wanted = None

    def passed(self, step: int) -> None:
        """The state of that step is in place: nobody here needs what was called before."""
        if self._wanted is not None and self._wanted[2] < step:
            self._want_no_more()
        bodies = self._newest
        for body in [body for body in bodies if body < step]:
            del bodies[body]

    def told(self, word: TrainerHolds, *, complete: bool) -> TrainerHolds:
        """The answer to a freeze, with what is known here; ``complete``: the state came as what
        its step's body has left elsewhere."""
        calls = tuple(
            Called(body, len(here.results), tuple(map(digest, here.usable)), here.agreed_in)
            for body, here in sorted(self._bodies.items())
        )
        done = word.point is not None and self._has_ended(word.point.step)
        return replace(word, calls=calls, body=self._body, ended=complete or done)

    def _has_ended(self, body: int) -> bool:
        return self._body > body or (self._ended is not None and self._ended[0] == body)

    def again(self) -> list[TrainerReturned | TrainerCounts]:
        """To a daemon that was restarted, whatever it still may need."""
        world = self._world
        if world is None:
            return []
        counts = [self._counts(world, body) for body in sorted(self._newest)]
        wanted = self._wanted
        if wanted is not None and wanted[0] not in self._newest:
            counts.append(self._counts(world, wanted[0]))
        return [*self._given(), *counts]

    def _given(self) -> list[TrainerReturned]:
        world = self._world
        if world is None or world.rank != world.caller or world.size == 1:
            return []
        return [
            TrainerReturned(world.generation, body, index, data)
            for body, here in sorted(self._newest.items())
            for index, data in enumerate(here.results)
        ]

    # --- the daemon -------------------------------------------------------------------------------

    def hear(self, word: TellResult | TellAgreed) -> None:
        """Take in what comes from the caller, or the leader."""
        world = self._world
        if world is None or world.generation != word.generation:
            return
        if isinstance(word, TellAgreed):
            if (known := self._newest.get(word.body)) is not None:
                known.agree(world, word.count)
            return
        if word.body < world.point.step or world.rank == world.caller:
            return
        here = self._newest.setdefault(word.body, _Body())
        if word.index == here.fresh:
            here.fresh += 1
            if word.index >= here.agreed:
                here.results[word.index : word.index + 1] = [word.data]
        self._voice.say(self._counts(world, word.body))
        self._check(world)

    def _counts(self, world: TrainerWorld, body: int) -> TrainerCounts:
        here, wanted = self._newest.get(body), self._wanted
        wants, step = wanted[1:] if wanted is not None and wanted[0] == body else (0, 0)
        has = 0 if here is None else here.fresh
        return TrainerCounts(world.generation, body, has, wants, step)

    def _check(self, world: TrainerWorld) -> None:
        """The job can't go on if main called more often in the body that has ended here."""
        body, used = self._ended if self._ended is not None else (0, 0)
        here = self._bodies.get(body)
        if self._coming is not None or self._ended is None or here is None or here.fresh <= used:
            return
        where = f"in the body of step {body}" if body else "above the loop"
        reason = (
            f"rank {world.rank} ({world.members[world.rank]}) called "
            f"run.on_main() {counted(used, 'time')} {where}, "
            f"rank {world.caller} ({world.members[world.caller]}) more often: "
            "call it on every rank alike, under no `if run.is_main`"
        )
        self._voice.say(TrainerRefused(reason))

    # --- the script -------------------------------------------------------------------------------

    @property
    def _is_entered(self) -> bool:
        """Whether the script is in the newest world, or in none."""
        return self._arrivals.world is None

    @property
    def _is_aside(self) -> bool:
        """Whether the body under way leads to nothing: the world starts from another state."""
        world = self._world
        return world is not None and world.state != "keep" and not self._is_entered

    def called(self, body: int, index: int) -> Answer | None:
        """What a call comes to; None: not known yet."""
        if self.over:
            return "over"
        here, world = self._newest.get(body), self._world
        for each in (self._bodies.get(body), here):
            if each is not None and index < len(each.usable):
                return each.usable[index]
        if world is None:
            return None
        if self._is_aside:
            return None if index < dict(world.calls).get(body, 0) else "void"
        if 0 <= world.last < body:
            return "void"  # it had begun here before that was known; no other rank may be in it
        known = 0 if here is None else len(here.results)
        return "run" if world.rank == world.caller and index == known else None

    def asks(self, body: int, index: int, step: int) -> None:
        """A call is made; the script's state is that of ``step``. If it waits, that is told."""
        world = self._world
        waits = self.called(body, index) is None and not self.has_asked(body, index, step)
        if world is not None and waits:
            self._wanted = body, index + 1, step
            self._voice.say(self._counts(world, body))

    def _want_no_more(self) -> None:
        """Before the caller may forget what was called: a new leader shall not wonder."""
        world, wanted = self._world, self._wanted
        self._wanted = None
        if world is not None and wanted is not None:
            self._voice.say(self._counts(world, wanted[0]))

    def has_asked(self, body: int, index: int, step: int) -> bool:
        """Whether the daemon knows of a call that waits, if it is to know."""
        world = self._world
        return (
            world is None or world.rank == world.caller or self._wanted == (body, index + 1, step)
        )

    def returned(self, body: int, index: int, data: bytes) -> None:
        """The function has run here; that counts unless another rank is to run it by now, or it has
        run in a state that the world does not start from."""
        if self._is_aside:
            return
        world, here = self._world, self._newest.setdefault(body, _Body())
        if world is None or world.rank != world.caller or index != len(here.results):
            return
        here.results.append(data)
        here.fresh = len(here.results)
        if world.size == 1:
            here.agree(world, here.fresh)
        else:
            self._voice.say(TrainerReturned(world.generation, body, index, data))

    def begins(self, body: int) -> None:
        """A body begins here."""
        self._body = body

    def ends(self, body: int, used: int) -> None:
        """A body has ended here, which made so many calls."""
        world = self._world
        if self._is_aside:
            return
        self._ended = body, used
        self._want_no_more()
        if world is not None:
            self._check(world)


def digest(data: bytes) -> str:
    """The name of a result, where one member tells others what it has used."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
