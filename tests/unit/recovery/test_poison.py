"""Poison: which deaths at a step say that the step kills, and what is tried before."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.recovery.poison import Dealt, Ladder, is_short, signature_of
from elasticd.types import NodeId, Range, Tag

A, B, C = (NodeId(name) for name in "abc")
ABC = (A, B, C)
BATCH = ((0, 12),)


@dataclass
class Story:
    """One try after the other, each in a world of its own."""

    members: tuple[NodeId, ...] = ABC
    ladder: Ladder = field(default_factory=Ladder)
    now: float = 0.0
    counter: int = 0

    def run(self, step: int = 7, *, of: tuple[NodeId, ...] | None = None) -> NodeId | None:
        """A world begins; to whom its first step is given."""
        members = of or self.members
        self.counter += 1
        self.now += 10.0
        alone = self.ladder.choose(members)
        shares: dict[NodeId, tuple[Range, ...]] = {
            n: ((4 * k, 4 * k + 4),) for k, n in enumerate(members)
        }
        if alone is not None:
            shares = {n: BATCH if n == alone else () for n in members}
        self.ladder.begin(Dealt(Tag(self.counter, A, ""), step, shares, shares))
        return alone

    def die(
        self, node: NodeId, signature: str = "signal 9", *, step: int = 7, short: bool = False
    ) -> None:
        tag = Tag(self.counter, A, "")
        self.ladder.took(node, signature, step, tag, self.now, short=short)

    def verdict(self) -> str:
        return self.ladder.verdict(self.members, self.now)

    def poison(self, tries: int, signature: str = "signal 9", *, short: bool = False) -> list[str]:
        """Everybody who computes the step dies of it; the verdict behind each try."""
        found = []
        for _ in range(tries):
            alone = self.run()
            for node in self.members if alone is None else (alone,):
                self.die(node, signature, short=short)
            found.append(self.verdict())
        return found


def test_it_climbs_from_a_retry_to_relief_an_older_checkpoint_and_nodes_alone() -> None:
    story, rungs, alone = Story(), [], []
    for _ in range(8):
        alone.append(story.run())
        for node in ABC if alone[-1] is None else (alone[-1],):
            story.die(node)
        rungs.append(story.ladder.rung())
    assert rungs == ["retry"] * 2 + ["relief", "older"] + ["alone"] * 4
    assert alone == [None] * 5 + [A, B, C]


def test_it_is_told_from_the_second_time_on_until_the_step_is_committed() -> None:
    story = Story()
    told = []
    for number in range(3):
        story.run()
        for node in (B, C)[: number + 1]:
            tag = Tag(story.counter, A, "")
            said = f"it sleeps, {number}"
            story.ladder.took(node, "a hang", 7, tag, story.now, short=False, said=said)
        told.append((story.ladder.told, story.ladder.said))
    assert told == [
        ("", ""),
        ("step 7 has ended trainers 2 times: a hang on b, c", "c: it sleeps, 1"),
        ("step 7 has ended trainers 3 times: a hang on b, c", "c: it sleeps, 2"),
    ]
    story.ladder.passed(7)
    assert (story.ladder.told, story.ladder.said) == ("", "")


def test_it_goes_back_once() -> None:
    story = Story()
    story.poison(4)
    assert story.ladder.rung() == "older"
    story.ladder.went_back()
    assert story.ladder.rung() == "retry", "others may join before it comes to that step again"


def test_a_step_that_kills_each_node_alone_is_poison_whatever_the_signal() -> None:
    for signature in ("signal 9", "signal 6", "signal 15", "want of memory"):
        *early, last = Story().poison(8, signature)
        assert not any(early)
        assert f"step 7 ends every trainer that computes it: {signature} on a, b, c" in last
        assert "8 times" in last


def test_two_nodes_are_enough_where_there_are_no_more_and_one_never_is() -> None:
    assert Story((A, B)).poison(7)[-1]
    assert not any(Story((A,)).poison(30))
    story = Story((A, B))
    for _ in range(20):
        if story.run() in (None, A):
            story.die(A)
        assert not story.verdict(), "b has computed nothing yet that it died of"


def test_short_memory_is_no_poison() -> None:
    assert not any(Story().poison(30, short=True))


def test_each_signature_has_a_budget_of_its_own() -> None:
    story = Story()
    for signature in ("signal 9", "signal 11", "a hang", "want of memory") * 2:
        assert story.run() is None
        for node in ABC:
            story.die(node, signature)
        assert not story.verdict()
    assert story.ladder.rung() == "retry"


def test_who_dies_beside_the_one_that_computes_says_nothing() -> None:
    story = Story()
    story.poison(5)
    for _ in range(20):
        alone = story.run()
        story.die(next(n for n in ABC if n != alone))
        assert not story.verdict()


def test_progress_forgets_and_other_steps_dont_count() -> None:
    story = Story()
    story.poison(7)
    story.ladder.passed(6)
    assert story.ladder.rung() == "alone", "going back is no progress"
    story.run(step=5)
    story.die(A, step=5)
    assert story.ladder.rung() == "alone" and not story.verdict()
    story.ladder.passed(7)
    assert story.ladder.rung() == "retry" and story.ladder.choose(ABC) is None
    for step in range(8, 40):
        story.run(step)
        story.die(A, step=step)
        story.ladder.passed(step)
        assert not story.verdict()


def test_a_death_of_a_world_that_never_ran_does_not_count() -> None:
    story = Story()
    for _ in range(30):
        story.counter += 1
        story.die(A)
        story.die(B)
    assert story.ladder.rung() == "retry" and not story.verdict()


def test_kills_from_outside_and_hangs_must_last_before_the_step_is_to_blame() -> None:
    for signature, seconds in (("signal 9", 30.0), ("a hang", 300.0)):
        story = Story()
        story.poison(4, signature)
        story.now = 0.5
        for _ in range(8):
            story.now -= 10.0
            alone = story.run()
            for node in ABC if alone is None else (alone,):
                story.die(node, signature)
        story.now = 10.0 + seconds - 1.0
        assert not story.verdict()
        story.now += 1.0
        assert story.verdict()


def test_the_samples_are_those_that_all_who_died_were_to_compute() -> None:
    story = Story()
    story.run()
    story.die(B)  # of its samples 4 to 7
    for _ in range(7):
        alone = story.run()
        if alone is None:
            story.die(B)
        else:
            story.die(alone)
    assert "samples 4-7 of its batch" in story.verdict()


def test_what_is_kept_has_a_bound() -> None:
    story = Story()
    story.poison(500, short=True)
    assert len(story.ladder.tries[7]) <= 64


def test_signatures() -> None:
    assert signature_of("worker_exit", -9) == signature_of("worker_exit", 137) == "signal 9"
    assert signature_of("oom", -9) == "signal 9"
    assert signature_of("oom", None) == "want of memory"
    assert signature_of("oom", 1) == "want of memory"
    assert signature_of("hang", -9) == "a hang"
    assert signature_of("worker_exit", 1) == signature_of("worker_exit", 0) == ""
    assert signature_of("peer_lost", None) == "the loss of the node"
    assert signature_of("ring_broken", None) == ""


def test_when_memory_was_short() -> None:
    huge = "RuntimeError: [malloc] Unable to allocate 99999999999 bytes. [room 8589934592 bytes]"
    small = "RuntimeError: [malloc] Unable to allocate 999999999 bytes. [room 10000 bytes]"
    assert is_short("oom", -9, "signal 9 while memory was short", relieved=True)
    assert not is_short("worker_exit", -9, "signal 9", relieved=False)
    assert is_short("oom", None, small, relieved=True)
    assert is_short("oom", None, huge, relieved=False), "something can still be given up"
    assert not is_short("oom", None, huge, relieved=True)
    assert is_short("oom", None, "std::bad_alloc", relieved=True), "nobody knows"


LOST = "the loss of the node"


def take_down(story: Story, tries: int) -> str:
    """Each time whoever computes goes down, and comes back. What follows from the last."""
    why = ""
    for _ in range(tries):
        alone = story.run()
        down = (A, B) if alone is None else (alone,)
        for node in down:
            story.die(node, LOST, short=is_short("peer_lost", None, "", relieved=True))
        why = story.verdict()
        for node in down:
            story.ladder.came_back(node, Tag(story.counter, A, ""))
    return why


def test_a_step_that_takes_machines_down_is_poison_after_a_while() -> None:
    assert not take_down(Story((A, B)), 7)
    why = take_down(Story((A, B)), 32)
    assert f"{LOST} on a, b, each of them alone, 31 times" in why, "the last is not back yet"


def test_nodes_that_are_cut_off_have_not_died_of_a_step() -> None:
    story = Story((A, B))
    for _ in range(60):
        alone = story.run()
        assert alone is None
        story.die(A, LOST, short=is_short("peer_lost", None, "", relieved=True))
        assert not story.verdict()
        assert (story.ladder.rung(), story.ladder.told) == ("retry", "")


def test_only_those_are_named_that_are_back_as_another_run() -> None:
    story = Story()
    for _ in range(2):
        story.run()
        for node in (A, B):
            story.die(node, LOST, short=True)
        story.ladder.came_back(B, Tag(story.counter, A, ""))
    assert story.ladder.told == f"step 7 has ended trainers 2 times: {LOST} on b"


def test_a_node_that_is_lost_while_it_waits_has_not_died_of_the_step() -> None:
    story = Story()
    story.poison(5)
    alone = story.run()
    waits = next(n for n in ABC if n != alone)
    story.die(waits, LOST, short=True)
    story.ladder.came_back(waits, Tag(story.counter, A, ""))
    assert not [each for each in story.ladder.tries[7] if each.signature == LOST]


def test_a_later_leader_goes_on_counting() -> None:
    """Its clock is another one."""
    story = Story((A, B))
    assert not take_down(story, 7)
    tries = story.ladder.carried(story.now + 1.0)
    for clock, later in ((5000.0, 239.0), (5000.0, 238.0)):
        heir = Story((A, B), now=clock + later - 10.0, counter=story.counter)
        for _ in range(2):  # it is heard of more than once
            heir.ladder.recall(tries, clock, committed=6)
        assert heir.ladder.told == story.ladder.told and heir.ladder.rung() == "alone"
        assert bool(take_down(heir, 1)) == (later == 239.0)


def test_two_sides_know_together_who_died() -> None:
    one, other = Story(), Story()
    for story, node in ((one, A), (other, B)):
        story.run()
        story.die(node, LOST, short=True)
    one.ladder.came_back(A, Tag(1, A, ""))
    one.ladder.recall(other.ladder.carried(0.0), 0.0, committed=6)
    (known,) = one.ladder.tries[7]
    assert dict(known.died) == {A: False, B: True} and known.samples == ((0, 4), (4, 8))


def test_tries_that_were_outlived_are_not_recalled() -> None:
    story = Story()
    story.poison(3)
    tries = story.ladder.carried(story.now)
    story.run()
    story.ladder.recall(tries, story.now, committed=7)
    story.ladder.passed(7)
    story.ladder.recall(tries, story.now, committed=5)
    assert not story.ladder.tries, "all have gone back since"
