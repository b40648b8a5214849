"""The verdict over the probes of processes that are new to a job."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.leading.exactness import verdict
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")


def probe(**changes: Any) -> dict[str, Any]:
    same = {"repeats": True, "gradient": "g", "update": "u", "layout": "l", "state": "s"}
    return same | changes


def test_all_alike() -> None:
    assert verdict([(A, probe()), (B, probe()), (C, probe())]) == (True, "")


@pytest.mark.parametrize(
    ("key", "said"), [("gradient", "gradients"), ("update", "updates"), ("layout", "state leaves")]
)
def test_what_differs_is_named(key: str, said: str) -> None:
    odd = probe(**{key: "other"})
    assert verdict([(A, probe()), (B, odd)]) == (False, f"{said} differ between a and b")


def test_what_does_not_repeat() -> None:
    exact, reason = verdict([(A, probe()), (B, probe(repeats=False))])
    assert not exact and reason.startswith("on b one grain")


def test_newcomers_that_were_prepared_with_different_states_are_not_compared() -> None:
    later = probe(state="t", gradient="h", update="v")
    assert verdict([(A, probe()), (B, later)]) == (True, "")
    assert verdict([(A, probe()), (B, later), (C, later | {"update": "w"})]) == (
        False,
        "updates differ between b and c",
    )
