"""What daemons have kept of a job's losses, and of what its steps were made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticd.client.client import Client
from elasticd.core.jobs.losses import Loss
from elasticd.core.words.requests import ReadLosses
from elasticd.errors import ElasticdError
from elasticd.types import JobId

_FURTHEST = 1 << 53


def kept_losses(client: Client, job: str) -> tuple[list[Loss], list[Mapping[str, Any]]]:
    """The loss by step, and the ranks with what their steps were made of; nothing if no daemon can
    tell: it may be of an earlier version."""
    try:
        told = client.request(ReadLosses(JobId(job)))
    except ElasticdError:
        return [], []
    losses, ranks = told.get("losses"), told.get("ranks")
    found = [point for pair in _listed(losses) if (point := _point(pair)) is not None]
    return found, [each for each in _listed(ranks) if isinstance(each, Mapping)]


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _point(pair: object) -> Loss | None:
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    step, loss = pair
    if not isinstance(step, int) or not isinstance(loss, int | float):
        return None
    return (step, float(loss)) if 0 < step < _FURTHEST and -1e15 < loss < 1e15 else None
