"""How many samples a node can compute at once, by what was measured of its memory.

A node holds the whole model, however many there are: its weights, the optimizer's moments, and the
gradient of the last step until all have applied it. While it computes it holds besides: what a
grain takes, its gradient included, and sums of gradients, of which at most log2 of its grains are
held at once. A node may have to compute all grains, when it is the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

MOST_SAMPLES = 4096
"""At once, where no global batch says less."""


@dataclass(frozen=True, slots=True)
class MemoryHold:
    """What a node holds, in bytes.

    Attributes:
        resident_bytes: all the time.
        gradient_bytes: one gradient, in the parameters' dtype.
        sum_bytes: one sum of gradients, in float32.
    """

    resident_bytes: int
    gradient_bytes: int
    sum_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """So many samples at once took so much besides what is held all the time."""

    samples: int
    extra_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """What a grain takes: ``fixed_bytes``, and ``sample_bytes`` for each of its samples. None: that
    was not measured."""

    hold: MemoryHold
    fixed_bytes: int
    sample_bytes: int | None

    @classmethod
    def of(cls, hold: MemoryHold, points: Sequence[MemoryPoint]) -> MemoryFit:
        """By the steepest rise between two measurements. Of a single one all that isn't the
        gradient counts as the samples', which is rather too much than too little."""
        by_samples: dict[int, int] = {}
        for each in points:
            by_samples[each.samples] = max(each.extra_bytes, by_samples.get(each.samples, 0))
        known = sorted(by_samples.items())
        if not known:
            return cls(hold, hold.gradient_bytes, None)
        if len(known) == 1:
            ((samples, extra),) = known
            return cls(
                hold, hold.gradient_bytes, -(-max(0, extra - hold.gradient_bytes) // samples)
            )
        rises = [
            -(-(more - extra) // (n - samples)) for (samples, extra), (n, more) in pairwise(known)
        ]
        slope = max(0, *rises)
        return cls(hold, max(0, *(extra - slope * n for n, extra in known)), slope)

    def needed(self, samples: int, grains: int) -> int:
        """Bytes, with ``samples`` at once; without what they take where that is not known."""
        sums = (grains - 1).bit_length() * self.hold.sum_bytes
        of_samples = samples * (self.sample_bytes or 0)
        return self.hold.resident_bytes + self.fixed_bytes + of_samples + sums

    def most(self, limit_bytes: int, share: int | None, nodes: int) -> int:
        """How many samples at once fit; 0: not even one. One where it is not known what they take.

        ``share``: each node's part of the global batch, which they have to divide; None: any.
        """
        able = _able(share) if self.sample_bytes is not None else [1]
        for samples in able:
            if self.needed(samples, nodes * ((share or samples) // samples)) <= limit_bytes:
                return samples
        return 0


def _able(share: int | None) -> Iterable[int]:
    if share is None:
        return [1 << n for n in range(MOST_SAMPLES.bit_length() - 1, -1, -1)]
    return [n for n in range(share, 0, -1) if share % n == 0]
