"""Data of a training script, beyond lists: ``from elasticd import data``.

Samples have one order for the whole job, whatever the number of ranks, and each is known by its
position in it. So a process that joins begins where the others are, with the same samples.
"""

from __future__ import annotations

from elasticd.data.huggingface import from_datasets as from_datasets
from elasticd.data.jsonlines import JsonLines as JsonLines
from elasticd.data.stream import SampleStream as SampleStream
from elasticd.data.tokens import CachedTokens as CachedTokens
from elasticd.data.tokens import cached as cached

__all__ = ["CachedTokens", "JsonLines", "SampleStream", "cached", "from_datasets"]
