"""Tables that are the same are in memory once, and no others are."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.errors import ProtocolError
from elasticd.shell.storage.alike import alike


def test_the_same_table_is_one_with_lists_in_it_too() -> None:
    one, other = ({"args": ["--seed", "1"], "env": {"A": "b"}} for _ in range(2))
    assert one is not other and alike(one) is alike(other) and alike(one).plain == other


@pytest.mark.parametrize("value", [1, 1.0, True, "1", b"1", None, [1], {}], ids=repr)
def test_what_is_equal_and_yet_not_the_same_stays_apart(value: Any) -> None:
    found = alike({"key": value}).plain
    assert repr(found) == repr({"key": value})
    assert repr(alike({"b": value, "a": 1}).plain) == repr({"b": value, "a": 1}), "in its own order"


def test_what_is_large_or_no_plain_table_is_left_as_it_is() -> None:
    large, strange = {"key": "x" * 10_000}, {"key": object()}
    assert alike(large).plain is large and alike(strange).plain is strange
    assert alike(dict(large)).plain is not large


def test_what_nobody_may_say_is_refused_however_often_it_comes() -> None:
    deep: Any = []
    for _ in range(40):
        deep = [deep]
    for _ in range(2):
        with pytest.raises(ProtocolError, match="nested"):
            alike({"key": deep})
