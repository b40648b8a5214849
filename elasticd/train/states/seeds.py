"""From what NumPy makes the children of a generator: the seed that it was made with, and how many
there are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

_MOST_CHOSEN = (1 << 64) - 1
"""A larger number NumPy may have drawn itself, where it was given none."""
_DRAWN_BYTES = 16


def seeds_of(generator: np.random.Generator) -> np.random.SeedSequence | None:
    """Of its children; None: it has others than NumPy's."""
    seeds = generator.bit_generator.seed_seq
    return seeds if type(seeds) is np.random.SeedSequence else None


def begin_anew(seeds: np.random.SeedSequence, changed: Mapping[str, Any]) -> None:
    """Have the next children follow from what is ``changed``, and for the rest from what there is.
    It has no method for that, but may begin anew."""
    np.random.SeedSequence.__init__(seeds, **{**seeds.state, **changed})


def to_keep(seeds: np.random.SeedSequence) -> dict[str, Any] | None:
    """What others need in order to make the same children; None: they have it by the script.

    An earlier version keeps this only once there are children, and a state of it is compared with
    those of others. So what isn't needed is left out.
    """
    return dict(seeds.state) if seeds.n_children_spawned or _is_drawn(seeds) else None


def not_kept(seeds: np.random.SeedSequence, state: Mapping[str, Any]) -> dict[str, Any]:
    """What to begin anew with where only the ``state`` of the generator was kept: the same in every
    process, whatever each has drawn."""
    changed: dict[str, Any] = {"n_children_spawned": 0}
    if _is_drawn(seeds):
        digest = hashlib.blake2b(repr(sorted(state.items())).encode(), digest_size=_DRAWN_BYTES)
        changed["entropy"] = int.from_bytes(digest.digest(), "big") | 1 << (8 * _DRAWN_BYTES - 1)
    return changed


def _is_drawn(seeds: np.random.SeedSequence) -> bool:
    return isinstance(seeds.entropy, int) and seeds.entropy > _MOST_CHOSEN
