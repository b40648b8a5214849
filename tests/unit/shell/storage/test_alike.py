"""Tables that are the same are in memory once, and no others are."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.errors import ProtocolError
from elasticd.shell.storage import alike as module
from elasticd.shell.storage.alike import alike, same_reasons


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


def test_reasons_that_many_jobs_have_are_in_memory_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_texts", {})
    monkeypatch.setattr(module, "MAX_TEXTS", 3)

    def told(*reasons: Any) -> dict[str, Any]:
        first, *rest = ("".join([*each]) if type(each) is str else each for each in reasons)
        return {"id": "job", "reason": first, "unfit": [{"node": "a", "reason": r} for r in rest]}

    one, other = same_reasons(told("x" * 99, "y" * 99)), same_reasons(told("y" * 99, "x" * 99))
    assert one["reason"] is other["unfit"][0]["reason"] and one["unfit"][0]["node"] == "a"
    assert one == told("x" * 99, "y" * 99) and other["id"] == "job"
    for reason in ("1", "2", "3", None, 7, ["x"]):
        assert same_reasons(told(reason, reason)) == told(reason, reason)
        assert len(module._texts) <= 3
    for strange in ({"reason": "x", "unfit": "none"}, {}, {"unfit": [3]}):
        assert same_reasons(strange) == strange
