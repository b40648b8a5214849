"""Whoever shows what it has computed is judged as by comparing everything anew at every word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.leading import proofs
from elasticd.core.leading.proofs import Proofs
from elasticd.core.words.records import Proof, World
from elasticd.core.words.worldlines import stayed
from elasticd.core.words.worlds import MemberStatus, Proven
from elasticd.recovery.divergence import Unlike
from elasticd.recovery.likeness import by_rank, unlike
from elasticd.types import JobId, NodeId, ProofPart
from tests.unit.core.leading.bench import status_of, world_of

JOB = JobId("job")
PARTS: tuple[ProofPart, ...] = get_args(ProofPart)
NAMES = ("model/a", "model/b", "optimizer/m", "run.track('seen', …)", "run.track('x', …)")
THOUSANDS = 3000
MEMBERS = 32


@dataclass
class Sent:
    """In place of a node's context."""

    words: list[tuple[NodeId, Any]] = field(default_factory=list)

    def send(self, node: NodeId, word: Any) -> None:
        self.words.append((node, word))


@dataclass
class Plainly:
    """Compares everything with everything, each time."""

    sent: Sent
    told: set[tuple[NodeId, ProofPart]] = field(default_factory=set)

    def look(
        self,
        world: World,
        statuses: Mapping[NodeId, MemberStatus],
        *,
        counts: bool,
        committed: int,
    ) -> dict[NodeId, str] | Unlike:
        odd: dict[NodeId, str] = {}
        kept = stayed(world)
        for part in PARTS if kept else ():
            shown = proofs._shown(world, statuses, part)
            ours = {n: shown[n] for n in (kept if part == "body" else kept[:1]) if n in shown}
            if counts and len(ours) > 1 and (found := by_rank(ours)) is not None:
                return found
            complete = part == "grain" or len(ours) == len(kept)
            for node in world.unproven:
                theirs = shown.get(node)
                if theirs is None or (node, part) in self.told or (counts and not ours):
                    continue
                why = [unlike(its, theirs, who, world.step + 1) for who, its in ours.items()]
                if not counts or not all(why):
                    self._tell(world, node, part)
                elif complete:
                    odd[node] = why[0]
            if committed > world.step + 1:
                for node in ours:
                    self._tell(world, node, part)
        return odd

    def _tell(self, world: World, node: NodeId, part: ProofPart) -> None:
        if (node, part) not in self.told:
            self.told.add((node, part))
            self.sent.send(node, Proven(JOB, world.generation, part))


def shows(world: World, proof: Proof | None) -> MemberStatus:
    told = status_of("active", world)
    assert told.trainer is not None
    return replace(told, trainer=replace(told.trainer, proof=proof))


def world_with(members: int, unproven: int) -> World:
    names = [NodeId(f"n{number:02}") for number in range(members)]
    joined = tuple(names[members - unproven :])
    sources = ("keep",) * (members - unproven) + ("peer:n00",) * unproven
    return replace(world_of(*names, step=10), unproven=joined, sources=sources)


maps = st.dictionaries(st.sampled_from(NAMES), st.sampled_from("ab"), min_size=1)
words = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(PARTS), maps, st.booleans(), st.integers(10, 12)),
    max_size=30,
)


@given(st.integers(1, 4), words)
def test_the_judgement_is_the_same(joined: int, said: list[Any]) -> None:
    world = world_with(5, joined)
    sents = Sent(), Sent()
    quick, plain = Proofs(sents[0], JOB), Plainly(sents[1])  # type: ignore[arg-type]
    statuses: dict[NodeId, MemberStatus] = {}
    for who, part, shown, counts, committed in said:
        node = world.members[who]
        told = statuses.get(node)
        known = told.trainer.proof if told is not None and told.trainer is not None else None
        proof = (known or Proof(world.generation)).put(part, dict(shown))
        statuses[node] = shows(world, proof)
        found, expected = (
            each.look(world, statuses, counts=counts, committed=committed)
            for each in (quick, plain)
        )
        assert found == expected
        assert sents[0].words == sents[1].words and quick.told == plain.told


class Read(dict[str, str]):
    """Counts how often all of it is read."""

    reads = 0

    def __eq__(self, other: object) -> bool:
        Read.reads += 1
        return super().__eq__(other)

    def items(self) -> Any:
        Read.reads += 1
        return super().items()

    def __iter__(self) -> Any:
        Read.reads += 1
        return super().__iter__()

    __hash__ = None


def test_what_is_shown_is_read_once_for_each_who_shows_it_not_for_each_word_that_is_heard() -> None:
    world = world_with(MEMBERS, 1)
    proofs_of = Proofs(Sent(), JOB)  # type: ignore[arg-type]
    statuses: dict[NodeId, MemberStatus] = {}
    Read.reads = 0
    for node in world.members[:-1]:
        shown = Read({f"model/{number}": "d" for number in range(THOUSANDS)})
        statuses[node] = shows(world, Proof(world.generation, body=shown))
        for _ in range(10):
            assert proofs_of.look(world, statuses, counts=True, committed=11) == {}
    assert Read.reads <= 2 * MEMBERS
