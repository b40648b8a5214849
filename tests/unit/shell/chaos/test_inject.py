"""What one node asks another to do to its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.words.bulk import WANTS, Blow, CutHere, CutOrder, StrikeHere
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.chaos import CutLinks, LinksCut, StrikeRank, StruckProcess
from elasticd.errors import OperationError, UsageError
from elasticd.shell.chaos.inject import Chaos, wake_later
from elasticd.shell.network.neighbours import Neighbours
from elasticd.types import JobId, NodeId

nothing = cast(Any, None)


@pytest.mark.parametrize("process", ["reducer", "node"])
def test_only_a_trainer_runs_out_of_memory(process: StruckProcess) -> None:
    """Also where another node asks for it: it would have stopped this one."""
    chaos = Chaos(nothing, nothing, nothing, nothing, nothing)
    with pytest.raises(UsageError, match="only a trainer"):
        asyncio.run(chaos.serve(StrikeHere(Blow("oom", process, NodeId("a"), 7, 0.0))))


@pytest.mark.process
def test_a_node_that_hangs_for_a_while_goes_on_behind_it() -> None:
    """It has stopped itself, so another process wakes it; one of its own may have ended by then."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    stopped = subprocess.Popen(["sleep", "60"])
    try:
        stopped.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
        wake_later([gone.pid, stopped.pid], 0.1)
        assert os.WIFCONTINUED(os.waitpid(stopped.pid, os.WCONTINUED)[1])
    finally:
        stopped.kill()
        stopped.wait()


def test_what_has_ended_is_not_broken() -> None:
    record = JobRecord(JobId("a-1"), 1, {}, "0" * 64, "finished")
    node = cast(Any, SimpleNamespace(records={record.id: record}))
    chaos = Chaos(node, nothing, nothing, nothing, nothing)
    with pytest.raises(OperationError, match=r"^a-1 has ended: it finished$"):
        asyncio.run(chaos.strike(StrikeRank("kill", record.id, 0), nothing))


def test_a_node_whose_link_is_down_now_is_waited_for_before_any_agrees() -> None:
    """As right behind another cut; the links that are to be cut are cut when it answers."""
    down, told = {"b": 0, "c": 3}, list[Any]()

    def address_of(node: NodeId) -> str | None:
        down[node] -= 1
        return None if down[node] >= 0 else f"{node}:1"

    async def transfer(address: str, wanted: dict[str, Any], sink: int, limit: int = 0) -> int:
        told.append((address, WANTS.decode(wanted), dict(down)))
        return 0

    ours = NodeId("a"), NodeId("b"), NodeId("c")
    node = cast(Any, SimpleNamespace(me=ours[0], liveness=SimpleNamespace(living=lambda: ours[1:])))
    neighbours = Neighbours(ours[0], transfer, address_of, lambda: ours[1:])
    held = _Held()
    chaos = Chaos(node, nothing, nothing, neighbours, cast(Any, held))

    async def cut() -> LinksCut:
        answer = await chaos.cut(CutLinks("partition", (ours[:2], ours[2:]), 1.0), nothing)
        assert held.cut == [ours[2]]
        return answer

    assert asyncio.run(cut()).seconds == 1.0
    assert [(address, wanted) for address, wanted, _ in told] == [
        ("b:1", CutHere(CutOrder(ours[1], ours[2:], "drop", 1.0))),
        ("c:1", CutHere(CutOrder(ours[2], ours[:2], "drop", 1.0))),
    ]
    assert told[0][2]["c"] < 0


class _Held:
    """As much of a cutter as is asked."""

    def __init__(self) -> None:
        self.cut: list[NodeId] = []

    async def prepare(self, node: NodeId, how: str, seconds: float) -> NodeId:
        return node

    async def hold(self, node: NodeId, seconds: float) -> None:
        self.cut.append(node)
