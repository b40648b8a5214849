"""What the gallery calls wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gallery.alone import Alone, judge_alone
from tests.gallery.cards import Card
from tests.gallery.exhibit import Ended, judge

ALONE = Alone(0, "d1", 24)
FINISHED = {"state": "finished", "step": 24, "digest": "d1", "exact": True, "reason": None}
FAILED = {"state": "failed", "step": 0, "digest": None, "exact": False, "reason": "a pair"}
UNFIT = {"kind": "node_unfit", "reason": "state outside of run.state: beta"}
DIVERGED = {"kind": "fault_detected", "fault": "divergence", "reason": "", "evidence": "differ"}


def card(**changes: Any) -> Card:
    return Card("script", "A habit.", **changes)


@pytest.mark.parametrize(
    ("status", "events", "wrong"),
    [
        ({}, [], []),
        ({"digest": "d2"}, [], ["other bits than alone, and is called exact"]),
        ({"exact": False, "exact_reason": "why"}, [], ["is called not exact: why"]),
        ({"step": 20}, [], ["ends with step 20, alone with 24"]),
        ({"state": "cancelled", "reason": "why"}, [], ["cancelled at step 24: why"]),
        ({}, [UNFIT], ["left out: state outside of run.state: beta"]),
        ({}, [DIVERGED], ["divergence: differ"]),
    ],
)
def test_the_same_bits(status: Any, events: Any, wrong: list[str]) -> None:
    assert judge(card(), ALONE, Ended({**FINISHED, **status}, events)) == wrong


def test_who_differs_may_be_left_out_by_name() -> None:
    named = card(expect="named", words=("outside of run",))
    other = {**FINISHED, "digest": "d2"}
    assert not judge(named, ALONE, Ended(FINISHED, []))
    assert not judge(named, ALONE, Ended(other, [UNFIT]))
    assert judge(named, ALONE, Ended(other, [DIVERGED]))
    failed = {**FAILED, "reason": "ProtocolError: it kept state outside of run.state"}
    assert not judge(named, ALONE, Ended(failed, []))
    assert judge(named, ALONE, Ended(FAILED, []))
    inexact = {**other, "exact": False, "exact_reason": "the script keeps state outside of run"}
    assert not judge(named, ALONE, Ended(inexact, []))


def test_who_joins_is_left_out_by_name() -> None:
    out, grew = card(expect="left out", words=("outside of run",)), {"kind": "growth_finished"}
    assert not judge(out, ALONE, Ended(FINISHED, []))
    assert not judge(out, ALONE, Ended(FINISHED, [grew, UNFIT]))
    assert judge(out, ALONE, Ended(FINISHED, [grew])) == ["who joined trains on"]
    assert judge(out, ALONE, Ended({**FINISHED, "digest": "d2"}, [UNFIT]))
    assert judge(out, ALONE, Ended(FINISHED, [{**UNFIT, "reason": "no memory"}]))
    assert not judge_alone(out, ALONE)


def test_a_refusal_comes_before_the_first_step() -> None:
    refused = card(expect="refused", words=("pair",))
    assert not judge(refused, ALONE, Ended(FAILED, []))
    assert judge(refused, ALONE, Ended({**FAILED, "step": 3}, []))
    assert judge(refused, ALONE, Ended({**FAILED, "reason": "no memory"}, []))
    assert judge(refused, ALONE, Ended(FINISHED, []))
    assert not judge_alone(refused, Alone(1, words="UsageError: a pair"))
    assert judge_alone(refused, Alone(1, words="KeyError"))
    assert judge_alone(refused, ALONE)


def test_what_hangs_or_does_not_verify() -> None:
    assert judge(card(), ALONE, Ended({}, [], stuck="hangs, running at step 3")) == [
        "hangs, running at step 3"
    ]
    assert judge(card(), ALONE, Ended(FINISHED, [], unverified="node-0: step 24: rotten"))
    assert judge_alone(card(), Alone(1, words="KeyError"))
