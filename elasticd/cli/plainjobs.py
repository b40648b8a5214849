"""What is shown of a job of ``mode = "plain"``: nobody but its script knows of steps and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticd.counting import counted, lasting
from elasticd.settings.plain import PLAIN

MODE = "plain: its script has its own group and steps"


def is_plain(job: Mapping[str, Any]) -> bool:
    """Of ``status``."""
    return job.get("mode") == PLAIN


_OF_BATCHES = ("global_batch", "micro_batch", "micro_batch_asked", "relief")


def told(job: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of ``status --json``. Of a plain job nobody but its script knows the batch."""
    unknown = dict.fromkeys(key for key in _OF_BATCHES if key in job)
    return {**job, **unknown} if is_plain(job) else dict(job)


def news(job: Mapping[str, Any], events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that somebody who waits wants to see: a plain job stores how its rounds stand, several
    times in a second while its script doesn't run, and nothing of the script's."""
    left_out = "checkpoint_committed" if is_plain(job) else None
    return [event for event in events if event.get("kind") != left_out]


def runs(job: Mapping[str, Any]) -> str | None:
    """How long its script runs already; None: it does not, or the daemon is an earlier one."""
    seconds = job.get("script_seconds")
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e11:
        return None
    return f"for {lasting(float(seconds))}"


def again(job: Mapping[str, Any]) -> str | None:
    """How often its script was begun anew; None: an earlier daemon doesn't tell."""
    count = job.get("restarts")
    return counted(count, "time") if isinstance(count, int) else None


def in_words(job: Mapping[str, Any]) -> list[str]:
    """What there is to tell of one in place of steps, loss and speed."""
    ranks, said, anew = len(job.get("ranks") or ()), runs(job), again(job)
    parts = [counted(ranks, "rank")] if ranks else []
    parts += [f"its script runs {said}"] if said else []
    parts += [f"begun anew {anew}"] if anew else []
    return [*parts, counted(job.get("recoveries"), "recovery", "recoveries")]
