"""The engine: events one at a time, effects in order, one timer, and a clean stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from elasticd.core.endpoint import Endpoint
from elasticd.core.words import effects as e
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.engine import Engine


@dataclass
class FakeNode:
    """Answers each event with what the test wants, and asks to be woken when the test says."""

    answer: Callable[[e.Inward], list[e.Outward]]
    wake_in_seconds: float = 3600.0
    events: list[e.Inward] = field(default_factory=list)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def step(self, now: float, event: e.Inward) -> list[e.Outward]:
        self.events.append(event)
        if len(self.events) > 1 and isinstance(event, e.Tick):
            self.woken.set()
        return self.answer(event)

    def next_deadline(self) -> float:
        return monotonic_seconds() + self.wake_in_seconds


def _engine(node: FakeNode, perform: Callable[[e.Outward], None], failed: Any = None) -> Engine:
    return Engine(cast(Endpoint, node), perform, failed or (lambda error: None))


def _log(text: str) -> e.Log:
    return e.Log("info", text, {})


def test_effects_are_performed_in_order_and_their_events_come_after_all_of_them() -> None:
    async def story() -> list[str]:
        done: list[str] = []
        answers = {"up": [_log("a"), _log("b")], "nested": [_log("c")]}

        def answer(event: e.Inward) -> list[e.Outward]:
            return list(answers[event.node]) if isinstance(event, e.PeerUp) else []

        def perform(effect: e.Outward) -> None:
            assert isinstance(effect, e.Log)
            done.append(effect.text)
            if effect.text == "a":
                engine.post(e.PeerUp(cast(Any, "nested"), "boot", "address"))

        engine = _engine(FakeNode(answer), perform)
        engine.post(e.PeerUp(cast(Any, "up"), "boot", "address"))
        engine.stop()
        return done

    assert asyncio.run(story()) == ["a", "b", "c"]


def test_the_node_is_woken_at_its_deadline() -> None:
    async def story() -> None:
        node = FakeNode(lambda event: [], wake_in_seconds=0.01)
        engine = _engine(node, lambda effect: None)
        engine.start()
        await asyncio.wait_for(node.woken.wait(), 10)
        engine.stop()

    asyncio.run(story())


def test_a_control_plane_that_fails_is_not_asked_again() -> None:
    async def story() -> tuple[list[BaseException], int]:
        failures: list[BaseException] = []

        def answer(event: e.Inward) -> list[e.Outward]:
            raise ValueError("an invariant")

        node = FakeNode(answer)
        engine = _engine(node, lambda effect: None, failures.append)
        engine.start()
        engine.post(e.Tick())
        return failures, len(node.events)

    failures, asked = asyncio.run(story())
    assert [str(error) for error in failures] == ["an invariant"]
    assert asked == 1
