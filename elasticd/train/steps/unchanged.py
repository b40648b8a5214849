"""Does ``collate`` leave samples as they are? One that it changes where the dataset keeps it is
another when it is used again, on this rank alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from elasticd.train.steps.likeness import sample_digest

_LOOKED_AT = 3
"""Steps. More would cost time in each, and such a ``collate`` changes samples at once, as a
rule."""

Fetch = Callable[[], Sequence[Any]]


def is_looked_at(step: int, grain: int) -> bool:
    """Whether ``collate`` is watched there: every process begins with the first grain of step 1."""
    return grain == 0 and step <= _LOOKED_AT


class GivenSamples:
    """Those that ``collate`` is given, as they were before. Of objects of other kinds than numbers,
    texts, arrays and containers of these nothing is known."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self._samples = list(samples)
        self._before = [sample_digest(sample) for sample in samples]

    def changed(self, fetch: Fetch) -> int | None:
        """The first that has become another, and stays it when it is fetched again: one that is
        made anew each time may be changed."""
        here = self._samples
        changed = [k for k, sample in enumerate(here) if sample_digest(sample) != self._before[k]]
        if not changed:
            return None
        # Twice, for data that give another sample each time aren't collate's fault.
        again = [[sample_digest(found[k]) for k in changed] for found in (fetch(), fetch())]
        for k, one, other in zip(changed, again[0], again[1], strict=True):
            if one == other != self._before[k]:
                return k
        return None
