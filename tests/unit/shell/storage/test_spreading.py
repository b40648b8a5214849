"""Which nodes are asked to keep something, and what becomes of it if they fail or are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from elasticd.errors import OperationError
from elasticd.shell.storage.spreading import Spread, spread
from elasticd.types import NodeId

Run = Callable[[Coroutine[Any, Any, None]], None]
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


class Nodes:
    """Some fail, some never answer; the others do what they are asked."""

    def __init__(self, *, fail: tuple[NodeId, ...] = (), hang: tuple[NodeId, ...] = ()) -> None:
        self.fail, self.hang = fail, hang
        self.asked: list[NodeId] = []
        self.given_up: list[NodeId] = []

    async def ask(self, node: NodeId) -> None:
        self.asked.append(node)
        if node in self.fail:
            raise OperationError("its disk is full")
        if node in self.hang:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up.append(node)


def test_no_more_are_asked_than_are_wanted(run: Run) -> None:
    async def main() -> None:
        nodes = Nodes()
        assert await spread(nodes.ask, [A, B, C], 2) == Spread((A, B), {})
        assert nodes.asked == [A, B]
        assert await spread(nodes.ask, [A], 0) == Spread((), {})
        assert nodes.asked == [A, B]

    run(main())


def test_the_next_takes_the_place_of_one_that_fails(run: Run) -> None:
    async def main() -> None:
        nodes = Nodes(fail=(A,))
        found = await spread(nodes.ask, [A, B, C], 1)
        assert found == Spread((B,), {A: "its disk is full"}) and nodes.asked == [A, B]

    run(main())


def test_if_none_is_left_nobody_waits(run: Run) -> None:
    async def main() -> None:
        found = await spread(Nodes(fail=(A, B)).ask, [A, B], 1)
        assert found == Spread((), {A: "its disk is full", B: "its disk is full"})

    run(main())


def test_beside_a_slow_one_another_is_asked(run: Run) -> None:
    async def main() -> None:
        nodes = Nodes(hang=(A,))
        found = await spread(nodes.ask, [A, B, C], 1, slow_seconds=0.0)
        assert found.done == (B,) and nodes.given_up == [A]

    run(main())


def test_when_the_time_is_over_it_is_said_who_did_not_answer(run: Run) -> None:
    async def main() -> None:
        nodes = Nodes(hang=(A,))
        found = await spread(nodes.ask, [A, B], 2, seconds=0.05)
        assert found == Spread((B,), {A: "it was not done within 0.05 s"})
        assert nodes.given_up == [A]

    run(main())
