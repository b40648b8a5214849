"""What a node remembers of primary views, and says when the next one is voted on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.context import Context
from elasticd.core.membership.votes import Votes
from elasticd.core.words.effects import Persist
from elasticd.core.words.records import Heard, View
from elasticd.recovery.quorum import MAX_SINCE, History, PrimaryView
from elasticd.types import JobId, Tag

from .peers import ME, START, A, B, C


def view_of(counter: int, *members: str, primary: bool = True) -> View:
    return View(Tag(counter, ME, "v"), tuple(sorted(members)), primary=primary)  # type: ignore[arg-type]


def session(view: View) -> PrimaryView:
    return PrimaryView(view.epoch, view.members)


@pytest.fixture
def votes() -> Votes:
    """Of a node that has never been in a view."""
    return Votes.of(Context(ME, lambda: "0000", now=START, strict=True), 3, None, None, ())


def journal(votes: Votes) -> list[str]:
    return [f.kind for f in votes.ctx.effects if isinstance(f, Persist)]


THREE = view_of(1, A, B, ME)


def test_a_view_is_promised_attempted_and_formed_apart(votes: Votes) -> None:
    votes.promise(replace(THREE, primary=False))
    assert votes.history == History(THREE.epoch, configured=3), "nobody may train in it yet"
    votes.promise(THREE)
    assert votes.history.attempts == (session(THREE),) and votes.history.formed is None
    votes.form(THREE)
    assert votes.history == History(THREE.epoch, session(THREE), (), 3)
    assert journal(votes) == ["view_attempt", "primary_attempt", "primary_formed"]


def test_who_is_asked_twice_has_attempted_it_once(votes: Votes) -> None:
    for _ in range(2):
        votes.promise(THREE)
    assert votes.history.attempts == (session(THREE),)


def test_an_older_attempt_is_settled_by_a_later_view_and_a_later_one_is_not(votes: Votes) -> None:
    old, later = view_of(1, A, ME), view_of(3, A, B, ME)
    votes.promise(old)
    votes.promise(later)
    votes.form(view_of(2, B, ME))
    assert votes.history.attempts == (session(later),)


def test_it_was_born_with_the_first_view_that_it_promised(votes: Votes) -> None:
    votes.promise(replace(view_of(4, A, ME), primary=False))
    votes.promise(replace(view_of(7, A, ME), primary=False))
    assert votes.history.born == Tag(4, ME, "v")


def test_a_view_that_may_not_train_leaves_no_mark_on_the_history(votes: Votes) -> None:
    votes.form(replace(THREE, primary=False))
    assert votes.history.formed is None and journal(votes) == ["view_formed"]


def test_with_partition_available_nothing_is_voted_on(votes: Votes) -> None:
    votes.ctx.strict = False
    votes.promise(THREE)
    votes.form(THREE)
    assert journal(votes) == ["view_attempt", "view_formed"]
    assert votes.history.formed is None
    assert votes.lost(THREE, [ME]) == ""


def test_what_is_remembered_is_what_the_journal_has(votes: Votes) -> None:
    tried = view_of(5, A, ME)
    made = Votes.of(votes.ctx, 3, Tag(1, A, "b"), THREE, (tried,), True, (Tag(4, A, "s"),))
    assert made.history == History(
        Tag(1, A, "b"), session(THREE), (session(tried),), 3, True, (Tag(4, A, "s"),)
    )


def test_a_node_that_lost_its_journal_says_what_it_promised_since_until_one_is_formed(
    votes: Votes,
) -> None:
    votes.history = replace(votes.history, lost=True)
    for counter in range(1, MAX_SINCE + 3):
        for _ in range(2):
            votes.promise(view_of(counter, A, ME, primary=False))
    since = votes.history.since
    assert len(since) == MAX_SINCE and since[-1].counter == MAX_SINCE + 2
    votes.form(view_of(99, A, ME))
    assert not votes.history.lost and votes.history.since == ()


# --- deciding -------------------------------------------------------------------------------------


def test_the_first_view_ever_needs_most_of_the_configured_nodes(votes: Votes) -> None:
    fresh = History(Tag(1, ME, "v"), configured=3)
    two = votes.decide(view_of(2, A, ME), {A: fresh, ME: fresh}, ())
    assert two.primary
    one = votes.decide(view_of(2, ME), {ME: fresh}, ())
    assert not one.primary and one.why


def test_a_decided_view_tells_of_the_newest_world_of_each_job(votes: Votes) -> None:
    fresh = History(Tag(1, ME, "v"), configured=1)
    one, two = JobId("job-1"), JobId("job-2")
    old, new = Tag(3, A, "x"), Tag(8, B, "y")
    heard = [Heard(two, old), Heard(one, new), Heard(one, old)]
    made = votes.decide(view_of(9, ME), {ME: fresh}, heard)
    assert made.heard == (Heard(one, new), Heard(two, old))


def test_who_votes_for_the_last_time_may_still_train_for_a_moment(votes: Votes) -> None:
    remembers = History(Tag(1, ME, "v"), session(THREE), configured=3)
    proposed = replace(view_of(2, A, ME), voters=(B,))
    made = votes.decide(proposed, dict.fromkeys((A, ME, B), remembers), ())
    assert made.primary and made.away == (B,)


# --- leaving, and losing the majority -------------------------------------------------------------


def test_a_primary_view_without_its_majority_is_none_any_more(votes: Votes) -> None:
    assert votes.lost(THREE, [A, ME]) == ""
    why = votes.lost(THREE, [ME])
    assert why.startswith('partition = "strict": ') and "1 of the view's 3 members" in why
    assert votes.lost(replace(THREE, primary=False), [ME]) == "", "that one never was"
    assert votes.lost(None, [ME]) == ""


def test_half_with_the_first_by_name_is_enough(votes: Votes) -> None:
    two = view_of(1, A, ME)
    assert votes.lost(two, [A]) == "" and votes.lost(two, [ME])


def test_who_leaves_counts_until_it_has_voted_or_time_is_up(votes: Votes) -> None:
    votes.leaves(A, THREE)
    assert votes.lost(THREE, [ME]) == ""
    votes.ctx.now += votes.ctx.timing.ballot_seconds - 0.1
    votes.tick()
    assert votes.lost(THREE, [ME]) == ""
    votes.ctx.now += 0.1
    votes.tick()
    assert votes.lost(THREE, [ME])


def test_who_is_gone_votes_no_more(votes: Votes) -> None:
    votes.leaves(A, THREE)
    assert votes.gone(A) and not votes.gone(A)
    assert votes.lost(THREE, [ME])


def test_who_is_in_no_primary_view_has_no_vote_to_wait_for(votes: Votes) -> None:
    votes.leaves(C, THREE)
    votes.leaves(A, replace(THREE, primary=False))
    votes.leaves(A, None)
    assert votes.leavers == {}


def test_a_node_that_leaves_owes_its_vote_to_those_who_stay(votes: Votes) -> None:
    votes.leave(THREE)
    assert votes.owed
    votes.promise(view_of(2, A, B))
    assert not votes.owed, "it has voted"
    votes.leave(THREE)
    votes.stay()
    assert not votes.owed
    for view in (view_of(1, ME), replace(THREE, primary=False), None):
        votes.leave(view)
        assert not votes.owed, "nobody needs it"


def test_a_view_that_is_formed_waits_for_nobodys_vote(votes: Votes) -> None:
    votes.leaves(A, THREE)
    votes.form(view_of(2, B, ME))
    assert votes.leavers == {}
