"""What daemons announce of themselves, and what is made of anything that is announced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.shell.network import bonjour
from elasticd.shell.network.bonjour import MOST_HOSTS, Announcement, announced

NAME, CLUSTER = "0123456789abcdef" * 2, "ab" * 32
AT = ("10.0.0.1:7070", "169.254.3.4:7070")


def made(*addresses: str) -> Announcement:
    found = announced(NAME, CLUSTER, True, addresses)
    assert found is not None
    return found


def heard(said: Announcement) -> Announcement | None:
    """As it comes back from the network."""
    text: dict[bytes, bytes | None] = {k.encode(): v.encode() for k, v in said.text().items()}
    return bonjour.read(said.name, text, said.hosts, said.port)


def test_what_is_announced_is_heard() -> None:
    said = made(*AT)
    assert heard(said) == said and said.addresses == AT
    assert said.is_of(CLUSTER) and not said.is_of("cd" * 32)


def test_only_addresses_are_told_that_others_can_reach() -> None:
    """One port is announced: that of the best address."""
    said = made("127.0.0.1:1", "mac-1.local:7070", *AT, "10.0.0.9:7071")
    assert said.addresses == AT
    for alone in ("127.0.0.1:7070", "mac-1:7070", "0.0.0.0:7070"):
        assert announced(NAME, CLUSTER, True, (alone,)) is None
    assert len(made(*(f"10.0.0.{n}:7070" for n in range(1, 30))).hosts) == MOST_HOSTS


def test_it_says_what_a_handshake_shows_anybody_and_no_more() -> None:
    said = made(*AT)
    assert said.text() == {"cluster": CLUSTER[:32], "members": "made"}


@pytest.mark.parametrize(
    ("name", "text", "hosts", "port"),
    [
        ("node-1", {b"cluster": b"ab" * 16}, ["10.0.0.1"], 7070),
        (NAME, {}, ["10.0.0.1"], 7070),
        (NAME, {b"cluster": None}, ["10.0.0.1"], 7070),
        (NAME, {b"cluster": b"ab" * 17}, ["10.0.0.1"], 7070),
        (NAME, {b"cluster": b"ab" * 16}, ["127.0.0.1", "224.0.0.251", "::1", "x"], 7070),
        (NAME, {b"cluster": b"ab" * 16}, ["10.0.0.1"], 0),
        (NAME, {b"cluster": b"ab" * 16}, ["10.0.0.1"], None),
    ],
)
def test_nonsense_is_nothing(
    name: str, text: dict[bytes, bytes | None], hosts: list[str], port: int | None
) -> None:
    assert bonjour.read(name, text, hosts, port) is None


@given(
    st.text(),
    st.dictionaries(
        st.sampled_from([b"cluster", b"members", b"x"]), st.none() | st.binary(max_size=300)
    ),
    st.lists(st.text(max_size=20)),
    st.none() | st.integers(-1, 1 << 17),
)
def test_anything_may_be_announced(
    name: str, text: dict[bytes, bytes | None], hosts: list[str], port: int | None
) -> None:
    found = bonjour.read(name, text, [*hosts, "10.0.0.1"], port)
    assert found is None or heard(found) == found
