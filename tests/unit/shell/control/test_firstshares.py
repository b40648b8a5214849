"""Measured speeds are the leader's first guess, where no world was formed and nobody waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.node import Node
from elasticd.core.words.effects import SpeedsMeasured
from elasticd.preflight.seen import NodeFacts, NodeSeen, NodeUnseen
from elasticd.shell.control import firstshares
from elasticd.shell.control.firstshares import FirstShares
from elasticd.types import JobId, NodeId

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
JOB = JobId("lm-1-aaaa")


class Leader:
    """Of three nodes; the last one says nothing."""

    def __init__(self, **of_driver: Any) -> None:
        self.told, self.asked = list[SpeedsMeasured](), list[NodeId]()
        self.gflops = {A: 100.0, B: 300.0}
        office = SimpleNamespace(view=SimpleNamespace(members=(A, B, C)))
        known: dict[str, Any] = {"plain": False, "world": None, **of_driver}
        self.driver = SimpleNamespace(office=office, **known)
        self.summaries: dict[JobId, Any] = {}
        self.drivers = {JOB: self.driver}

    async def ask(self, node: NodeId) -> NodeSeen | NodeUnseen:
        self.asked.append(node)
        if node == C:
            await asyncio.Event().wait()
        return NodeSeen(node, NodeFacts(gflops=self.gflops[node]))

    def begin(self) -> None:
        node = SimpleNamespace(
            drivers=SimpleNamespace(by_job=self.drivers),
            tables=SimpleNamespace(summaries=self.summaries),
        )
        first = FirstShares(cast(Node, node), self.ask, self.told.append)

        async def main() -> None:
            first.job_begins(JOB)
            first.job_begins(JOB)  # its record changes again
            await first._tasks.ended()

        asyncio.run(main())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firstshares, "ANSWER_SECONDS", 0.1)


def test_what_was_measured_is_told_of_a_job_that_begins() -> None:
    leader = Leader()
    leader.begin()
    assert leader.asked == [A, B, C]
    (told,) = leader.told
    assert (told.job, told.seconds) == (JOB, {A: 3.0, B: 1.0}) and "a 100, b 300" in told.reason


def test_where_all_are_as_fast_nothing_is_said() -> None:
    leader = Leader()
    leader.gflops[A] = 290.0
    leader.begin()
    assert leader.told == []


@pytest.mark.parametrize("case", ["plain", "formed", "told", "not led"])
def test_nobody_is_asked_of_a_job_that_is_no_new_one_here(case: str) -> None:
    leader = Leader(plain=case == "plain", world="one" if case == "formed" else None)
    if case == "told":  # another leader has led it
        leader.summaries[JOB] = {"generation": 7}
    if case == "not led":
        leader.drivers.clear()
    leader.begin()
    assert leader.asked == [] and leader.told == []
