"""Members tell of their trainers' states, are parted, go on in worlds of their own, and meet under
one leader. Whoever then holds what it told otherwise than another is found out before the next
world is made, and nobody for what it has given up since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.leading.comparing import Differing, ToldOfStates
from elasticd.core.taking_part.told import ToldByMember
from elasticd.core.words.records import World
from elasticd.core.words.shards import STATES_TOLD, Digest
from elasticd.types import NodeId, Stamp, Tag
from tests.unit.core.leading.bench import JOB, world_of

NAMES = tuple(map(NodeId, "abcd"))
FIRST = Tag(1, NAMES[0], "x")

Act = tuple[str, frozenset[NodeId], int]
"""What is done, by whom or with whom, and a number for it."""


@dataclass
class Member:
    """A node, and what its trainer holds: ``variant`` is 0 where it has computed rightly."""

    world: World
    variant: int = 0
    told: ToldByMember = field(default_factory=ToldByMember)
    has: dict[tuple[int, Stamp], str] = field(default_factory=dict)
    """What it has told of the newest states that led to the one it holds."""


@dataclass
class Story:
    members: dict[NodeId, Member]
    reached: frozenset[NodeId] = frozenset(NAMES)
    """Whom the leader hears."""
    states: ToldOfStates = field(default_factory=ToldOfStates)
    counter: int = 1

    def hear(self, node: NodeId, told: Sequence[object]) -> None:
        for each in told:
            if node in self.reached and isinstance(each, Digest):
                self.states.hear(node, each)

    def meet(self, nodes: frozenset[NodeId], *, anew: bool) -> None:
        """A view of these forms, ``anew`` under another leader."""
        self.reached = nodes
        if anew:
            self.states = ToldOfStates()
        for node in sorted(nodes):
            self.hear(node, self.members[node].told.again())

    def tell(self, node: NodeId, step: int) -> None:
        """Of the state after a step that it made in its world."""
        me = self.members[node]
        generation = me.world.generation
        stamp = Stamp(f"{generation.counter}/{step}")
        digest = Digest(JOB, generation, step, stamp, str(me.variant))
        me.has[step, stamp] = digest.digest
        me.has = {state: me.has[state] for state in sorted(me.has)[-STATES_TOLD:]}
        told = me.told.states.hear(digest, me.world)
        assert told is not None
        self.hear(node, [told])

    def enter(self, nodes: frozenset[NodeId], keepers: int) -> None:
        """The leader makes a world of whom it reaches. The first few keep what they hold, the rest
        take the state of the first."""
        if not (names := sorted(nodes & self.reached)):
            return
        self.counter += 1
        giver = self.members[names[0]]
        sources = tuple(
            "keep" if place <= keepers else f"peer:{names[0]}" for place in range(len(names))
        )
        made = world_of(*names, generation=replace(FIRST, counter=self.counter))
        world = replace(made, sources=sources)
        self.states.digests.clear()
        for node, source in zip(names, sources, strict=True):
            me = self.members[node]
            me.world = world
            if source != "keep":
                me.variant, me.has = giver.variant, {}
            self.hear(node, me.told.enter(node, world))

    def differing(self) -> set[tuple[NodeId, NodeId, int]]:
        """Who holds what it has told otherwise than another."""
        return {
            (one, other, state[0])
            for one, other in combinations(NAMES, 2)
            for state, told in self.members[one].has.items()
            if self.members[other].has.get(state, told) != told
        }


@st.composite
def stories(draw: st.DrawFn) -> list[Act]:
    some = st.frozensets(st.sampled_from(NAMES), min_size=1)
    kinds = st.sampled_from(("tell", "tell", "tell", "spoil", "enter", "meet", "anew"))
    return draw(st.lists(st.tuples(kinds, some, st.integers(0, 6)), min_size=2, max_size=20))


def played(acts: Sequence[Act]) -> Story:
    """All begin in one world, and all meet in the end."""
    first = world_of(*NAMES, generation=FIRST)
    story = Story({node: Member(first) for node in NAMES})
    for kind, nodes, number in acts:
        if kind == "tell":
            for node in sorted(nodes):
                story.tell(node, number)
        elif kind == "spoil":
            story.members[min(nodes)].variant = number
        elif kind == "enter":
            story.enter(nodes, number)
        else:
            story.meet(nodes, anew=kind == "anew")
    story.meet(frozenset(NAMES), anew=bool(len(acts) % 2))
    return story


def judged(story: Story, kept: Iterable[NodeId]) -> Differing | None:
    """What the leader finds when all have answered, and these are to keep what they hold."""
    worlds = sorted((m.world for m in story.members.values()), key=lambda w: w.generation)
    since = {node: member.world.generation for node, member in story.members.items()}
    return story.states.compare_left(worlds, since, kept)


@given(stories(), st.frozensets(st.sampled_from(NAMES)))
def test_what_differs_is_found_before_the_next_world(acts: list[Act], kept: set[NodeId]) -> None:
    story = played(acts)
    found, differing = judged(story, kept), story.differing()
    if any({one, other} <= kept for one, other, _ in differing):
        assert found is not None, "they would go on together"
    if found is not None:
        assert found.world.generation == max(found.told.values())
        pairs = [{one, other} for one, other, step in differing if step == found.point.step]
        assert any(pair <= found.told.keys() for pair in pairs)


@given(stories())
def test_what_was_judged_is_not_found_again(acts: list[Act]) -> None:
    """It would count twice against who is odd."""
    story = played(acts)
    while (found := judged(story, NAMES)) is not None:
        story.states.settle(found.world, found.told)
        again = judged(story, NAMES)
        assert again is None or not found.told.keys() & again.told.keys()
    story.meet(frozenset(NAMES), anew=False)
    assert judged(story, NAMES) is None
