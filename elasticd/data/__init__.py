"""Data of a training script, beyond lists: ``from elasticd import data``.

Samples have one order for the whole job, whatever the number of ranks, and each is known by its
position in it. So a process that joins begins where the others are, with the same samples.
"""

from __future__ import annotations

from elasticd.data.huggingface import from_datasets as from_datasets
from elasticd.data.jsonlines import JsonLines as JsonLines
from elasticd.data.packed import PackedRows as PackedRows
from elasticd.data.packed import packed as packed
from elasticd.data.packed import row_mask as row_mask
from elasticd.data.packed import row_positions as row_positions
from elasticd.data.packed import row_targets as row_targets
from elasticd.data.prefetched import PrefetchedRows as PrefetchedRows
from elasticd.data.prefetched import prefetched as prefetched
from elasticd.data.stream import SampleStream as SampleStream
from elasticd.data.tokens import CachedTokens as CachedTokens
from elasticd.data.tokens import cached as cached

__all__ = [
    "CachedTokens", "JsonLines", "PackedRows", "PrefetchedRows", "SampleStream", "cached",
    "from_datasets", "packed", "prefetched", "row_mask", "row_positions", "row_targets",
]  # fmt: skip
