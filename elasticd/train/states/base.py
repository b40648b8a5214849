"""Frozen weights that every node loads from files of its own.

They are no part of the state: no checkpoint holds them, and nobody is sent any. That all have the
same is known by digests of the files, which members compare before the first step, and of which a
stored state names those that it belongs to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import mlx.core as mx

from elasticd.checkpoints import integrity
from elasticd.errors import MismatchError, UsageError
from elasticd.train.states.trees import array_slots, arrays

T = TypeVar("T")
_SLICE_BYTES = 16 << 20


@dataclass(frozen=True)
class Base:
    """``files``: digests by name; ``paths``: the model's arrays that come of them."""

    files: Mapping[str, str] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: Any, files: Mapping[str, Path]) -> Base:
        """All parameters that are frozen now, in the layout that bits may depend on; they come of
        these files. Nothing is evaluated.

        Raises:
            OSError: a file can't be read.
        """
        frozen = arrays(model.parameters()).keys() - arrays(model.trainable_parameters()).keys()
        for path, slot in array_slots(model.state).items():
            if path in frozen:
                slot.put(mx.contiguous(slot.value))
        return cls({name: _digest(file) for name, file in files.items()}, frozenset(frozen))

    @property
    def digest(self) -> str:
        """Of all files; empty where there are none."""
        if not self.files:
            return ""
        said = "".join(f"{name}\0{self.files[name]}\0" for name in sorted(self.files))
        return hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    def without(self, found: Mapping[str, T]) -> dict[str, T]:
        """What of the model, by path, is part of the state."""
        if not self.paths:  # as in all jobs but some; this is asked in each step
            return dict(found)
        return {path: value for path, value in found.items() if path not in self.paths}

    def check(self, trained: Iterable[str]) -> None:
        """Raise UsageError if any of it is trained: it would be lost with this process."""
        for path in trained:
            if path in self.paths:
                raise UsageError(f"{path} is of the frozen weights, and can't be trained later on")

    def check_state(self, digest: str) -> None:
        """Raise MismatchError unless a state with this ``digest`` belongs to them."""
        if digest != self.digest:
            one, other = (text or "none" for text in (digest, self.digest))
            raise MismatchError(
                f"the state was trained beside other frozen weights (digest {one}) than there are"
                f" here ({other})"
            )


def _digest(path: Path) -> str:
    hasher = integrity.tensor_hasher()
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(_SLICE_BYTES):
            hasher.update(piece)
    return hasher.hexdigest()[:32]
