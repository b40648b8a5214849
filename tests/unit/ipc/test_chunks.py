"""The trainer's link against a reducer that the test plays by hand."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from elasticd.errors import GenerationLost, ProtocolError
from elasticd.ipc.chunks import ChunkPlan, ReducerLink, create_memory
from elasticd.ipc.memory import SharedMemory
from elasticd.ipc.memoryfile import MEMORY_BYTES
from elasticd.ipc.records import RECORD_BYTES, Kind, Record, describe_seal, generation_hash
from elasticd.types import NodeId, Tag

GENERATION = Tag(3, NodeId("node-1"), "ab")
PLAN = ChunkPlan(4, (((0, 2),), ((2, 4),)))
ONES = np.ones(10, np.float32)


class Bench:
    def __init__(self, reduction: str = "exact", rank: int = 1) -> None:
        memory = create_memory()
        self.memory = SharedMemory(memory)
        self.reducer, trainer = socket.socketpair()
        self.reducer.settimeout(10)
        self.interrupt, self._interrupter = os.pipe()
        self.link = ReducerLink(memory, trainer.detach(), GENERATION, rank, 2, reduction)

    def record(self) -> Record:
        record = Record.unpack(self.reducer.recv(RECORD_BYTES, socket.MSG_WAITALL))
        if record.kind is Kind.PLAN:
            self.reducer.recv(record.extent, socket.MSG_WAITALL)
            return self.record()
        return record

    def interrupt_now(self) -> None:
        os.write(self._interrupter, b"x")

    def close(self) -> None:
        self.link.close()
        self.reducer.close()
        os.close(self.interrupt)
        os.close(self._interrupter)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


def test_memory_is_of_the_right_size_and_goes_with_its_descriptors() -> None:
    fd = create_memory()
    assert os.fstat(fd).st_size == MEMORY_BYTES
    assert os.fstat(fd).st_nlink == 0 and not os.get_inheritable(fd)
    os.close(fd)


def test_a_chunk_goes_out_and_comes_back(bench: Bench) -> None:
    out = np.zeros(10, np.float32)
    with ThreadPoolExecutor(1) as pool:
        part = [ONES[:3], ONES[:0], ONES[3:]]
        done = pool.submit(bench.link.reduce, 5, PLAN, {(2, 4): part}, out, bench.interrupt)
        record = bench.record()
        assert (record.kind, record.step, record.bucket) == (Kind.CHUNK, 5, 0)
        assert record.generation == generation_hash(GENERATION)
        payload = bench.memory.payload(record.extent)
        assert np.array_equal(payload[:10], ONES)
        payload[:10] = np.arange(10)
        bench.reducer.sendall(record.pack())
        done.result(10)
    assert np.array_equal(out, np.arange(10))


@pytest.mark.parametrize("change", [{"step": 6}, {"bucket": 1}, {"serial": 9}, {"kind": Kind.FORM}])
def test_an_answer_with_another_tag_is_never_used(bench: Bench, change: dict[str, Any]) -> None:
    out = np.zeros(10, np.float32)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(bench.link.reduce, 5, PLAN, {(2, 4): [ONES]}, out, bench.interrupt)
        bench.reducer.sendall(replace(bench.record(), **change).pack())
        with pytest.raises(GenerationLost, match="answered"):
            done.result(10)
    assert not out.any()


def test_the_end_of_the_reducer_is_seen_at_once(bench: Bench) -> None:
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(bench.link.barrier, 5, bench.interrupt)
        bench.record()
        bench.reducer.close()
        with pytest.raises(GenerationLost):
            done.result(10)
    with pytest.raises(GenerationLost):
        bench.link.barrier(6, bench.interrupt)


def test_an_interrupt_ends_a_wait(bench: Bench) -> None:
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(bench.link.barrier, 5, bench.interrupt)
        bench.record()
        bench.interrupt_now()
        with pytest.raises(GenerationLost, match="daemon"):
            done.result(10)


def test_closing_is_what_the_reducer_sees(bench: Bench) -> None:
    bench.link.close()
    bench.link.close()
    assert bench.reducer.recv(1) == b""
    with pytest.raises(GenerationLost, match="left"):
        bench.link.barrier(1, bench.interrupt)


@pytest.mark.parametrize(
    ("plan", "parts"),
    [
        (PLAN, {(0, 2): [ONES]}),
        (PLAN, {}),
        (PLAN, {(2, 4): [ONES[:9]]}),
        (PLAN, {(2, 4): [ONES.astype(np.float64)]}),
        (PLAN, {(2, 4): [ONES.reshape(2, 5), ONES[:8]]}),
        (ChunkPlan(4, (((0, 2),), ((2, 4),), ())), {(2, 4): [ONES]}),
        (ChunkPlan(5, (((0, 2),), ((2, 4),))), {(2, 4): [ONES]}),
    ],
)
def test_parts_that_do_not_fit_are_refused_before_anything_is_sent(
    bench: Bench, plan: ChunkPlan, parts: dict[Any, Any]
) -> None:
    with pytest.raises(ValueError):
        bench.link.reduce(1, plan, parts, np.zeros(10, np.float32), bench.interrupt)
    bench.reducer.setblocking(False)
    with pytest.raises(BlockingIOError):
        bench.reducer.recv(1)


@pytest.mark.parametrize(("rank", "reduction"), [(2, "exact"), (-1, "exact"), (0, "slow")])
def test_a_link_that_cannot_be_made_closes_what_it_was_given(rank: int, reduction: str) -> None:
    memory = create_memory()
    ours, theirs = socket.socketpair()
    with pytest.raises(ValueError):
        ReducerLink(memory, theirs.detach(), GENERATION, rank, 2, reduction)
    assert ours.recv(1) == b""
    with pytest.raises(OSError):
        os.fstat(memory)
    ours.close()


def test_a_record_of_no_kind_is_refused() -> None:
    with pytest.raises(ProtocolError, match="unknown kind"):
        Record.unpack(bytes(RECORD_BYTES))


def test_evidence_is_readable() -> None:
    record = Record(Kind.CHUNK, 7, 3, 2, 0, generation_hash(GENERATION))
    text = describe_seal(record.seal(bytes(16), 100, 1))
    assert "chunk 7 (step 3, bucket 2, 100 elements" in text and "rank 1" in text
    assert "unreadable" in describe_seal(bytes(64))
