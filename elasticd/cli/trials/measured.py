"""What trials of a job have measured, and what follows from that. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from elasticd.cli.output import shown_bytes
from elasticd.counting import counted
from elasticd.preflight.trials import Setting, Trial
from elasticd.recovery.relief import Cut

LEAST_GAIN = 0.03
"""What is faster by less than that is not worth other bits."""
TURNS = 3
"""So often both are measured before one is called faster, in turns: a machine has better minutes
and worse ones."""
_DEAR = 0.02
"""Of the time may go into checkpoints."""


def as_told(trial: Trial) -> dict[str, Any]:
    """As ``--json`` tells it."""
    return {
        "micro": trial.setting.micro,
        "recompute": trial.setting.recompute,
        "store_every": trial.setting.store_every,
        "steps": len(trial.seconds),
        "seconds": round(trial.median_seconds, 6) if trial.seconds else None,
        "lowest": round(min(trial.seconds), 6) if trial.seconds else None,
        "highest": round(max(trial.seconds), 6) if trial.seconds else None,
        "peak_bytes": trial.peak_bytes,
        "failed": trial.failed or None,
    }


@dataclass(frozen=True, slots=True)
class TrialComparison:
    """``gain``: by how much a step is shorter, of 1. ``sure``: each run of the one was faster than
    each run of the other, and by enough."""

    before: Setting
    after: Setting
    gain: float
    sure: bool
    said: str


def verdict(before: Sequence[Trial], after: Sequence[Trial]) -> TrialComparison:
    """Of runs of two settings, at least one of each."""
    was, now = ([t.median_seconds for t in trials] for trials in (before, after))
    gain = 1 - median(now) / median(was)
    sure = len(was) >= TURNS <= len(now) and max(now) < min(was) and gain >= LEAST_GAIN
    said = (
        f"a step takes {_spread(now)} in place of {_spread(was)}:"
        f" {abs(gain):.0%} {'shorter' if gain >= 0 else 'longer'}"
    )
    if gain >= LEAST_GAIN and not sure:
        said += ", but not each time"
    elif 0 <= gain < LEAST_GAIN:
        said += f", which is less than {LEAST_GAIN:.0%}"
    return TrialComparison(before[0].setting, after[0].setting, gain, sure, said)


def _spread(seconds: Sequence[float]) -> str:
    runs = counted(len(seconds), "run")
    return f"{median(seconds):.4g} s ({min(seconds):.4g} to {max(seconds):.4g} in {runs})"


@dataclass(slots=True)
class Search:
    """Which sizes of a grain are tried. ``nodes``: so many are to have a grain each."""

    whole: int
    nodes: int
    run: Callable[[Setting], Trial]
    trials: list[Trial] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """What was not tried, and why."""

    def best(self, micro: int) -> Trial:
        """The fastest of those tried, by the shortest step of one run each, from ``micro`` on. That
        of ``micro`` itself may have failed."""
        base = best = self._try(micro)
        if base.failed and not base.short:
            return base
        if not base.short:
            best = self._climb(base, lambda n: n * 2)
        if best is base and micro > 1:
            best = self._climb(base, lambda n: n // 2)
        return best

    def _climb(self, base: Trial, step: Callable[[int], int]) -> Trial:
        best, micro = base, step(base.setting.micro)
        while micro >= 1:
            if why := self._not_tried(micro, best):
                self.passed.append(f"micro {micro}: {why}")
                break
            found = self._try(micro)
            if found.seconds and not best.seconds:
                return found  # what fits at all is looked for downwards
            if not found.seconds and best.seconds:
                break
            if best.seconds and min(found.seconds) >= min(best.seconds) * (1 - LEAST_GAIN):
                break
            best, micro = found, step(micro)
        return best

    def _try(self, micro: int) -> Trial:
        self.trials.append(found := self.run(Setting(micro)))
        return found

    def _not_tried(self, micro: int, last: Trial) -> str:
        if micro > self.whole:
            return f"a batch has {self.whole} samples"
        if Cut(self.whole, micro).grains < self.nodes:
            return f"{counted(self.nodes, 'node')} would not have a grain each"
        per_sample = max(0, last.peak_bytes - last.active_bytes) / last.setting.micro
        needed = last.active_bytes + per_sample * micro
        if last.limit_bytes and needed > last.limit_bytes:
            have = shown_bytes(last.limit_bytes)
            return f"it would take about {shown_bytes(int(needed))}, and {have} are to be used"
        return ""


def noise(runs: Sequence[Trial]) -> float:
    """By how much runs of one setting differ, of 1."""
    medians = [trial.median_seconds for trial in runs]
    return max(medians) / min(medians) - 1


def of_recomputing(runs: Sequence[Trial], again: Trial) -> str:
    """What it brings and costs beside ``runs`` without it, in a sentence."""
    if not again.seconds:
        return f"recomputation: its trial failed: {again.failed}"
    longer = again.median_seconds / median(t.median_seconds for t in runs) - 1
    takes = f"{longer:.0%} longer"
    if longer <= noise(runs):  # computing more makes no step shorter, but by chance
        takes = f"about as long (runs of one setting differ by {noise(runs):.0%})"
    return (
        f"recomputation: arrays have {shown_bytes(again.peak_bytes)} at most in place of"
        f" {shown_bytes(max(t.peak_bytes for t in runs))}, and a step takes {takes}. It begins by"
        " itself where memory runs out, so there is no key for it"
    )


def of_storing(runs: Sequence[Trial], stores: Trial, every: int | str) -> str:
    """What checkpoints cost at the interval of job.toml, in a sentence. ``runs``: without any."""
    if not stores.stored or not stores.seconds:
        why = stores.failed or "none was written meanwhile"
        return f"checkpoints: what they cost is not known: {why}"
    size, seconds = stores.stored[-1][0], median(s for _, s in stores.stored)
    plain = median(t.mean_seconds for t in runs)
    said = (
        f"checkpoints: one of {shown_bytes(size)} takes {seconds:.3g} s beside training"
        f" ({counted(len(stores.stored), 'was', 'were')} written)"
    )
    longer = stores.mean_seconds - plain
    if longer <= noise(runs) * plain:
        return f"{said}. What that costs training is less than runs of one setting differ"
    more = longer * stores.setting.store_every
    said += f", and makes the steps meanwhile {more:.3g} s longer"
    if isinstance(every, str):
        return f'{said}. every_steps = "auto" goes by that'
    share = more / (every * plain + more)
    said += f": with every_steps = {every} that is {share:.1%} of the time"
    if share <= _DEAR:
        return said
    wanted = math.ceil(more * (1 - _DEAR) / (_DEAR * plain))
    return (
        f'{said}, with {wanted} it would be {_DEAR:.0%}. every_steps = "auto" finds that by itself'
    )
