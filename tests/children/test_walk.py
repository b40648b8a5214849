"""Sums made along the ring, by real reducers. Exact ones have the bits of those that gather every
part."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from elasticd.errors import GenerationLost
from elasticd.ipc.plan import WALKING_FLOATS
from elasticd.recovery import regroup
from elasticd.types import Range
from tests.children.test_reducer import COMMAND, PATIENCE_SECONDS, Batch, Vector, World, shares

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

Start = Callable[..., World]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    worlds: list[World] = []

    def start(size: int, walks: bool = True, reduction: str = "exact") -> World:
        folder = tmp_path / str(len(worlds))
        folder.mkdir()
        worlds.append(World(folder, size, reduction, secret=bytes(32), walks=walks))
        return worlds[-1]

    yield start
    for world in worlds:
        world.close()


def reduce_fast(world: World, batch: Batch, step: int, rank: int) -> Vector:
    """One sum of all that the rank has, or none."""
    own = list(batch.parts(rank).values())
    out, total = np.full((2, batch.length), np.nan, np.float32)
    if own:
        np.sum([np.concatenate(part) for part in own], 0, out=total)
    parts = {(rank, rank + 1): [total]} if own else {}
    world.links[rank].reduce(step, batch.plan, parts, out, world.interrupt_fd(rank))
    return out


def planned(grains: int, size: int) -> list[list[Range]]:
    return [list(share) for share in regroup.shares(grains, size)]


@pytest.mark.parametrize("size", range(2, 9))
def test_a_walk_has_the_bits_of_the_tree_and_of_the_gather(start: Start, size: int) -> None:
    length = WALKING_FLOATS + 17
    batches = [
        Batch(1, length, planned(12, size)),
        Batch(2, length, [[(0, 1)]] + [[] for _ in range(size - 1)]),
        Batch(3, length, shares(3, 37, size, idle=size - 1)),
        Batch(4, 2_500_000 // size, shares(4, max(8, size), size)),
        Batch(5, 100, planned(8, size)),
    ]
    walking, gathering = start(size), start(size, walks=False)
    for step, batch in enumerate(batches, 1):
        outs = walking.everywhere(partial(batch.reduce, walking, step))
        outs += gathering.everywhere(partial(batch.reduce, gathering, step))
        assert {out.tobytes() for out in outs} == {batch.expected.tobytes()}
        assert walking.barrier(step) == [None] * size


@pytest.mark.parametrize("size", range(2, 9))
def test_fast_sums_are_the_same_on_every_rank(start: Start, size: int) -> None:
    """And next to what the grains sum up to in double. A rank may have nothing to add."""
    world = start(size, reduction="fast")
    for step, length in enumerate((WALKING_FLOATS + 17, 2_500_000 // size, 100), 1):
        batch = Batch(step, length, shares(step, size + 3, size, idle=size - 1))

        outs = world.everywhere(partial(reduce_fast, world, batch, step))
        assert len({out.tobytes() for out in outs}) == 1
        exact, most = batch.grains.sum(0, np.float64), np.abs(batch.grains).sum(0, np.float64)
        assert np.all(np.abs(outs[0] - exact) <= 1e-6 * most)
        assert world.barrier(step) == [None] * size


@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_not_finite_comes_out_as_in_the_gather(start: Start) -> None:
    batch = Batch(6, 3 * WALKING_FLOATS, planned(6, 3))
    batch.grains[2, 5::7], batch.grains[4, ::11] = np.nan, np.inf
    batch.grains[1, 3::13], batch.grains[0, 9::17] = -np.inf, -0.0
    batch.expected = batch.sum((0, 6))
    for walks in (True, False):
        world = start(3, walks)
        for out in world.everywhere(partial(batch.reduce, world, 1)):
            assert np.array_equal(np.isnan(out), np.isnan(batch.expected))
            known = ~np.isnan(out)
            assert out[known].tobytes() == batch.expected[known].tobytes()


def test_a_vector_of_several_chunks_walks_chunk_by_chunk(start: Start) -> None:
    world = start(2)
    batch = Batch(7, 9 << 20, [[(0, 1)], [(1, 2)]])
    for step in (1, 2):
        for out in world.everywhere(partial(batch.reduce, world, step)):
            assert out.tobytes() == batch.expected.tobytes()


@pytest.mark.parametrize("differs", ["step", "plan"])
def test_a_rank_that_means_something_else_ends_the_generation(start: Start, differs: str) -> None:
    world = start(3)
    shared = [[[(0, 1)], [(1, 2)], [(2, 3)]], [[(0, 1)], [(1, 3)], []]]
    batches = [Batch(8, WALKING_FLOATS, each) for each in shared]

    def reduce(rank: int) -> Vector:
        odd = rank == 1
        if differs == "step":
            return batches[0].reduce(world, 9 if odd else 1, rank)
        return batches[odd].reduce(world, 1, rank)

    with ThreadPoolExecutor(1) as pool:
        evidence = pool.submit(world.abort_when_broken)
        results = world.everywhere(reduce)
    assert all(isinstance(result, GenerationLost) for result in results)
    assert "expected walk" in evidence.result() or "peer was lost" in evidence.result()


@pytest.mark.parametrize(
    ("reduction", "messages"),
    [*(("exact", count) for count in (0, 2, 4, 5)), *(("fast", count) for count in (0, 1, 3))],
)
def test_a_rank_that_dies_on_the_walk_is_told_of(
    start: Start, monkeypatch: pytest.MonkeyPatch, reduction: str, messages: int
) -> None:
    """So that the daemon ends the generation, wherever the sums are: nobody waits for the dead.
    Three ranks, sections of one piece: parts go out first, then their sums, then the whole."""
    command = [sys.executable, str(Path(__file__).parent / "dying.py"), str(messages)]
    monkeypatch.setattr(World, "command", lambda self, rank: command if rank == 1 else COMMAND)
    world = start(3, reduction=reduction)
    batch = Batch(9, 3 * WALKING_FLOATS, planned(8, 3))
    reduce = partial(batch.reduce, world, 1)
    if reduction == "fast":
        reduce = partial(reduce_fast, world, batch, 1)
    with ThreadPoolExecutor(1) as pool:
        evidence = pool.submit(world.abort_when_broken)
        results = world.everywhere(reduce)
    assert isinstance(results[2], GenerationLost)
    # What comes to the others comes from rank 2, which may have sent all of it.
    for result in results[:2]:
        assert isinstance(result, GenerationLost) or np.allclose(
            result, batch.expected, rtol=1e-3, atol=1e-3 * np.abs(batch.expected).max()
        )
    assert "peer was lost" in evidence.result()
    assert world.reducers[1].wait(PATIENCE_SECONDS) == -signal.SIGKILL
