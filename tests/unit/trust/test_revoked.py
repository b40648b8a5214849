"""Lists of members that were put out: merged in any order, they say the same."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import ProtocolError
from elasticd.trust import revoked
from elasticd.trust.names import Issued
from elasticd.trust.revoked import MOST, Revoked

_names = st.sampled_from(["a" * 32, "b" * 32, "c" * 32])
_lists = st.dictionaries(_names, st.integers(0, 5)).map(Revoked)


@given(st.lists(_lists, max_size=4), st.randoms())
def test_lists_merge_in_any_order(lists: list[Revoked], dice: object) -> None:
    def together(parts: list[Revoked]) -> Revoked:
        return reduce(Revoked.merged, parts, Revoked())

    shuffled = sorted(lists, key=lambda _: dice.random())  # type: ignore[attr-defined]
    whole = together(lists)
    assert whole == together(shuffled) == together([*lists, *shuffled])
    assert all(whole.merged(each) is whole for each in lists)
    for each in lists:
        for name, serial in each.serials.items():
            assert whole.holds(Issued(name, serial))  # who is out stays out


def test_who_is_let_in_again_has_a_larger_serial() -> None:
    out = Revoked({"a" * 32: 7})
    assert out.holds(Issued("a" * 32, 7)) and out.holds(Issued("a" * 32, 3))
    assert not out.holds(Issued("a" * 32, 8)) and not out.holds(Issued("b" * 32, 3))


@given(_lists)
def test_a_list_is_read_as_it_was_said(known: Revoked) -> None:
    assert revoked.read(known.words()) == known


@pytest.mark.parametrize(
    "words",
    [
        {"a" * 32: "no"},
        {"a": "1"},
        {"a" * 32: "-1"},
        {"a" * 32: "f" * 41},
        {f"{n:032}": "1" for n in range(MOST + 1)},
    ],
)
def test_what_is_no_list(words: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        revoked.read(words)


def test_of_too_many_the_oldest_go() -> None:
    full = Revoked({f"{n:032}": n for n in range(MOST)})
    more = full.merged(Revoked({"a" * 32: MOST}))
    assert len(more.serials) == MOST
    assert "a" * 32 in more.serials and f"{0:032}" not in more.serials
