"""Join tokens: what is copied is whole or refused, and each is used so often and no longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import OperationError, UsageError
from elasticd.trust import tokens
from elasticd.trust.tokens import OpenToken, Token

SECRET, OTHER = b"s" * 16, b"t" * 16
TOKEN = Token("ab" * 32, SECRET, ("10.0.0.1:7070", "mac-1.local:7070"))
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ .,é"

_hosts = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}:[1-9][0-9]{0,3}", fullmatch=True)
_tokens = st.builds(
    Token,
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.binary(min_size=16, max_size=16),
    st.lists(_hosts, min_size=1, max_size=4).map(tuple),
)


@given(_tokens)
def test_a_token_is_read_as_it_was_printed(token: Token) -> None:
    text = token.text()
    assert tokens.read(text) == token
    # A terminal breaks it into lines.
    assert tokens.read(f"  {text[:20]}\n  {text[20:]}\n") == token
    assert text.isascii() and text.isprintable() and " " not in text


@given(_tokens, st.data())
def test_any_change_of_a_letter_is_refused(token: Token, data: st.DataObject) -> None:
    text = token.text()
    at = data.draw(st.integers(0, len(text) - 1))
    for letter in LETTERS:
        changed = text[:at] + letter + text[at + 1 :]
        if letter == text[at]:
            continue
        with pytest.raises(UsageError, match="no whole join token"):
            tokens.read(changed)


@given(_tokens, st.data())
def test_a_part_of_a_token_is_refused(token: Token, data: st.DataObject) -> None:
    text = token.text()
    at, end = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))
    if text[at:end] != text:
        with pytest.raises(UsageError):
            tokens.read(text[at:end])
    with pytest.raises(UsageError):
        tokens.read(text + data.draw(st.sampled_from(LETTERS.replace(" ", ""))))


@given(st.text())
def test_whatever_is_no_token_is_refused(text: str) -> None:
    for each in (text, tokens.PREFIX + text):
        with pytest.raises(UsageError):
            tokens.read(each)


def test_a_token_is_used_so_often() -> None:
    kept: tuple[OpenToken, ...] = (tokens.opened(SECRET, 100.0, 2),)
    kept = tokens.used(kept, SECRET, "key a", 1.0)
    kept = tokens.used(kept, SECRET, "key b", 1.0)
    with pytest.raises(OperationError, match="has been used"):
        tokens.used(kept, SECRET, "key c", 1.0)
    # Its node has not heard the answer: that counts once.
    assert tokens.used(kept, SECRET, "key a", 1.0) == kept


def test_a_token_ends() -> None:
    kept = tokens.used((tokens.opened(SECRET, 100.0, 2),), SECRET, "key a", 99.0)
    for key in ("key a", "key b"):
        with pytest.raises(OperationError, match="expired or was not made here"):
            tokens.used(kept, SECRET, key, 100.0)
    with pytest.raises(OperationError, match="expired or was not made here"):
        tokens.check(kept, SECRET, 100.0)


def test_who_has_no_token_hears_the_same_whatever_there_is() -> None:
    spent = tokens.used((tokens.opened(SECRET, 100.0, 1),), SECRET, "key", 1.0)
    heard = set()
    for kept in ((), spent, (tokens.opened(SECRET, 0.5, 1),)):
        for secret in (OTHER, b"", SECRET[:-1], SECRET + b"s"):
            with pytest.raises(OperationError) as caught:
                tokens.used(kept, secret, "key", 1.0)
            heard.add(str(caught.value))
    assert len(heard) == 1


def test_what_is_kept_is_bounded_and_says_no_secret() -> None:
    kept: tuple[OpenToken, ...] = (tokens.opened(OTHER, 1.0, 1),)
    for number in range(tokens.MOST_OPEN + 5):
        kept = tokens.with_new(kept, tokens.opened(b"%d" % number, 100.0, 1), 2.0)
    assert len(kept) == tokens.MOST_OPEN
    newest = b"%d" % (tokens.MOST_OPEN + 4)
    assert tokens.used(kept, newest, "key", 2.0) != kept
    assert SECRET.hex() not in repr(tokens.opened(SECRET, 1.0, 1))
    assert repr(SECRET) not in repr(tokens.opened(SECRET, 1.0, 1))
