"""Two sides of a partition have gone on in the same bodies, each with results of ``run.on_main`` of
its own. When they meet, nobody goes on with a state in which results are that the caller of the
next world doesn't give: those of one history are never used in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.leading.calling import arranged
from elasticd.core.words.records import Called
from elasticd.core.words.worlds import Holding
from elasticd.recovery.restore import Resume
from elasticd.types import NodeId, Tag
from tests.unit.core.leading.bench import holds, point_of

NAMES = tuple(map(NodeId, "abcd"))
STEP = 4
"""Of the state that goes on; others may be one behind."""
BODIES = (STEP - 1, STEP, STEP + 1)
SIDES = tuple(Tag(counter, NodeId("a"), "x") for counter in (6, 7))
STRAYED = tuple(Tag(counter, NodeId("a"), "x") for counter in (9, 8))
"""Worlds that members of a side had entered when they came to nothing."""
Results = Mapping[int, tuple[str, ...]]
"""By body, in the order of calls."""


@dataclass(frozen=True)
class Member:
    """What a trainer holds, of which side it was, and what it knows of that side's results."""

    side: int
    behind: bool
    body: int
    holder: int
    """From whom it would take updates, or a state; of those who hold it."""
    replays: bool
    counts: Mapping[int, tuple[int, int]]
    """By body: so many results are known, and so many may have been used."""
    strayed: bool = False
    """It was in a newer world that came to nothing."""

    @property
    def step(self) -> int:
        return STEP - self.behind


@st.composite
def meetings(draw: st.DrawFn) -> tuple[tuple[Results, ...], tuple[Member, ...]]:
    """The results of each side, and who meets."""
    parted = {body: draw(st.integers(0, 3)) for body in BODIES}
    sides = tuple(
        {b: tuple(f"{b}.{i} {'both' if i < parted[b] else side}" for i in range(3)) for b in BODIES}
        for side in range(len(SIDES))
    )
    # Whatever has been used in a world is known to each of its members.
    used = [{body: draw(st.integers(0, 3)) for body in BODIES} for _ in SIDES]
    members = []
    for position in range(draw(st.integers(1, len(NAMES)))):
        side, behind = draw(st.integers(0, 1)), position > 0 and draw(st.booleans())
        counts = {}
        for body in BODIES:
            if STEP - behind <= body <= STEP + 1 - behind:
                known = draw(st.integers(used[side][body], 3))
                counts[body] = known, draw(st.integers(0, used[side][body]))
        body = draw(st.integers(STEP - behind, STEP + 1 - behind))
        holder, replays, strayed = draw(st.integers(0, 3)), draw(st.booleans()), draw(st.booleans())
        members.append(Member(side, behind, body, holder, replays, counts, strayed))
    return sides, tuple(members)


def holding(member: Member, sides: tuple[Results, ...]) -> Holding:
    """What a member says."""
    calls = tuple(
        Called(body, known, sides[member.side][body][:used], SIDES[member.side] if used else None)
        for body, (known, used) in sorted(member.counts.items())
    )
    entered = (STRAYED if member.strayed else SIDES)[member.side]
    return holds(point_of(member.step), entered, calls=calls, body=member.body)


def source(member: Member, keeping: list[NodeId]) -> str:
    """As from_survivors has it."""
    if not member.behind:
        return "keep"
    return f"{'updates' if member.replays else 'peer'}:{keeping[member.holder % len(keeping)]}"


@given(meetings())
def test_results_of_one_history_are_used_in_no_other(
    met: tuple[tuple[Results, ...], tuple[Member, ...]],
) -> None:
    sides, members = met
    names = NAMES[: len(members)]
    there = dict(zip(names, members, strict=True))
    keeping = [n for n, member in there.items() if not member.behind]
    before = Resume(point_of(STEP), names, tuple(source(m, keeping) for m in members), "")
    caller, counts, found = arranged(before, {n: holding(m, sides) for n, m in there.items()})
    main, given_again = there[caller], dict(counts)
    agreed = [m for m in there.values() if not m.behind and any(n for _, n in m.counts.values())]
    newest = [member.side for member in agreed]
    assert main.side == max(newest, default=main.side), "what was last agreed on is given up"
    sources = dict(zip(found.members, found.sources, strict=True))
    assert sources[caller] == "keep"
    for name, member in there.items():
        kind, _, holder = sources[name].partition(":")
        if holder:
            assert sources[NodeId(holder)] == "keep", f"{name} takes what {holder} is to lose"
        if kind == "peer":
            continue
        for body, (_, used) in member.counts.items():
            ours, theirs = sides[member.side][body][:used], sides[main.side][body]
            # Of a body that is over for the caller all results count; of others those it gives.
            theirs = theirs if body < STEP else theirs[: given_again.get(body, 0)]
            assert ours == theirs[:used], f"{name} has used {ours}, {caller} gives {theirs}"
    strayed_behind = any(m.behind for m in members) and any(m.strayed for m in members)
    if len({member.side for member in members}) == 1 and not strayed_behind:
        assert found == before, "they were in one world: all is as it was"
