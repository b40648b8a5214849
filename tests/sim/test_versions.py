"""Nodes of several versions in one cluster, upgraded and put back while a job trains."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.words import codec
from elasticd.core.words.hearers import Hearers
from elasticd.recovery.unknown import NOTHING

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
