"""Tables that are the same are in memory once, and no others are."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.shell.storage.alike import alike


def test_the_same_table_is_one_with_lists_in_it_too() -> None:
    one, other = ({"args": ["--seed", "1"], "env": {"A": "b"}} for _ in range(2))
    assert one is not other and alike(one) is alike(other) == other


@pytest.mark.parametrize("value", [1, 1.0, True, "1", b"1", None, [1], {}], ids=repr)
def test_what_is_equal_and_yet_not_the_same_stays_apart(value: Any) -> None:
    found = alike({"key": value})
    assert repr(found) == repr({"key": value})
    assert repr(alike({"b": value, "a": 1})) == repr({"b": value, "a": 1}), "in its own order"


def test_what_is_large_or_no_plain_table_is_left_as_it_is() -> None:
    large, strange = {"key": "x" * 10_000}, {"key": object()}
    assert alike(large) is large and alike(strange) is strange
    assert alike(dict(large)) is not large
