from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from elasticd.errors import ProtocolError
from elasticd.ipc.plan import ChunkPlan, VectorLayout
from elasticd.ipc.records import Kind, Record
from elasticd.recovery import tree
from elasticd.reducer.ring import LANES, SEAL_FLOATS, check_lanes, check_seals, lanes_of
from elasticd.reducer.serve import add_parts
from elasticd.types import Range

RECORD = Record(Kind.CHUNK, 7, 3, 2, 0, bytes(range(16)))


def seal(rank: int, step: int = 3) -> bytes:
    record = Record(Kind.CHUNK, 7, step, 2, 0, bytes(range(16)))
    return record.seal(b"plan" * 4, 5, rank)


@given(st.data())
def test_parts_add_up_with_the_bits_of_the_tree(data: st.DataObject) -> None:
    grains, ranks, n = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 4)), 6
    owner = [data.draw(st.integers(0, ranks - 1)) for _ in range(grains)]
    numbers = np.random.default_rng(grains)
    vectors = numbers.standard_normal((grains, n)) * 10 ** numbers.uniform(-6, 6, (grains, 1))
    leaves = {(g, g + 1): vectors[g].astype(np.float32) for g in range(grains)}
    shares = [
        tree.cover([(g, g + 1) for g in range(grains) if owner[g] == rank], grains)
        for rank in range(ranks)
    ]
    layout = VectorLayout.of("exact", n, ChunkPlan(grains, tuple(shares)))
    rows = np.full((ranks, layout.width * n), np.nan, np.float32)
    for rank, nodes in enumerate(shares):
        for index, node in enumerate(nodes):
            rows[rank, index * n : (index + 1) * n] = subtree(leaves, node)
    into = np.zeros(n, np.float32)
    add_parts(rows, layout, into)
    assert into.tobytes() == subtree(leaves, (0, grains)).tobytes()


def subtree(leaves: dict[Range, NDArray[np.float32]], node: Range) -> NDArray[np.float32]:
    inside = {leaf: leaves[leaf] for leaf in leaves if node[0] <= leaf[0] < node[1]}
    return np.asarray(tree.finish(inside, node, np.add))


def gathered(seals: list[bytes]) -> NDArray[np.float32]:
    ends = np.stack([np.frombuffer(each, np.float32) for each in seals])
    return np.concatenate([ends, np.zeros((len(seals), 9), np.float32), ends], 1)


def test_seals_of_all_ranks_are_checked_at_both_ends() -> None:
    expected = [seal(rank) for rank in range(3)]
    check_seals(gathered(expected), expected)
    with pytest.raises(ProtocolError, match=r"rank 1 sent chunk 7 \(step 4.*expected .*step 3"):
        check_seals(gathered([seal(0), seal(1, step=4), seal(2)]), expected)
    for place in (0, SEAL_FLOATS - 1, -SEAL_FLOATS, -1):
        cut = gathered(expected)
        cut[2, place] = 1.5
        with pytest.raises(ProtocolError, match="rank 2"):
            check_seals(cut, expected)


def test_lanes_prove_agreement_only() -> None:
    def summed(steps: list[int]) -> NDArray[np.float32]:
        lanes = np.sum([lanes_of(seal(0, step)) for step in steps], 0, dtype=np.float32)
        return np.concatenate([lanes, np.zeros(5, np.float32), lanes])

    check_lanes(summed([3, 3, 3]), seal(0), 3)
    for steps in ([3, 3, 4], [3, 3], [4, 4, 4]):
        with pytest.raises(ProtocolError, match="agree"):
            check_lanes(summed(steps), seal(0), 3)
    for place in (0, LANES - 1, -LANES, -1):
        broken = summed([3, 3, 3])
        broken[place] = np.nan
        with pytest.raises(ProtocolError):
            check_lanes(broken, seal(0), 3)
