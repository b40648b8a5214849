"""What a step is made of, as all commands show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticd.cli.tables import Row, Table
from elasticd.types import STEP_PARTS

PERFORMANCE = Table(
    ("rank", "node", *STEP_PARTS, "step"),
    drops=("script", "checkpoint", "update", "data", "waiting", "reduce", "compute"),
)
"""Seconds a step; ``step`` is their sum."""


def performance_rows(ranks: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Of the ranks of ``status``; None where nothing is told."""
    return [_row(rank) for rank in ranks]


def told_parts(rank: Mapping[str, Any]) -> dict[str, float] | None:
    """Seconds by part of a rank of ``status``; None: it tells none."""
    told = rank.get("seconds")
    if not isinstance(told, Mapping) or not told:
        return None
    found = {part: told.get(part) for part in STEP_PARTS}
    return {part: float(v) for part, v in found.items() if isinstance(v, int | float)}


def _row(rank: Mapping[str, Any]) -> Row:
    parts = told_parts(rank)
    if parts is None:
        return (rank.get("rank"), rank.get("node"), *(None for _ in STEP_PARTS), None)
    shown = [f"{parts[part]:.4f}" if part in parts else None for part in STEP_PARTS]
    return (rank.get("rank"), rank.get("node"), *shown, f"{sum(parts.values()):.4f}")
