"""Where the time of a step goes, rank by rank: the one place where that is reckoned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticd.types import STEP_PARTS


def step_seconds(told: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """What each rank's step is made of, from what each has told; empty for one that tells nothing.

    All sums of a step end together. So who comes last takes the least time for them, which is that
    of the exchange itself. What others take beyond that they wait.
    """
    exchange = min((each.get("reduce", 0.0) for each in told if each), default=0.0)
    return [_parts(each, exchange) if each else {} for each in told]


def _parts(told: Mapping[str, float], exchange: float) -> dict[str, float]:
    parts = {part: max(0.0, told.get(part, 0.0)) for part in STEP_PARTS}
    parts["waiting"] += max(0.0, parts["reduce"] - exchange)
    parts["reduce"] = min(parts["reduce"], exchange)
    return {part: round(seconds, 5) for part, seconds in parts.items()}
