"""What nodes have told of their trainers' own states, and whether a leader acts on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from elasticd.core.words.records import World
from elasticd.core.words.shards import Digest
from elasticd.types import NO_TAG, JobId, NodeId, Stamp, Tag

Told = dict[tuple[int, Stamp], str]


@dataclass(slots=True)
class Tellings:
    """Two nodes that have told of one state otherwise don't both keep what they hold."""

    told: dict[tuple[NodeId, JobId], Told] = field(default_factory=dict)
    """Of the state that its trainer has had ever since; the check by step and stamp."""
    since: dict[tuple[NodeId, JobId], Tag] = field(default_factory=dict)
    """The world in which each took the state that it has. It may tell again of shards before."""
    boots: dict[NodeId, str] = field(default_factory=dict)
    """The run of each daemon that has told this: the next one may know nothing of it."""
    answered: dict[tuple[NodeId, JobId], Told] = field(default_factory=dict)
    """What it had told when it last said what its trainer holds."""
    chosen: set[JobId] = field(default_factory=set)
    """A leader has just said that all take the state of one of them, as theirs differ."""
    void: set[tuple[NodeId, JobId, Stamp]] = field(default_factory=set)
    """What that one tells of it, it had told before: another state than the one it has, perhaps."""

    def tells(self, node: NodeId, boot: str, told: Digest | None) -> None:
        """To its leader."""
        if self.boots.get(node) != boot:
            self.boots[node] = boot
            for key in [key for key in self.told if key[0] == node]:
                del self.told[key]
        if told is None or (node, told.job, told.stamp) in self.void:
            return
        if told.generation >= self.since.get((node, told.job), NO_TAG):
            self.told.setdefault((node, told.job), {})[told.step, told.stamp] = told.digest

    def answers(self, node: NodeId, job: JobId) -> None:
        """What its trainer holds, to a leader that is about to make a world."""
        self.answered[node, job] = dict(self.told.get((node, job), {}))

    def leads(self, node: NodeId, job: JobId, own: Iterable[Digest]) -> None:
        """Who leads hears itself at once: that is what it had told."""
        self.answered[node, job] = {
            (told.step, told.stamp): told.digest
            for told in own
            if (node, job, told.stamp) not in self.void
        }

    def chose(self, job: JobId) -> None:
        self.chosen.add(job)

    def enters(self, node: NodeId, world: World) -> None:
        """Whoever takes another's state has told nothing of that."""
        if node in world.takers:
            self.since[node, world.job] = world.generation
            self.told.pop((node, world.job), None)
            self.answered.pop((node, world.job), None)

    def formed(self, world: World, sources: Mapping[NodeId, str]) -> str:
        """Why the members may not all keep what they hold, or nothing."""
        keep = [node for node in world.members if sources[node] == "keep"]
        if world.job in self.chosen:
            self.chosen.discard(world.job)
            for node in keep:
                self.void.add((node, world.job, world.stamp))
                self.told.get((node, world.job), {}).pop((world.step, world.stamp), None)
        for one, other in combinations(keep, 2):
            mine = self.answered.get((one, world.job), {})
            its = self.answered.get((other, world.job), {})
            for step, stamp in sorted(mine.keys() & its.keys()):
                if mine[step, stamp] != its[step, stamp]:
                    return (
                        f"{one} and {other} keep in {world.generation} what they told to differ"
                        f" after step {step}"
                    )
        return ""
