"""What a trial of a job is to be like (:mod:`elasticd.train.trial`), as who starts it says it."""

from __future__ import annotations

import json
from dataclasses import dataclass

WARM_STEPS = 2
"""They compile kernels and make the optimizer's state: nothing of them counts."""


@dataclass(frozen=True, slots=True)
class TrialWish:
    """``fd``: where lines of JSON go. ``relief``: the level of it. ``store_every``: steps between
    checkpoints; 0: none."""

    fd: int
    job: str
    overrides: tuple[str, ...] = ()
    relief: int = 0
    store_every: int = 0

    @classmethod
    def read(cls, text: str) -> TrialWish:
        """What :func:`json.dumps` has made of the fields."""
        told = json.loads(text)
        return cls(**{**told, "overrides": tuple(told["overrides"])})
