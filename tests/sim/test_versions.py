"""Nodes of several versions in one cluster, upgraded and put back while a job trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.words import codec
from elasticd.core.words.frames import Frame
from elasticd.core.words.hearers import Hearers, unsaid
from elasticd.core.words.messages import since
from elasticd.recovery.unknown import NOTHING
from elasticd.types import NodeId

from .cluster import JobShape, Setup
from .run import simulate
from .strikes import VERSION_KINDS
from .test_sim import passes

MIXTURES = [("before",) * 3, ("before", "present", "next"), ("next",) * 3]


def mixed(seed: int, releases: tuple[str, ...]) -> Setup:
    return Setup(
        seed=seed, nodes=3, jobs=(JobShape(steps=60),), releases=releases, fault_seconds=10.0,
        fault_kinds=(*VERSION_KINDS, "later_words"), mean_fault_seconds=1.0,
    )  # fmt: skip


@pytest.mark.parametrize("releases", MIXTURES, ids=lambda names: "-".join(dict.fromkeys(names)))
def test_nodes_are_upgraded_one_by_one_and_back(releases: tuple[str, ...]) -> None:
    struck: set[str] = set()
    seen: set[str] = set()
    for seed in range(8):
        result = passes(simulate(mixed(seed, releases)))
        struck |= result.faults.keys()
        seen |= result.cluster.seen.keys()
    assert struck >= set(VERSION_KINDS) and seen >= {"refused", "unsaid"}


def test_fields_that_are_dropped_are_missed(monkeypatch: Any) -> None:
    monkeypatch.setattr(codec, "_kept", lambda plain, known: NOTHING)
    problems = [simulate(mixed(seed, MIXTURES[1])).problem for seed in range(8)]
    assert any("has lost" in problem for problem in problems), problems


def test_a_kind_that_is_sent_to_an_earlier_version_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(Hearers, "fitting", lambda self, to, frame: frame)
    problems = [simulate(mixed(seed, MIXTURES[1])).problem for seed in range(2)]
    assert all("ends its connection" in problem for problem in problems), problems


def test_a_kind_that_a_third_node_carries_to_an_earlier_version_is_seen(monkeypatch: Any) -> None:
    """The one that carries it knows it, and the one that it is for does not."""

    def of_the_next(self: Hearers, to: NodeId, frame: Frame) -> Frame:
        message = frame.message
        if message is None or since(message) <= self.protocols.get(to, self.newest):
            return frame
        return unsaid(frame)

    monkeypatch.setattr(Hearers, "fitting", of_the_next)
    setup = replace(mixed(0, ("next", "next", "present")), fault_kinds=("one_way",))
    problems = [simulate(replace(setup, seed=seed)).problem for seed in (0, 5, 7)]
    assert any("ends its connection" in problem for problem in problems), problems
