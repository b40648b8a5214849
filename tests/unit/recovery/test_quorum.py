"""Dynamic-linear voting, by hand and against every history that three nodes can have."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.recovery.quorum import Decision, History, PrimaryView, decide, holds
from elasticd.types import NO_TAG, NodeId, Tag

A, B, C, D, E = (NodeId(name) for name in "abcde")


def session(counter: int, *members: NodeId) -> PrimaryView:
    return PrimaryView(Tag(counter, members[0], ""), members)


def knows(
    formed: PrimaryView | None = None, *attempts: PrimaryView, born: int = 0, configured: int = 3
) -> History:
    return History(Tag(born, A, ""), formed, attempts, configured)


# --- by hand --------------------------------------------------------------------------------------


def test_a_first_view_takes_a_majority_of_the_configured_nodes() -> None:
    fresh = History(configured=3)
    assert decide({A: fresh, B: fresh}) == Decision(
        True, 'partition = "strict": 2 of 3 configured nodes are here, for a first view'
    )
    assert decide({A: fresh}) == Decision(
        False,
        'partition = "strict": 1 of 3 configured nodes are here, 2 are needed for a first view',
    )
    assert not decide({A: History(configured=2)}).primary, "two halves have nobody to break a tie"


def test_who_was_configured_with_more_nodes_is_believed() -> None:
    assert not decide({A: History(configured=1), B: History(configured=4)}).primary


def test_a_majority_of_the_last_view_goes_on() -> None:
    last = session(1, A, B, C)
    assert decide({A: knows(last), C: knows(last)}) == Decision(
        True, 'partition = "strict": 2 of the last view\'s 3 members are here', (B,)
    )
    assert decide({B: knows(last)}) == Decision(
        False,
        'partition = "strict": 1 of the last view\'s 3 members are here, 2 are needed',
        (A, C),
    )


def test_half_is_enough_with_the_member_that_breaks_ties() -> None:
    last = session(1, A, B)
    assert decide({A: knows(last)}).primary
    assert decide({B: knows(last)}).reason == (
        'partition = "strict": 1 of the last view\'s 2 members are here, without a, which breaks'
        " the tie"
    )


def test_the_newest_view_counts_not_the_largest() -> None:
    old, new = session(1, A, B, C), session(5, A, B)
    assert decide({A: knows(new)}).primary
    assert not decide({B: knows(new), C: knows(old)}).primary


def test_an_attempt_that_may_have_formed_counts_as_if_it_had() -> None:
    last, attempt = session(1, A, B, C), session(5, A, B)
    # b journalled the attempt and crashed; a may have formed it and go on alone.
    assert not decide({B: knows(last, attempt), C: knows(last)}).primary
    assert decide({A: knows(last, attempt), C: knows(last)}).primary


def test_an_attempt_that_a_member_never_made_has_failed() -> None:
    last, attempt = session(1, A, B, C), session(5, A, B, C)
    assert decide({B: knows(last, attempt), C: knows(last)}).primary, "c has never journalled it"


def test_an_attempt_all_of_whose_members_are_here_has_failed_or_is_known() -> None:
    last, attempt = session(1, A, B, C), session(5, B, C)
    both = knows(last, attempt)
    assert decide({B: both, C: both}).primary
    assert decide({B: knows(attempt), C: both}).primary


def test_joiners_have_no_vote() -> None:
    last = session(1, A, B, C)
    fresh = History(configured=5)
    assert not decide({A: knows(last), D: fresh, NodeId("e"): fresh}).primary
    assert decide({A: knows(last), B: knows(last), D: fresh}).primary


def test_who_forgot_has_no_vote() -> None:
    last = session(1, A, B, C)
    assert decide({A: knows(last), B: History(configured=3)}).reason == (
        'partition = "strict": 1 of the last view\'s 3 members are here, beside b, which forgot,'
        " 2 are needed"
    )


def test_who_forgot_does_not_prove_that_an_attempt_failed() -> None:
    last, attempt = session(1, A, B, C), session(5, A, B)
    forgot = knows(None, born=6)
    assert not decide({B: knows(last, attempt), C: knows(last), A: forgot}).primary


def test_who_lost_its_journal_and_began_anew_does_not_prove_that_an_attempt_failed() -> None:
    last, attempt = session(3, A, B, C, D, E), session(4, A, B, C)
    # a and c have formed the attempt, and a trains on alone, for it breaks the tie. c lost its
    # journal and has promised a low epoch since, among nodes that know as little.
    here = {
        B: knows(last, attempt, configured=5),
        C: replace(knows(born=1, configured=5), lost=True),
        D: knows(last, configured=5),
        E: knows(last, configured=5),
    }
    assert not decide(here).primary


def test_who_lost_its_journal_proves_that_what_it_promised_since_failed() -> None:
    last, attempt = session(5, B), session(7, A, B)
    lost = replace(knows(born=7), lost=True)
    assert not decide({A: lost, B: knows(last, attempt)}).primary
    assert decide({A: replace(lost, since=(attempt.epoch,)), B: knows(last, attempt)}).primary


def test_who_lost_its_journal_makes_no_first_view_with_a_newcomer() -> None:
    lost, fresh = replace(knows(born=1), lost=True), History(configured=3)
    assert decide({B: lost, C: fresh}).reason == (
        'partition = "strict": 2 of 3 configured nodes are here, of which b forgot, all are needed'
        " for a first view"
    )
    assert decide({A: fresh, C: fresh}).primary
    assert decide({A: lost, B: lost, C: lost}).primary, "nobody trains elsewhere"


# --- a model of the protocol ----------------------------------------------------------------------


@dataclass(frozen=True)
class Disk:
    """What one node's journal holds."""

    promised: Tag = NO_TAG
    formed: PrimaryView | None = None
    attempts: tuple[PrimaryView, ...] = ()
    born: Tag | None = None
    lost: bool = False
    since: tuple[Tag, ...] = ()

    def history(self, nodes: int) -> History:
        return History(self.born, self.formed, self.attempts, nodes, self.lost, self.since)

    def promise(self, epoch: Tag) -> Disk:
        since = (*self.since, epoch) if self.lost else ()
        return replace(self, promised=epoch, born=self.born or epoch, since=since)

    def attempt(self, made: PrimaryView) -> Disk:
        return replace(self, attempts=(*self.attempts, made))

    def form(self, made: PrimaryView) -> Disk:
        rest = tuple(a for a in self.attempts if a.epoch > made.epoch)
        return replace(self, formed=made, attempts=rest, lost=False, since=())


Disks = tuple[Disk, ...]


def names(count: int) -> tuple[NodeId, ...]:
    return tuple(NodeId("abcdefg"[i]) for i in range(count))


def follows(before: PrimaryView, after: PrimaryView) -> bool:
    """What no clever rule may break: who forms a view has a majority of the one formed before."""
    return after.epoch > before.epoch and holds(before.members, set(after.members))


def subsets(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(items, size) for size in range(len(items) + 1))


def everybody_goes_on(disks: Disks) -> bool:
    nodes = names(len(disks))
    here = {n: disk.history(len(disks)) for n, disk in zip(nodes, disks, strict=True)}
    return decide(here).primary


@dataclass(frozen=True)
class State:
    """All disks, and the newest view that was formed anywhere (an onlooker sees that)."""

    disks: Disks
    newest: PrimaryView | None


def after(state: State, group: tuple[int, ...], epoch: int) -> Iterator[State]:
    """Every way in which one attempt of ``group`` may end: who crashes where."""
    nodes = names(len(state.disks))
    members = tuple(nodes[i] for i in group)
    disks = list(state.disks)
    here = {nodes[i]: disks[i].history(len(disks)) for i in group}
    tag = Tag(epoch, members[0], "")
    for i in group:
        disks[i] = disks[i].promise(tag)
    if not decide(here).primary:
        yield State(tuple(disks), state.newest)
        return
    made = PrimaryView(tag, members)
    for reached in subsets(group[1:]):
        tried = list(disks)
        for i in (group[0], *reached):
            tried[i] = tried[i].attempt(made)
        if len(reached) < len(group) - 1:
            yield State(tuple(tried), state.newest)
            continue
        assert state.newest is None or follows(state.newest, made), (state, made)
        for told in subsets(group):
            done = list(tried)
            for i in told:
                done[i] = done[i].form(made)
            yield State(tuple(done), made)


@pytest.mark.parametrize("attempts", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_no_history_of_three_nodes_lets_two_views_train(attempts: int) -> None:
    """Exhaustive: every sequence of attempts by any groups, with every way to crash."""
    start = State((Disk(),) * 3, None)
    todo, seen = deque([(start, 0)]), {start}
    groups = [group for group in subsets((0, 1, 2)) if group]
    while todo:
        state, depth = todo.popleft()
        assert everybody_goes_on(state.disks), state
        if depth == attempts:
            continue
        for group in groups:
            for found in after(state, group, depth + 1):
                if found not in seen:
                    seen.add(found)
                    todo.append((found, depth + 1))
    assert len(seen) > 1000


@dataclass
class Ballot:
    """One attempt in slow motion: its messages arrive in any order, or never."""

    epoch: Tag
    members: tuple[NodeId, ...]
    histories: dict[NodeId, History]
    attempted: set[NodeId]
    decided: bool = False
    formed: bool = False


class Model:
    """Ballots that overlap. Nodes crash by never being stepped again in a ballot."""

    def __init__(self, count: int) -> None:
        self.nodes = names(count)
        self.disks = {node: Disk() for node in self.nodes}
        self.ballots: list[Ballot] = []
        self.log: list[PrimaryView] = []

    def begin(self, members: tuple[NodeId, ...], proposer: NodeId) -> None:
        counter = self.disks[proposer].promised.counter + 1
        epoch = Tag(counter, proposer, str(len(self.ballots)))
        self.ballots.append(Ballot(epoch, members, {}, set()))
        self.promise(self.ballots[-1], proposer)

    def promise(self, ballot: Ballot, node: NodeId) -> None:
        disk = self.disks[node]
        if node in ballot.members and disk.promised < ballot.epoch:
            ballot.histories[node] = disk.history(len(self.nodes))
            self.disks[node] = disk.promise(ballot.epoch)

    def attempt(self, ballot: Ballot, node: NodeId) -> None:
        if not ballot.decided:
            complete = ballot.histories.keys() == set(ballot.members)
            ballot.decided = complete and decide(ballot.histories).primary
        disk = self.disks[node]
        first = node == ballot.epoch.leader or ballot.epoch.leader in ballot.attempted
        if ballot.decided and first and disk.promised == ballot.epoch and node in ballot.members:
            ballot.attempted.add(node)
            if PrimaryView(ballot.epoch, ballot.members) not in disk.attempts and (
                disk.formed is None or disk.formed.epoch < ballot.epoch
            ):
                self.disks[node] = disk.attempt(PrimaryView(ballot.epoch, ballot.members))

    def lose(self, node: NodeId) -> None:
        """Its journal is lost, and it knows that."""
        self.disks[node] = Disk(lost=True)
        if all(disk.lost for disk in self.disks.values()):
            self.log.clear()  # nobody knows of a view, or a number, that is to be followed

    def form(self, ballot: Ballot, node: NodeId) -> None:
        made = PrimaryView(ballot.epoch, ballot.members)
        proposes = self.disks[ballot.epoch.leader].promised == ballot.epoch
        if not ballot.formed and ballot.attempted == set(ballot.members) and proposes:
            ballot.formed = True
            assert not self.log or follows(self.log[-1], made), (self.log, made)
            self.log.append(made)
        if ballot.formed and self.disks[node].promised == ballot.epoch and node in ballot.members:
            self.disks[node] = self.disks[node].form(made)


_MOVES = st.tuples(
    st.sampled_from(("begin", "promise", "attempt", "form", "all", "lose")),
    st.integers(0, 1000),
    st.integers(0, 1000),
)


@settings(max_examples=800)
@given(count=st.integers(2, 5), moves=st.lists(_MOVES, max_size=60))
def test_two_views_never_train_however_ballots_overlap(
    count: int, moves: list[tuple[str, int, int]]
) -> None:
    model = Model(count)
    for kind, one, other in moves:
        if kind == "begin":
            members = tuple(n for i, n in enumerate(model.nodes) if (one >> i) & 1)
            if members:
                model.begin(members, members[other % len(members)])
        elif kind == "lose":
            model.lose(model.nodes[other % count])
        elif model.ballots:
            ballot = model.ballots[-1 - one % min(3, len(model.ballots))]
            everybody = ballot.members if kind == "all" else ()
            for node in everybody:
                model.promise(ballot, node)
            leader = (ballot.epoch.leader,) if everybody else ()
            for node in (*leader, *everybody):
                model.attempt(ballot, node)
            if everybody:
                model.form(ballot, ballot.epoch.leader)
            else:
                getattr(model, kind)(ballot, model.nodes[other % count])
    disks: Mapping[NodeId, Disk] = model.disks
    if not any(kind == "lose" for kind, _, _ in moves):
        assert everybody_goes_on(tuple(disks[node] for node in model.nodes))


def test_the_model_sees_a_rule_that_forgets_attempts() -> None:
    """Else a broken rule would pass too."""
    last, attempt = session(1, A, B, C), session(5, A, B)
    disks = {A: knows(last, attempt), B: knows(last, attempt), C: knows(last)}
    forgetful = {node: replace(h, attempts=()) for node, h in disks.items() if node != A}
    assert decide(forgetful).primary and not follows(attempt, session(6, B, C))
