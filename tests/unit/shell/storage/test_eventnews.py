"""What a node makes while it is connected is news here, whatever its clock says."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.shell.storage.eventnews import EventNews


def event(origin: str, number: int) -> dict[str, Any]:
    return {"origin": origin, "number": number}


@pytest.fixture
def news() -> EventNews:
    return EventNews("a/1")


def test_ones_own_are_news(news: EventNews) -> None:
    assert news.has(event("a/1", 1)) and not news.has(event("a/0", 1))


def test_what_a_node_had_when_it_was_met_is_none(news: EventNews) -> None:
    news.meets("b", "7")
    assert not news.has(event("b/7", 1)), "it hasn't said yet how many it has"
    news.heard("b", {"b/7": 3, "c/1": 1})
    assert [news.has(event("b/7", number)) for number in (3, 4)] == [False, True]
    assert not news.has(event("b/6", 4)), "an earlier run of that daemon"
    assert not news.has(event("c/1", 2)), "a node that was not met"


def test_a_node_that_has_none_yet(news: EventNews) -> None:
    news.meets("b", "7")
    news.heard("b", {})
    assert news.has(event("b/7", 1))


def test_that_it_asks_again_makes_nothing_old(news: EventNews) -> None:
    news.meets("b", "7")
    for number in (3, 4):
        news.heard("b", {"b/7": number})
    assert news.has(event("b/7", 4))


def test_what_it_has_made_while_it_was_away_is_none(news: EventNews) -> None:
    for number in (3, 9):
        news.meets("b", "7")
        news.heard("b", {"b/7": number})
    assert [news.has(event("b/7", number)) for number in (9, 10)] == [False, True]
