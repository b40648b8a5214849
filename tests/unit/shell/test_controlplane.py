"""The control plane: events one at a time, effects in order, one timer, and a clean stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from elasticd.core.endpoint import Endpoint
from elasticd.core.words import effects as e
from elasticd.errors import DiskError
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.controlplane import ControlPlane
from elasticd.types import NodeId


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


async def _at_once(records: Sequence[e.Persist]) -> None:
    """A journal that needs no time."""


def _plane(
    node: FakeNode,
    perform: Callable[[e.Outward], None],
    failed: Any = None,
    persist: Callable[[Sequence[e.Persist]], Awaitable[None]] = _at_once,
) -> ControlPlane:
    return ControlPlane(cast(Endpoint, node), perform, failed or (lambda error: None), persist)


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


def _up(name: str) -> e.PeerUp:
    return e.PeerUp(NodeId(name), "boot", "address")


@dataclass
class SlowJournal:
    """Takes records over, and has them when the test says."""

    begun: list[tuple[Any, ...]] = field(default_factory=list)
    waits: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None

    async def __call__(self, records: Sequence[e.Persist]) -> None:
        self.begun.append(tuple(each.record for each in records))
        self.waits.set()
        await self.go.wait()
        if self.error is not None:
            raise self.error


def _records_of(event: e.Inward) -> list[e.Outward]:
    """A record, and two effects that depend on it."""
    if not isinstance(event, e.PeerUp):
        return []
    return [e.Persist("job", event.node), _log(event.node), _log(f"{event.node} too")]


def _telling(done: list[str], journal: SlowJournal) -> tuple[FakeNode, ControlPlane]:
    """Of a node that has a record for each peer; its effects go to ``done``."""
    node = FakeNode(_records_of)
    return node, _plane(node, lambda effect: done.append(cast(e.Log, effect).text), None, journal)


def test_effects_and_events_behind_a_record_wait_for_the_disk_and_the_loop_does_not() -> None:
    async def story() -> None:
        journal, done = SlowJournal(), list[str]()
        node, plane = _telling(done, journal)
        plane.post(_up("a"))
        await asyncio.wait_for(journal.waits.wait(), 5)
        for name in "bcd":
            plane.post(_up(name))
        assert journal.begun == [("a",)] and not done and len(node.events) == 1
        ended = asyncio.create_task(plane.until(lambda: len(node.events) == 4, 10.0))
        await asyncio.sleep(0)
        journal.go.set()
        await asyncio.wait_for(ended, 5)
        assert journal.begun == [("a",), ("b", "c", "d")], "those that waited share a write"
        assert done == [text for name in "abcd" for text in (name, f"{name} too")]
        plane.stop()

    asyncio.run(story())


def test_any_number_wait_until_what_the_node_knows_is_told() -> None:
    async def story() -> None:
        journal, done = SlowJournal(), list[str]()
        _, plane = _telling(done, journal)
        await asyncio.wait_for(plane.caught_up(10.0), 5)
        plane.post(_up("a"))
        await asyncio.wait_for(journal.waits.wait(), 5)
        await plane.caught_up(0.01)
        assert not done, "a disk that hangs is not waited for"
        waiting = [asyncio.create_task(plane.caught_up(10.0)) for _ in range(3)]
        await asyncio.sleep(0)
        journal.go.set()
        await asyncio.wait_for(asyncio.gather(*waiting), 5)
        assert done == ["a", "a too"]
        plane.stop()

    asyncio.run(story())


def test_who_waits_for_what_is_known_does_not_wait_for_what_comes() -> None:
    """Or a question for events would never be answered where the disk is always busy."""

    async def story() -> None:
        journal, done = SlowJournal(), list[str]()
        _, plane = _telling(done, journal)
        plane.post(_up("a"))
        await asyncio.wait_for(journal.waits.wait(), 5)
        waiting = asyncio.create_task(plane.caught_up(10.0))
        await asyncio.sleep(0)
        plane.post(_up("b"))
        journal.waits.clear()
        journal.go.set()
        journal.go = asyncio.Event()
        await asyncio.wait_for(journal.waits.wait(), 5)
        await asyncio.wait_for(waiting, 5)
        assert done == ["a", "a too"] and journal.begun == [("a",), ("b",)]
        stopped = asyncio.create_task(plane.caught_up(10.0))
        await asyncio.sleep(0)
        plane.stop()
        await asyncio.wait_for(stopped, 5)

    asyncio.run(story())


def test_nothing_behind_a_record_happens_that_can_not_be_written() -> None:
    async def story() -> None:
        journal, done, failures = SlowJournal(error=DiskError("full")), list[Any](), list[Any]()
        plane = _plane(FakeNode(_records_of), done.append, failures.append, journal)
        plane.post(_up("a"))
        await asyncio.wait_for(journal.waits.wait(), 5)
        journal.go.set()
        assert await plane.flushed(5)
        plane.post(_up("b"))
        assert not done and [str(error) for error in failures] == ["full"]
        assert len(journal.begun) == 1

    asyncio.run(story())


def test_a_write_that_goes_on_at_the_end_is_waited_for_but_not_for_ever() -> None:
    async def story() -> None:
        journal, done = SlowJournal(), list[Any]()
        plane = _plane(FakeNode(_records_of), done.append, None, journal)
        plane.post(_up("a"))
        await asyncio.wait_for(journal.waits.wait(), 5)
        plane.stop()
        assert not await plane.flushed(0.01)
        journal.go.set()
        assert await plane.flushed(5)
        assert not done, "it was stopped before"

    asyncio.run(story())
