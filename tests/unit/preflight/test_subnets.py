"""Nodes that share a network, directly or by way of a third, are together; others are elsewhere."""

from __future__ import annotations

import pytest

from elasticd.preflight.subnets import behind_router, islands
from elasticd.types import NodeId

A, B, C, D = map(NodeId, "abcd")


def test_nodes_of_one_network_are_together() -> None:
    told = {A: ["10.0.0.1/24"], B: ["10.0.1.2/24"], C: ["10.0.0.3/24", "192.168.1.3/24"]}
    assert islands(told) == [[A, C], [B]]


def test_a_ring_of_cables_is_one_group() -> None:
    told = {
        A: ["10.1.0.1/30", "10.4.0.2/30"], B: ["10.2.0.1/30", "10.1.0.2/30"],
        D: ["10.4.0.1/30", "10.3.0.2/30"], C: ["10.3.0.1/30", "10.2.0.2/30"],
    }  # fmt: skip
    (together,) = islands(told)
    assert set(together) == {A, B, C, D}


def test_who_joins_two_groups_makes_them_one() -> None:
    told = {A: ["10.1.0.1/24"], B: ["10.2.0.1/24"], C: ["10.1.0.9/24", "10.2.0.9/24"]}
    assert len(islands(told)) == 1


@pytest.mark.parametrize("address", ["10.0.0.200", "127.0.0.9", "mac.local"])
def test_what_is_in_a_network_of_ones_own_needs_no_router(address: str) -> None:
    assert behind_router(B, address, ["127.0.0.0/8", "10.0.0.0/24"]) == ""


def test_what_is_elsewhere_is_named_with_the_cure() -> None:
    said = behind_router(B, "10.0.1.1", ["127.0.0.0/8", "10.0.0.0/24"])
    assert "b is reached at 10.0.1.1, in no network" in said and "10.0.0.0/24" in said
    assert "elasticctl preflight" in said


def test_what_is_no_address_is_a_network_of_its_own() -> None:
    assert islands({A: ["nonsense"], B: ["10.0.0.1/24"], C: ["10.0.0.2/24"]}) == [[B, C], [A]]
