"""What a trainer gives to others, as the tensors and metadata of one file."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from elasticd.checkpoints import layout
from elasticd.train.protocol.lending import Given
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update, packed


def contents(given: Given[Snapshot, Update]) -> tuple[Mapping[str, mx.array], Mapping[str, str]]:
    """Updates, else the part of the state that was asked for."""
    if given.updates:
        return packed(given.updates)
    assert given.state is not None
    return _part(given.state, given.part, given.parts), given.state.metadata()


def _part(snapshot: Snapshot, part: int, parts: int) -> Mapping[str, mx.array]:
    if parts <= 1:
        return snapshot.tensors
    sizes = {name: array.nbytes for name, array in snapshot.tensors.items()}
    return {name: snapshot.tensors[name] for name in layout.split(sizes, parts)[part]}
