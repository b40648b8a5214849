"""Which certificates are old, and when they may be refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import ProtocolError
from elasticd.trust import renewal
from elasticd.trust.names import Issued, last_serial
from elasticd.trust.renewal import Renewal, RenewalProgress, standing
from elasticd.types import NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
renewals = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(
    lambda both: Renewal().merged(Renewal(*both))
)


@given(renewals, renewals, renewals)
def test_lists_merge_in_any_order_and_never_take_back(a: Renewal, b: Renewal, c: Renewal) -> None:
    both = a.merged(b)
    assert both == b.merged(a) and both.merged(c) == a.merged(b.merged(c))
    assert both.merged(a) is both and both.wanted >= both.refused
    for serial in range(7):
        shown = Issued("x", serial)
        assert both.refuses(shown) == (a.refuses(shown) or b.refuses(shown))
        assert both.is_due(shown) == (a.is_due(shown) or b.is_due(shown))


@given(renewals)
def test_it_survives_the_wire(known: Renewal) -> None:
    assert renewal.read(*known.words()) == known


def test_who_says_nothing_wants_nothing() -> None:
    assert renewal.read("", "") == Renewal() and Renewal().words() == ("", "")
    assert not Renewal().is_due(Issued("x", 1)) and not Renewal().is_under_way


@pytest.mark.parametrize("word", ["x", "-1", "1" * 41, "0x", " "])
def test_nonsense_is_refused(word: str) -> None:
    for words in ((word, ""), ("", word)):
        with pytest.raises(ProtocolError, match="no certificate"):
            renewal.read(*words)


@pytest.mark.parametrize("word", ["", "8", "7", "ff"])
def test_a_former_certificate_makes_nobody_renew(word: str) -> None:
    assert renewal.told("6", Issued("x", 7)) == Renewal(6)
    with pytest.raises(ProtocolError, match="newer certificate than its own"):
        renewal.told(word, Issued("x", 7))


@pytest.mark.parametrize("ahead_seconds", [-1e9, 0.0, 1e7, 3.1e7, 3.2e7, 1e9, 1e14])
@pytest.mark.parametrize("shown_seconds", [-1e9, 0.0, 1e9, 1e14])
def test_a_year_ahead_is_believed_or_what_was_shown(
    ahead_seconds: float, shown_seconds: float
) -> None:
    now = 1.8e9
    news = Renewal(last_serial(now + ahead_seconds))
    believed = ahead_seconds < 3.15e7 or ahead_seconds <= shown_seconds
    for each in (news, Renewal().merged(Renewal(0, news.wanted))):
        assert each.is_believable(last_serial(now + shown_seconds), now) == believed


def test_old_ones_are_refused_once_all_that_are_there_have_new_ones() -> None:
    def now(
        present: set[NodeId], shown: dict[NodeId, int], given: dict[NodeId, int]
    ) -> RenewalProgress:
        return standing(7, (B, A, C), present, shown, given)

    found = now({A, B}, {A: 8, B: 7, C: 7}, {})
    assert found == RenewalProgress((A,), (B,), (C,)) and not found.may_end(settled=True)
    # One that is there may not have what was made for it.
    assert now({A, B}, {A: 8}, {B: 9}).waiting == (B,)
    found = now({A, B}, {A: 8, B: 9}, {})
    assert found.away == (C,) and found.may_end(settled=True)
    # A daemon that was just started doesn't know who is there.
    assert not found.may_end(settled=False)
    # One that went away has got it, or has said before that it had.
    for shown, made in (({A: 8, B: 8, C: 8}, {}), ({A: 8, B: 8}, {C: 8})):
        found = now({A, B}, shown, made)
        assert found == RenewalProgress((A, B, C), (), ()) and found.may_end(settled=False)
