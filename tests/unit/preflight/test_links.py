"""What is wrong with a link is said with its cure; who measures two links measures neither."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from elasticd.preflight.links import MAX_ROUNDS, LinkSeen, judged_links, rounds
from elasticd.types import NodeId

A, B = NodeId("a"), NodeId("b")
GOOD = LinkSeen(A, B, "10.0.0.2", 110e6, 0.0002)


@pytest.mark.parametrize(
    ("odd", "verdict", "value", "cure"),
    [
        ({}, "pass", "10.0.0.2: 110 MB/s, 0.20 ms", ""),
        ({"bytes_per_second": 60e6}, "warn", "60 MB/s", "a cable and no Wi-Fi"),
        ({"bytes_per_second": 1e6}, "fail", "1 MB/s", "a cable and no Wi-Fi"),
        ({"round_trip_seconds": 0.01}, "warn", "10.00 ms", "in one network"),
        ({"round_trip_seconds": 0.5}, "fail", "500.00 ms", "in one network"),
        ({"bytes_per_second": 60e6, "round_trip_seconds": 0.5}, "fail", "500.00", "in one network"),
        ({"error": "timed out"}, "fail", "timed out", "by the firewall of b, at the TCP ports 2"),
        ({"error": "no route", "walled": "Allow it"}, "fail", "no route", "Allow it"),
        ({"error": "gone", "host": ""}, "fail", "gone", "'elasticctl doctor' on a and on b"),
        ({"trains": "lm-1"}, "warn", "not measured: lm-1 runs there", "--busy"),
    ],
)
def test_a_link_is_judged(odd: dict[str, Any], verdict: str, value: str, cure: str) -> None:
    (found,) = judged_links([replace(GOOD, **odd)])
    assert (found.check, found.where, found.verdict) == ("link", "a > b", verdict)
    assert value in found.value and cure in found.cure and bool(found.cure) == bool(cure)


def test_one_that_is_much_slower_than_the_others_is_named() -> None:
    fast = replace(GOOD, bytes_per_second=1100e6)
    found = judged_links([fast, fast, GOOD, fast, replace(GOOD, error="timed out")])
    assert [each.verdict for each in found] == ["pass", "pass", "warn", "pass", "fail"]
    assert "half of the links carry 1100 MB/s" in found[2].value


def test_without_links_nothing_is_judged() -> None:
    assert judged_links([]) == []


@pytest.mark.parametrize("count", range(10))
def test_all_pairs_once_and_no_node_twice_in_a_round(count: int) -> None:
    nodes = [NodeId(f"n{at}") for at in range(count)]
    found = rounds(nodes)
    for pairs in found:
        busy = [node for pair in pairs for node in pair]
        assert len(busy) == len(set(busy))
    pairs_ = sorted(tuple(sorted(pair)) for pairs in found for pair in pairs)
    assert pairs_ == sorted(combinations(nodes, 2))


def test_of_many_nodes_each_measures_some_links_only() -> None:
    found = rounds([NodeId(f"n{at:03}") for at in range(100)])
    assert len(found) == MAX_ROUNDS and all(len(pairs) == 50 for pairs in found)
