"""Reducers as real processes, with a stand-in for the daemon and threads for the trainers."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from elasticd.errors import GenerationLost
from elasticd.ipc.chunks import ChunkPlan, ReducerLink, create_memory
from elasticd.ipc.frames import FrameSocket
from elasticd.ipc.listening import has_let_in, is_listening
from elasticd.recovery import tree
from elasticd.types import NodeId, Range, Tag
from tests.children.forking import StartedReducer, started
from tests.ports import free_ports

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

PATIENCE_SECONDS = 30.0
NOTICE_SECONDS = 15.0
LATE_SECONDS = 0.8
GENERATION = Tag(7, NodeId("node-0"), "c0ffee")
COMMAND = [sys.executable, "-m", "elasticd.reducer"]
Vector = NDArray[np.float32]


class World:
    """Reducers of one generation, brought up as the daemon does it, and their trainers' links."""

    grace_seconds = 60
    """After so long they end: nobody speaks to them."""
    forks = True

    def __init__(
        self,
        folder: Path,
        size: int,
        reduction: str,
        formed: bool = True,
        secret: bytes = b"",
        walks: bool = False,
    ) -> None:
        self.walks = walks
        self.size, self.reduction, self.secret = size, reduction, secret
        self.links: list[ReducerLink] = []
        self.interrupts = [os.pipe() for _ in range(size)]
        self.messages: list[queue.Queue[dict[str, Any]]] = [queue.Queue() for _ in range(size)]
        self._daemons: dict[int, FrameSocket] = {}
        self._connections: dict[int, socket.socket] = {}
        self.reducers: list[StartedReducer] = []
        self._folder = folder
        path = folder / "children.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(PATIENCE_SECONDS)
            self.reducers = [self._start(path, rank) for rank in range(size)]
            try:
                for _ in range(size):
                    self._adopt(listener.accept()[0])
                for rank in range(size):
                    self.expect(rank, "ready")
                if formed:
                    self._form()
            except BaseException:
                self.close()
                raise

    def _start(self, path: Path, rank: int) -> StartedReducer:
        grace = self.grace_seconds
        child = {"socket": str(path), "nonce": str(rank), "role": "reducer", "grace_seconds": grace}
        environment = {**os.environ, "ELASTICD_CHILD": json.dumps(child)}
        environment["TMPDIR"] = str(self._folder)
        return started(self.command(rank), self._folder, environment, forks=self.forks)

    def command(self, rank: int) -> list[str]:
        return COMMAND

    def _adopt(self, accepted: socket.socket) -> None:
        connection = FrameSocket(accepted)
        received = connection.receive()
        assert received is not None and received[0]["t"] == "hello"
        rank = int(received[0]["nonce"])
        assert received[0]["pid"] == self.reducers[rank].pid
        self._daemons[rank], self._connections[rank] = connection, accepted
        threading.Thread(target=self._listen, args=(rank, connection), daemon=True).start()

    def _listen(self, rank: int, connection: FrameSocket) -> None:
        try:
            while (received := connection.receive()) is not None:
                self.messages[rank].put(received[0])
        except OSError:
            pass  # killed in the middle, or closed by us

    def expect(self, rank: int, kind: str) -> dict[str, Any]:
        message = self.messages[rank].get(timeout=PATIENCE_SECONDS)
        assert message["t"] == kind, message
        return message

    def _form(self) -> None:
        self._bring_up(free_ports(self.size))
        for rank in range(self.size):
            self.expect(rank, "formed")

    def _bring_up(self, ports: list[int]) -> None:
        for rank in range(self.size - 1):
            self._send_form(rank, ports)
        for rank in range(self.size - 1):
            self._await_listening(rank, ports[rank])
        self.reducers[0].send_signal(signal.SIGSTOP)
        self._send_form(self.size - 1, ports)
        self._await_listening(self.size - 1, ports[-1])
        self.reducers[0].send_signal(signal.SIGCONT)

    def _send_form(self, rank: int, ports: list[int]) -> None:
        memory = create_memory()
        ours, theirs = socket.socketpair()
        tag = [GENERATION.counter, GENERATION.leader, GENERATION.nonce]
        form = {"t": "form", "generation": tag, "rank": rank, "size": self.size}
        hosts = [f"127.0.0.1:{port}" for port in ports]
        form |= {"hosts": hosts, "reduction": self.reduction}
        form |= {"walks": self.walks, "chains": self.walks}
        form |= self.told(rank)
        self._daemons[rank].send(form, [memory, theirs.fileno()])
        theirs.close()
        link = ReducerLink(memory, ours.detach(), GENERATION, rank, self.size, self.reduction)
        self.links.append(link)

    def told(self, rank: int) -> dict[str, Any]:
        """What a rank is told besides."""
        return {"secret": self.secret} if self.secret else {}

    def _await_listening(self, rank: int, port: int) -> None:
        deadline = monotonic() + PATIENCE_SECONDS
        pid = self.reducers[rank].pid
        while not (is_listening(pid, port) or has_let_in(pid, port)):
            assert monotonic() < deadline and self.reducers[rank].poll() is None
            self.reducers[rank].poll()

    def interrupt_fd(self, rank: int) -> int:
        return self.interrupts[rank][0]

    def everywhere(self, work: Callable[[int], Any]) -> list[Any]:
        """``work(rank)`` in a thread a rank; results, or the GenerationLost that it raised."""

        def run(rank: int) -> Any:
            try:
                return work(rank)
            except GenerationLost as error:
                return error

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(run, range(self.size)))

    def abort_when_broken(self) -> str:
        """What the daemon does: at the first ``broken``, kill every reducer. Returns the evidence.

        The ring may hang survivors of a fault, so no rank is left to find out by itself.
        """
        deadline = monotonic() + PATIENCE_SECONDS
        while monotonic() < deadline:
            for messages in self.messages:
                with contextlib.suppress(queue.Empty):
                    message = messages.get(timeout=0.01)
                    assert message["t"] == "broken"
                    for reducer in self.reducers:
                        reducer.kill()
                    return str(message["evidence"])
        raise TimeoutError("no reducer saw the fault")

    def send(self, rank: int, message: dict[str, Any], fds: list[int]) -> None:
        self._daemons[rank].send(message, fds)

    def hang_up(self, rank: int) -> None:
        """The daemon goes, as this child sees it."""
        self._connections[rank].shutdown(socket.SHUT_RDWR)

    def barrier(self, step: int) -> list[Any]:
        return self.everywhere(lambda rank: self.links[rank].barrier(step, self.interrupt_fd(rank)))

    def close(self) -> None:
        for link in self.links:
            link.close()
        for reducer in self.reducers:
            reducer.kill()
            reducer.wait(PATIENCE_SECONDS)
        for connection in self._daemons.values():
            connection.close()
        for pair in self.interrupts:
            for fd in pair:
                os.close(fd)


class Batch:
    """Random gradients of grains, shared out to ranks, and the sum that must come out."""

    def __init__(self, seed: int, length: int, shares: list[list[Range]]) -> None:
        grains = sum(end - start for share in shares for start, end in share)
        numbers = np.random.default_rng(seed)
        scale = numbers.integers(-12, 12, (grains, 1)).astype(np.float32)
        self.grains = numbers.standard_normal((grains, length), np.float32) * 2**scale
        self.length = length
        self.plan = ChunkPlan(grains, tuple(tree.cover(share, grains) for share in shares))
        self.expected = self.sum((0, grains))

    def sum(self, node: Range) -> Vector:
        leaves = {(grain, grain + 1): self.grains[grain] for grain in range(*node)}
        total = tree.finish(leaves, node, np.add)
        return np.asarray(total, np.float32)

    def parts(self, rank: int) -> dict[Range, list[Vector]]:
        cuts = sorted(random.Random(rank).choices(range(self.length + 1), k=5))
        return {node: np.split(self.sum(node), cuts) for node in self.plan.parts[rank]}

    def reduce(self, world: World, step: int, rank: int) -> Vector:
        out = np.full(self.length, np.nan, np.float32)
        link, interrupt = world.links[rank], world.interrupt_fd(rank)
        link.reduce(step, self.plan, self.parts(rank), out, interrupt)
        return out


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int, str], World]]:
    worlds: list[World] = []

    def start(size: int, reduction: str) -> World:
        worlds.append(World(tmp_path, size, reduction, secret=bytes(32)))
        return worlds[-1]

    yield start
    for world in worlds:
        world.close()
    assert [path.name for path in tmp_path.iterdir()] == ["children.sock"]


def shares(seed: int, grains: int, size: int, idle: int | None = None) -> list[list[Range]]:
    """Uneven shares of one or two runs a rank; ``idle`` gets none."""
    dice = random.Random(seed)
    ranks = [rank for rank in range(size) if rank != idle]
    cuts = sorted(dice.sample(range(1, grains), min(grains - 1, 2 * len(ranks) - 1)))
    runs = list(zip([0, *cuts], [*cuts, grains], strict=True))
    result: list[list[Range]] = [[] for _ in range(size)]
    for index, run in enumerate(runs):
        result[ranks[index % len(ranks)]].append(run)
    return result


@pytest.mark.parametrize("size", [2, 3, 4])
def test_exact_has_the_bits_of_the_tree(start: Callable[[int, str], World], size: int) -> None:
    world = start(size, "exact")
    batches = [
        Batch(1, 5, [[(0, 1)]] + [[] for _ in range(size - 1)]),
        Batch(2, 100_001, shares(2, 8, size)),
        Batch(3, 2_500_000, shares(3, 5, size)),
        Batch(4, 70_000, shares(4, 37, size, idle=size - 1)),
    ]
    for step, batch in enumerate(batches, 1):
        for out in world.everywhere(partial(batch.reduce, world, step)):
            assert out.tobytes() == batch.expected.tobytes()
        assert world.barrier(step) == [None] * size


def test_fast_is_close_and_the_same_everywhere(start: Callable[[int, str], World]) -> None:
    world = start(3, "fast")
    batch = Batch(5, 1_500_000, [[(0, 1)], [(1, 2)], [(2, 3)]])
    for step in (1, 2):
        outs = world.everywhere(partial(batch.reduce, world, step))
        assert len({out.tobytes() for out in outs}) == 1
        scale = np.abs(batch.grains).sum(0)
        assert np.all(np.abs(outs[0] - batch.expected) <= 1e-6 * scale)
        assert world.barrier(step) == [None] * 3


def test_a_rank_without_grains_adds_zeros_in_fast(start: Callable[[int, str], World]) -> None:
    world = start(2, "fast")
    batch = Batch(6, 1000, [[(0, 1)], []])
    for out in world.everywhere(lambda rank: batch.reduce(world, 1, rank)):
        assert np.array_equal(out, batch.expected)


@pytest.mark.parametrize("reduction", ["exact", "fast"])
def test_a_wrong_step_ends_the_generation_everywhere(
    start: Callable[[int, str], World], reduction: str
) -> None:
    world = start(3, reduction)
    assert world.barrier(0) == [None] * 3
    batch = Batch(7, 50_000, [[(0, 1)], [(1, 2)], [(2, 3)]])
    with ThreadPoolExecutor(1) as pool:
        evidence = pool.submit(world.abort_when_broken)
        results = world.everywhere(lambda rank: batch.reduce(world, 9 if rank == 1 else 1, rank))
    assert all(isinstance(result, GenerationLost) for result in results)
    words = ("step 9", "do not agree", "peer was lost")
    assert any(each in evidence.result() for each in words)


def test_another_plan_ends_the_generation(start: Callable[[int, str], World]) -> None:
    world = start(2, "exact")
    plans = [Batch(8, 3000, [[(0, 1)], [(1, 3)]]), Batch(8, 3000, [[(0, 2)], [(2, 3)]])]
    with ThreadPoolExecutor(1) as pool:
        evidence = pool.submit(world.abort_when_broken)
        results = world.everywhere(lambda rank: plans[rank].reduce(world, 1, rank))
    assert all(isinstance(result, GenerationLost) for result in results)
    assert evidence.result()


@pytest.mark.skipif(sys.platform != "linux", reason="it is so on Linux alone")
@pytest.mark.parametrize("reduction", ["exact", "fast"])
def test_reducers_that_wait_for_a_rank_leave_it_the_processors(
    start: Callable[[int, str], World], reduction: str
) -> None:
    """For its barrier, and for its part of a small vector."""
    world = start(3, reduction)
    batch = Batch(12, 1000, [[(0, 1)], [(1, 2)], [(2, 3)]])
    waiting = [psutil.Process(world.reducers[rank].pid) for rank in (0, 1)]

    def used() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in waiting)

    def work(rank: int) -> float:
        before = used()
        if rank == 2:
            time.sleep(LATE_SECONDS)
        batch.reduce(world, 1, rank)
        after = used()
        if rank == 2:
            time.sleep(LATE_SECONDS)
        world.links[rank].barrier(1, world.interrupt_fd(rank))
        return max(after - before, used() - after)

    assert max(world.everywhere(work)) < LATE_SECONDS / 4


def test_a_killed_reducer_is_seen_by_its_own_trainer_at_once(
    start: Callable[[int, str], World],
) -> None:
    world = start(3, "exact")
    batch = Batch(9, 3_000_000, shares(9, 6, 3))
    seen: queue.Queue[tuple[int, float]] = queue.Queue()

    def train(rank: int) -> None:
        try:
            for step in range(1, 1000):
                batch.reduce(world, step, rank)
                world.links[rank].barrier(step, world.interrupt_fd(rank))
                seen.put((-1, monotonic()))
        finally:
            seen.put((rank, monotonic()))

    def watch() -> None:
        assert seen.get(timeout=PATIENCE_SECONDS)[0] == -1  # a step was reduced
        world.reducers[1].kill()
        killed = monotonic()
        try:
            while (event := seen.get(timeout=PATIENCE_SECONDS))[0] != 1:
                pass
            # It may have computed when that happened; one that doesn't see it waits for ever.
            assert event[1] - killed < NOTICE_SECONDS
        finally:
            for rank in (0, 2):
                world.reducers[rank].kill()

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        results = world.everywhere(train)
        watching.result()
    assert all(isinstance(result, GenerationLost) for result in results)


def test_an_interrupt_ends_a_reduction_that_hangs(start: Callable[[int, str], World]) -> None:
    world = start(2, "exact")
    batch = Batch(10, 100_000, [[(0, 1)], [(1, 2)]])
    world.reducers[1].send_signal(signal.SIGSTOP)
    answered = threading.Event()

    def train(rank: int) -> None:
        try:
            batch.reduce(world, 1, rank)
        finally:
            answered.set()

    def interrupt() -> None:
        assert not answered.wait(0.2)
        for _, write in world.interrupts:
            os.write(write, b"x")

    with ThreadPoolExecutor(1) as pool:
        interrupting = pool.submit(interrupt)
        results = world.everywhere(train)
        interrupting.result()
    assert ["daemon" in str(result) for result in results] == [True, True]
    with pytest.raises(GenerationLost):
        world.links[0].barrier(1, world.interrupt_fd(0))


def test_a_reducer_ends_when_its_trainer_leaves(start: Callable[[int, str], World]) -> None:
    world = start(2, "exact")
    assert world.barrier(0) == [None, None]
    for link in world.links:
        link.close()
    assert [reducer.wait(PATIENCE_SECONDS) for reducer in world.reducers] == [0, 0]


def test_a_message_that_forms_no_world_is_answered_with_broken(tmp_path: Path) -> None:
    world = World(tmp_path, 1, "exact", formed=False)
    try:
        form = {"t": "form", "generation": [1, "n", "x"], "rank": 5, "size": 1, "hosts": ["a:1"]}
        world.send(0, form | {"reduction": "exact"}, [])
        message = world.expect(0, "broken")
        assert message["generation"] == [1, "n", "x"]
        assert "ProtocolError" in message["evidence"]
        assert world.reducers[0].wait(PATIENCE_SECONDS) == 1
    finally:
        world.close()


def test_what_is_no_word_ends_the_reducer(tmp_path: Path) -> None:
    world = World(tmp_path, 1, "exact", formed=False)
    try:
        world.send(0, {"t": "form", "generation": [1, "n", "x"], "rank": 0}, [])
        assert world.reducers[0].wait(PATIENCE_SECONDS) == 1
    finally:
        world.close()


def test_a_spare_goes_to_the_successor_of_its_daemon(tmp_path: Path) -> None:
    world = World(tmp_path, 1, "exact", formed=False)
    try:
        path = tmp_path / "children.sock"
        path.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(PATIENCE_SECONDS)
            world.hang_up(0)
            world._daemons[0].close()
            world._adopt(listener.accept()[0])
        assert world.expect(0, "here") == {"t": "here", "generation": None, "formed": False}
        world.expect(0, "ready")
    finally:
        world.close()


def test_a_world_outlives_its_daemons(start: Callable[[int, str], World]) -> None:
    world = start(2, "exact")
    for rank in range(2):
        world.hang_up(rank)
    batch = Batch(11, 1000, [[(0, 1)], [(1, 2)]])
    for out in world.everywhere(partial(batch.reduce, world, 1)):
        assert out.tobytes() == batch.expected.tobytes()
