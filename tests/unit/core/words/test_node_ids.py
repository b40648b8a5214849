"""A node id that another process says is one that elasticd.toml could say, in words and records:
it comes to file names, logs and terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoints import manifest
from elasticd.core.recall import KINDS
from elasticd.core.words.codec import Words, from_plain, to_plain
from elasticd.errors import ProtocolError
from elasticd.settings.ownname import default_node_id
from elasticd.types import NodeId, is_node_id
from tests.fuzz.samples import NAMES, sample
from tests.unit.core.words.conversations import CONVERSATIONS, WORDS

NAMED = NAMES[NodeId]
EVIL = (
    "..", ".", "../../etc", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", "\x1b[31mred", "-rf",
    " ", "a b", "n\u00f6de", "\u202eedon", "a" * 64, "a" * 10_000, "a\n", "%s", "$(id)", "_a",
)  # fmt: skip


def with_each(plain: Any, named: str, new: str) -> Iterator[Any]:
    """With ``new`` in the place of each ``named`` of it in turn."""
    if plain == named:
        yield new
    elif isinstance(plain, dict):
        for key, value in plain.items():
            for other in with_each(value, named, new):
                yield {**plain, key: other}
            if key == named:
                yield {(new if k == key else k): v for k, v in plain.items()}
    elif isinstance(plain, list):
        for at, value in enumerate(plain):
            for other in with_each(value, named, new):
                yield [*plain[:at], other, *plain[at + 1 :]]


def namings(named: str) -> int:
    """How often conversations say it."""
    return sum(
        len([*with_each(words.encode(sample(kind, True)), named, "x")])
        for words in CONVERSATIONS.values()
        for kind in words.kinds
    )


def refused(decode: Callable[[Any], Any], plain: Any, named: str, evils: Iterable[str]) -> None:
    """Nothing of what is decoded may be called so."""
    for evil in evils:
        for broken in with_each(plain, named, evil):
            with pytest.raises(ProtocolError):
                decode(broken)
                pytest.fail(f"{evil!r} was taken: {broken}")


def test_most_conversations_name_nodes() -> None:
    assert namings(NAMED) > 40


@pytest.mark.parametrize(("words", "kind"), WORDS)
def test_no_word_names_a_node_as_none_may_be_called(words: Words[Any], kind: type[Any]) -> None:
    refused(words.decode, words.encode(sample(kind, True)), NAMED, EVIL)


@pytest.mark.parametrize("kind", [pytest.param(v, id=k) for k, v in KINDS.items()])
def test_no_record_of_a_journal_does(kind: type[Any]) -> None:
    refused(partial(from_plain, kind), to_plain(sample(kind, True)), NAMED, EVIL)


@given(st.text(max_size=70))
def test_what_is_taken_is_what_the_settings_take(text: str) -> None:
    try:
        taken = from_plain(NodeId, text) == text
    except ProtocolError:
        taken = False
    # No node has the empty id: it stands for none, in a tag that names nothing.
    assert taken == (is_node_id(text) or text == "")


@given(st.from_regex("[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True))
def test_each_that_the_settings_take_is_taken(text: str) -> None:
    assert from_plain(NodeId, text) == text == from_plain(tuple[NodeId, ...], [text])[0]
    assert is_node_id(default_node_id())


@pytest.mark.parametrize("evil", EVIL)
def test_no_manifest_names_holders_so(evil: str) -> None:
    with pytest.raises(ValueError, match="node"):
        manifest._nodes([evil])
