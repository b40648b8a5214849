"""What the members of a view have told the leader about one job: their trainers, worlds, stores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.words.records import StopAsked, View, World
from elasticd.core.words.worlds import Failing, MemberStatus
from elasticd.recovery import fitness, relief
from elasticd.recovery.lineages import Ran
from elasticd.recovery.samples import comparable
from elasticd.types import Lineage, NodeId, Sign

HOLDING = ("active", "finished")
"""Phases of trainers that hold a state, or are about to."""
LEFT = ("released", "done")
"""Phases of trainers that have left the loop, or were told to."""


_NUMBER = re.compile(r"([0-9]+)")
_SAMPLES_CURE = (
    ". These are the first samples: sort what is listed from folders and sets, give every node the "
    "same files, and draw random numbers from the global generators, which are seeded alike"
)


def is_anew(status: MemberStatus) -> bool:
    """Whether nothing of what a node had in its last world is left there, with no word why."""
    phase = status.trainer.phase if status.trainer is not None else ""
    return not status.faults and phase not in (*HOLDING, *LEFT)


@dataclass(slots=True)
class Roster:
    """The newest status of each member of ``view`` that has spoken in it."""

    view: View
    statuses: dict[NodeId, MemberStatus] = field(default_factory=dict)
    told_chips: dict[NodeId, str] = field(default_factory=dict)
    """What nodes compute with, as each has told in any view."""

    def follow(self, view: View) -> None:
        """A new view: all are to speak again."""
        self.view = view
        self.statuses.clear()

    def hear(self, node: NodeId, status: MemberStatus) -> None:
        """A member says how it is."""
        self.statuses[node] = status
        if status.chip or node not in self.told_chips:
            self.told_chips[node] = status.chip

    def trainer_ended(self, node: NodeId, failing: Failing | None = None) -> None:
        """What its daemon said of that trainer is out of date."""
        status = self.statuses.get(node)
        if status is not None:
            failing = failing or status.failing
            self.hear(node, replace(status, trainer=None, ready=False, failing=failing))

    def accuse(self, node: NodeId, fault: Sign, evidence: str) -> None:
        """A member's status may have been sent before that."""
        status = self.statuses.get(node)
        if status is not None:
            faults = (*status.faults, (fault, evidence))
            self.hear(node, replace(status, ready=False, faults=faults))

    def trainers(self, *phases: str) -> list[NodeId]:
        """Members whose trainer is in one of ``phases``, in the view's order."""
        found = ((n, self.statuses.get(n)) for n in self.view.members)
        return [n for n, s in found if s and s.trainer and s.trainer.phase in phases]

    def prepared(self, further_than: int) -> list[NodeId]:
        """Members whose trainer was in no world yet, and holds a state beyond that step: whoever
        gave it may have died since."""
        found = ((n, self.statuses[n].trainer) for n in self.trainers("ready"))
        points = [(n, trainer.prepared) for n, trainer in found if trainer is not None]
        return [n for n, point in points if point is not None and point.step > further_than]

    def asking(self, members: Iterable[NodeId]) -> dict[NodeId, StopAsked]:
        """Whose script has asked to stop."""
        found = ((n, s.trainer.stop) for n in members if (s := self.statuses.get(n)) and s.trainer)
        return {n: stop for n, stop in found if stop is not None}

    def unsettled(self) -> list[NodeId]:
        """Members whose trainer may still come up."""
        result = []
        for node in self.view.members:
            status = self.statuses.get(node)
            if (
                status is None
                or (not status.trouble and status.trainer is None)
                or (status.trainer is not None and status.trainer.phase == "starting")
            ):
                result.append(node)
        return result

    def held_up(self) -> list[NodeId]:
        """Members on which nothing runs for now, be it that the job's files are still to come. What
        its script does there isn't known yet."""
        statuses = ((node, self.statuses.get(node)) for node in self.view.members)
        return [
            node
            for node, s in statuses
            if s is not None and s.trouble and not (s.trainer or s.failing or s.hopeless)
        ]

    def silent(self) -> list[NodeId]:
        """Members that have not said yet how they are."""
        return [n for n in self.view.members if n not in self.statuses]

    def hopeless(self, idle: frozenset[NodeId] = frozenset()) -> bool:
        """Whether no member will ever have a trainer. Who only has ``idle`` members, which never
        train, knows nothing of the others."""
        statuses = [self.statuses.get(n) for n in self.view.members if n not in idle]
        return bool(statuses) and all(s is not None and s.hopeless for s in statuses)

    def troubles(self) -> str:
        """What keeps members from having a trainer, to be appended to a sentence."""
        texts = [f"{n}: {s.trouble}" for n, s in sorted(self.statuses.items()) if s.trouble]
        return "; " + "; ".join(texts) if texts else ""

    def stored(self) -> dict[NodeId, tuple[Stored, ...]]:
        """What each member has on its disk."""
        return {node: status.stored for node, status in self.statuses.items()}

    def has_stored(self) -> bool:
        """Whether any member has a checkpoint."""
        return any(self.stored().values())

    def warm(self, nodes: Iterable[NodeId]) -> bool:
        """Whether each of ``nodes`` has a spare reducer at hand."""
        return all((s := self.statuses.get(n)) is not None and s.warm for n in nodes)

    def domains(self, nodes: Iterable[NodeId]) -> list[str]:
        """The failure domain of each of ``nodes``; empty where it is not known."""
        return [s.domain if (s := self.statuses.get(n)) is not None else "" for n in nodes]

    def chips(self, nodes: Iterable[NodeId]) -> dict[NodeId, str]:
        """What each of ``nodes`` computes with; empty where it is not known."""
        return {n: self.told_chips.get(n, "") for n in nodes}

    def may_differ_in_chips(self, nodes: Iterable[NodeId]) -> bool:
        """Whether these don't all compute with the same, or one hasn't spoken yet: we may have just
        begun to lead."""
        told = {self.told_chips.get(n) for n in nodes}
        return None in told or len(told - {""}) > 1

    # --- worlds -----------------------------------------------------------------------------------

    def is_here(self, node: NodeId, world: World | None) -> bool:
        """Whether what a node last said is of ``world``, if it is a member of that."""
        if world is None or node not in world.members:
            return True
        known = self.statuses[node].world
        return known is not None and known.generation == world.generation

    def is_whole(self, world: World) -> bool:
        """Whether every member of ``world`` is in it, ready."""
        statuses = [self.statuses.get(n) for n in world.members]
        return all(
            s is not None
            and s.ready
            and s.world is not None
            and s.world.generation == world.generation
            for s in statuses
        )

    def worlds(self, world: World | None) -> list[World]:
        """Every world that is known of; ``world`` is the leader's own."""
        known = [s.world for s in self.statuses.values() if s.world is not None]
        return known if world is None else [*known, world]

    def newest_world(self, world: World | None) -> World | None:
        """Of all that are known of, as :meth:`worlds`."""
        return max(self.worlds(world), key=lambda w: w.generation, default=None)

    def last_run(self, lineage: Lineage, world: World | None) -> World | None:
        """The newest world of a lineage that may have taken a step: no member is known not to be
        in it."""
        for known in sorted(self.worlds(world), key=lambda w: w.generation, reverse=True):
            states = [self.statuses[n].world for n in known.members if n in self.statuses]
            entered = all(w is not None and w.generation >= known.generation for w in states)
            if known.lineage == lineage and entered:
                return known
        return None

    def ran(self, world: World | None) -> Ran:
        """The newest generation of each lineage that may have taken a step."""
        lineages = {known.lineage for known in self.worlds(world)}
        found = {name: self.last_run(name, world) for name in sorted(lineages)}
        return tuple((name, last.generation) for name, last in found.items() if last is not None)

    def last_of(self, lineage: Lineage, world: World | None) -> World | None:
        """The newest world of a lineage, though no step was taken in it."""
        found = [known for known in self.worlds(world) if known.lineage == lineage]
        return max(found, key=lambda w: w.generation, default=None)

    # --- fingerprints -----------------------------------------------------------------------------

    def least_micro(self) -> int:
        """How few samples a grain of this model may have, as its trainers say."""
        prints = [s.trainer.fingerprint for s in self.statuses.values() if s.trainer is not None]
        return max((int(p.get(relief.LEAST_MICRO, 1)) for p in prints), default=1)

    def prints(self, nodes: Iterable[NodeId]) -> dict[NodeId, Mapping[str, str]]:
        """What can be compared of the fingerprints of these nodes' trainers, of those that have
        come to their ``Run``."""
        found = ((n, s.trainer) for n in nodes if (s := self.statuses.get(n)) is not None)
        return comparable(
            {n: (t.fingerprint, t.samples) for n, t in found if t is not None and t.fingerprint}
        )

    def mismatch(self, members: Iterable[NodeId]) -> str:
        """What differs between the trainers of two members, or nothing."""
        prints = self.prints(members)
        if not prints:
            return ""
        first, *others = prints
        return next((text for n in others if (text := _differ(prints, first, n))), "")

    def odd(self, members: Iterable[NodeId], trained: Iterable[NodeId]) -> dict[NodeId, str]:
        """Whose trainer has built something else than most, and what; ``trained`` are those whose
        word counts, having made steps."""
        prints = self.prints(members)
        odd = fitness.odd_ones(prints, trained) if prints else ()
        right = next((n for n in sorted(prints) if n not in odd), None)
        return {n: _differ(prints, right, n) for n in odd if right is not None}


def _differ(prints: Mapping[NodeId, Mapping[str, str]], first: NodeId, node: NodeId) -> str:
    """The first difference between two fingerprints, or nothing."""
    one, own = prints[first], prints[node]
    for key in sorted(own.keys() | one.keys(), key=_in_order):
        theirs, mine = one.get(key, "missing"), own.get(key, "missing")
        if mine != theirs:
            cure = _SAMPLES_CURE if key == "grain0" else ""
            return (
                f"{key} is {theirs} on {first} and {mine} on {node}: "
                f"every rank must build the same model and data{cure}"
            )
    return ""


def _in_order(name: str) -> list[str | int]:
    """Line 9 before line 10."""
    return [int(part) if at % 2 else part for at, part in enumerate(_NUMBER.split(name))]
