"""Who is there: links, peers, the dead and those who left."""

from __future__ import annotations

import pytest

from elasticd.core.membership.roll import Roll
from elasticd.types import Tag

from .peers import ME, A, B


@pytest.fixture
def roll() -> Roll:
    """With a peer that has been met."""
    made = Roll(ME)
    made.link(A, "a.1", "a:1", 0)
    made.meet(A)
    made.changed()
    return made


def test_who_is_met_lives_beside_us_by_name(roll: Roll) -> None:
    assert roll.living() == (A, ME)
    assert [roll.state_of(node) for node in (ME, A, B)] == ["alive", "alive", "dead"]


def test_a_closed_connection_makes_a_suspect_that_still_counts(roll: Roll) -> None:
    roll.peers[A].lost(50.0, "closed")
    roll.doubted()
    assert roll.suspects() == [A] and roll.living() == (A, ME) and roll.state_of(A) == "suspect"
    roll.peers[A].returned("a:2")
    roll.doubted()
    assert roll.suspects() == [] and roll.peers[A].address == "a:2"


def test_who_is_buried_is_known_by_its_run_when_it_comes_back(roll: Roll) -> None:
    roll.testify(A, "b does not hear it either")
    assert roll.bury(A) == "b does not hear it either"
    roll.drop(A)
    roll.changed()
    assert roll.living() == (ME,) and roll.silenced(A)
    assert roll.meet(A) == "a.1"
    assert roll.meet(A) is None, "that was told"


def test_what_others_say_of_it_is_void_once_it_speaks(roll: Roll) -> None:
    roll.testify(A, "b does not hear it either")
    roll.heard(A)
    assert roll.bury(A) == ""


def test_who_left_on_purpose_was_not_silenced(roll: Roll) -> None:
    roll.depart(A)
    roll.drop(A)
    assert not roll.silenced(A)
    roll.stay(A)
    assert roll.silenced(A)


def test_only_the_run_that_closed_is_unlinked(roll: Roll) -> None:
    roll.link(A, "a.2", "a:1", 0)
    roll.unlink(A, "a.1")
    assert A in roll.links
    roll.unlink(A, "a.2")
    assert A not in roll.links


def test_a_run_is_a_daemons_start_and_its_session(roll: Roll) -> None:
    assert roll.peers[A].run == ("a.1", 0)
    roll.link(A, "a.1", "a:1", 1)
    roll.meet(A)
    assert roll.peers[A].run == ("a.1", 1)


def test_which_view_a_peer_follows_is_not_known_until_it_says_so(roll: Roll) -> None:
    def followed() -> Tag | None:
        return roll.peers[A].epoch

    assert followed() is None
    roll.peers[A].follow(Tag(3, A, "v"), True)
    assert followed() == Tag(3, A, "v") and roll.peers[A].primary
    roll.peers[A].forget_view()
    assert followed() is None
