"""Planted bugs must be found, each within its number of seeds."""

from __future__ import annotations

import pytest

from .planted import BUGS, Bug, hunt


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert hunt(bug).problem, f"{bug.name}: not found in {bug.bound} seeds"
