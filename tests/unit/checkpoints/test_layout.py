"""Names that come back as what they were made of; shards, balanced and written often enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoints import layout
from elasticd.types import Stamp

STAMP = Stamp("0123456789abcdef0123456789abcdef")


def test_names() -> None:
    assert layout.final_name(12, STAMP) == "00000012-0123456789ab"
    assert layout.partial_name(12, STAMP) == "00000012-0123456789ab.partial"
    assert layout.shard_name(1, 3) == "shard-00001-of-00003.safetensors"
    assert layout.parse_folder("00000012-0123456789ab") == (12, "0123456789ab", False)
    assert layout.parse_folder("00000012-0123456789ab.partial") == (12, "0123456789ab", True)
    assert layout.parse_folder(layout.final_name(10**9, STAMP)) == (10**9, "0123456789ab", False)
    assert layout.parse_shard("shard-00001-of-00003.safetensors") == (1, 3)


@pytest.mark.parametrize(
    "name",
    ["", "12-0123456789ab", "000000012-01", "00000012-xyz", "00000012-01.tmp", "00000012-01\n"],
)
def test_other_folders_are_not_ours(name: str) -> None:
    assert layout.parse_folder(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "shard-00003-of-00003.safetensors",
        "shard-1-of-3.safetensors",
        "shard-000001-of-00003.safetensors",
        "shard-00001-of-00003.safetensors.tmp",
    ],
)
def test_other_files_are_not_shards(name: str) -> None:
    assert layout.parse_shard(name) is None


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 1000), max_size=20), st.integers(1, 6))
def test_split_is_balanced_and_does_not_depend_on_the_order(
    sizes: dict[str, int], count: int
) -> None:
    shards = layout.split(sizes, count)
    assert sorted(name for names in shards for name in names) == sorted(sizes)
    assert len(shards) == count and all(names == sorted(names) for names in shards)
    assert layout.split(dict(reversed(sizes.items())), count) == shards
    loads = [sum(sizes[name] for name in names) for names in shards]
    # The heaviest took its last tensor when it was the lightest.
    assert max(loads) - min(loads) <= max(sizes.values(), default=0)


def test_split_needs_a_shard() -> None:
    with pytest.raises(ValueError, match="0 shards"):
        layout.split({}, 0)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4))
def test_every_shard_is_written_by_as_many_ranks_as_wanted(
    size: int, count: int, replicas: int
) -> None:
    written = [layout.writes(rank, size, count, replicas) for rank in range(size)]
    for shard in range(count):
        assert sum(shard in shards for shards in written) == min(replicas, size)


def test_due_at_the_start_at_multiples_and_at_the_end() -> None:
    assert [step for step in range(26) if layout.due(step, 10, 25)] == [0, 10, 20, 25]


def test_placement_without_domains_is_the_usual_one() -> None:
    for size in range(1, 8):
        for replicas in range(1, 4):
            placed = layout.placement([""] * size, replicas)
            for rank in range(size):
                mine = [shard for shard, ranks in enumerate(placed) if rank in ranks]
                assert mine == layout.writes(rank, size, size, replicas)


def test_replicas_are_in_different_domains_where_there_are_any() -> None:
    for domains in (
        ["a", "a", "b", "b"],
        ["a", "b", "a", "b"],
        ["a", "a", "a", "b"],
        ["a", "", ""],
    ):
        placed = layout.placement(domains, 2)
        for ranks in placed:
            names = [domains[rank] for rank in ranks if domains[rank]]
            assert len(ranks) == 2 and len(set(names)) == len(names)
    balanced = layout.placement(["a", "a", "b", "b"], 2)
    assert [sum(rank in ranks for ranks in balanced) for rank in range(4)] == [2, 2, 2, 2]
    assert layout.placement(["a", "a", "a"], 2) == layout.placement([""] * 3, 2)
