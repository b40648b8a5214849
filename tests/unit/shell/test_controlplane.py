"""The control plane: events one at a time, effects in order, one timer, and a clean stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from elasticd.core.endpoint import Endpoint
from elasticd.core.words import effects as e
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.controlplane import ControlPlane


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


def _plane(
    node: FakeNode, perform: Callable[[e.Outward], None], failed: Any = None
) -> ControlPlane:
    return ControlPlane(cast(Endpoint, node), perform, failed or (lambda error: None))


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
                plane.post(e.PeerUp(cast(Any, "nested"), "boot", "address"))

        plane = _plane(FakeNode(answer), perform)
        plane.post(e.PeerUp(cast(Any, "up"), "boot", "address"))
        plane.stop()
        return done

    assert asyncio.run(story()) == ["a", "b", "c"]


def test_the_node_is_woken_at_its_deadline() -> None:
    async def story() -> None:
        node = FakeNode(lambda event: [], wake_in_seconds=0.01)
        plane = _plane(node, lambda effect: None)
        plane.start()
        await asyncio.wait_for(node.woken.wait(), 10)
        plane.stop()

    asyncio.run(story())


def test_a_control_plane_that_fails_is_not_asked_again() -> None:
    async def story() -> tuple[list[BaseException], int]:
        failures: list[BaseException] = []

        def answer(event: e.Inward) -> list[e.Outward]:
            raise ValueError("an invariant")

        node = FakeNode(answer)
        plane = _plane(node, lambda effect: None, failures.append)
        plane.start()
        plane.post(e.Tick())
        return failures, len(node.events)

    failures, asked = asyncio.run(story())
    assert [str(error) for error in failures] == ["an invariant"]
    assert asked == 1


def test_whoever_waits_goes_on_with_the_effect_that_it_waits_for_or_when_time_is_over() -> None:
    async def story() -> None:
        done: list[str] = []

        def perform(effect: e.Outward) -> None:
            assert isinstance(effect, e.Log)
            done.append(effect.text)

        plane = _plane(FakeNode(lambda event: [_log("a"), _log("b")]), perform)
        await plane.until(lambda: "a" in done, 0.01)
        assert not done
        waiting = asyncio.create_task(plane.until(lambda: "b" in done, 10.0))
        await asyncio.sleep(0)
        plane.post(e.Tick())
        await asyncio.wait_for(waiting, 5)
        await plane.until(lambda: "a" in done, 0.0)
        plane.stop()

    asyncio.run(story())
