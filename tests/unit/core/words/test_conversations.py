"""What holds of every word that a process says to another, generated from its definition."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.words.codec import Words
from tests.fuzz.fuzzer import ASKED, CHILDREN_SAY, FETCHES, HARMFUL, PEERS_SAY, SENT
from tests.fuzz.samples import frames
from tests.unit.core.words.conversations import CONVERSATIONS, WORDS
from tests.unit.core.words.drawn import is_read_or_refused, survives_the_wire


def test_the_conversations_are_found() -> None:
    assert {
        "DAEMONS", "CONNECTION", "FETCH", "OF_FETCH", "ASIDE", "WANTS", "FROM_GUEST",
        "FROM_TRAINER", "FROM_REDUCER", "FROM_ANY_CHILD", "TO_TRAINER", "TO_REDUCER",
        "TO_ANY_CHILD", "REQUESTS",
    } <= set(CONVERSATIONS)  # fmt: skip


@pytest.mark.parametrize(("words", "kind"), WORDS)
def test_a_word_survives_the_wire(words: Words[Any], kind: type[Any]) -> None:
    survives_the_wire(words, kind)


@pytest.mark.parametrize(("words", "kind"), WORDS)
def test_a_word_with_anything_in_a_field_is_read_or_refused(
    words: Words[Any], kind: type[Any]
) -> None:
    """Whatever a broken process says; each kind and each of its fields."""
    is_read_or_refused(words, kind)


@pytest.mark.parametrize("words", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_every_kind_is_among_what_the_fuzzer_sends(words: Words[Any]) -> None:
    assert {type(words.decode(frame)) for frame in frames(words)} == set(words.kinds)
    left_out = words.kinds[0]
    rest = {type(words.decode(frame)) for frame in frames(words, without=(left_out,))}
    assert rest == set(words.kinds[1:])


def test_the_fuzzer_sends_whatever_a_daemon_listens_to() -> None:
    told = {"OF_FETCH", "TO_GUEST", "TO_RENEWER", "TO_TRAINER", "TO_REDUCER", "TO_ANY_CHILD"}
    assert {name for name, words in CONVERSATIONS.items() if words in SENT} == (
        set(CONVERSATIONS) - told
    )
    sent = (*ASKED, *CHILDREN_SAY, *FETCHES, *PEERS_SAY)
    for words in SENT:
        assert all(frame in sent for frame in frames(words, without=HARMFUL)), words.kinds
