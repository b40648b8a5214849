"""Tracked trees that no body changes are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from elasticd.train.states.stale import BODIES, StaleTrees


def named(thing: Any, change: Callable[[Any], None]) -> list[str]:
    stale = StaleTrees()
    stale.watch("ema", thing)
    found = []
    for _ in range(3 * BODIES):
        change(thing)
        found += stale.body_ends()
    return found


def nothing(thing: Any) -> None:
    pass


@pytest.mark.parametrize("thing", [{"w": mx.ones(3)}, [mx.ones(3)], {"a": {"b": [mx.zeros(1)]}}])
def test_a_tree_that_never_changes_is_named_once(thing: Any) -> None:
    assert named(thing, nothing) == ["ema"]


def rebind(tree: Any) -> None:
    tree["w"] = tree["w"] + 1


def write_in_place(tree: Any) -> None:
    tree["w"] += 1


@pytest.mark.parametrize("change", [rebind, write_in_place])
def test_one_that_is_changed_is_not(change: Callable[[Any], None]) -> None:
    assert named({"w": mx.ones(3)}, change) == []


@pytest.mark.parametrize("thing", [{}, [], {"best": 1.0}, object()])
def test_what_may_change_seldom_is_not(thing: Any) -> None:
    assert named(thing, nothing) == []
