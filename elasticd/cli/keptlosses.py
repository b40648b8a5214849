"""What daemons have kept of a job's losses and other values, and of what its steps were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.client.client import Client
from elasticd.core.jobs.losses import Loss
from elasticd.core.words.requests.looking import ReadLosses
from elasticd.errors import ElasticdError
from elasticd.types import MOST_NAME_LETTERS, MOST_NAMED, JobId

_FURTHEST = 1 << 53

Named = Mapping[str, list[Loss]]


@dataclass(frozen=True, slots=True)
class KeptCurves:
    """By step. ``named``: what the script gave to ``run.log``. ``ranks``: with what their steps
    were made of."""

    losses: list[Loss] = field(default_factory=list)
    named: Named = field(default_factory=dict)
    ranks: list[Mapping[str, Any]] = field(default_factory=list)


def kept_curves(client: Client, job: str) -> KeptCurves:
    """Nothing if no daemon can tell: it may be of an earlier version."""
    try:
        told = client.request(ReadLosses(JobId(job)))
    except ElasticdError:
        return KeptCurves()
    values = told.get("values")
    named = values.items() if isinstance(values, Mapping) else ()
    curves = {
        name: _points(points)
        for name, points in [*named][: MOST_NAMED + 1]
        if isinstance(name, str) and len(name) <= MOST_NAME_LETTERS
    }
    ranks = [each for each in _listed(told.get("ranks")) if isinstance(each, Mapping)]
    return KeptCurves(_points(told.get("losses")), curves, ranks)


def value_of(told: object) -> Loss | None:
    """Of what ``status`` says of one name."""
    return _point([told.get("step"), told.get("value")]) if isinstance(told, Mapping) else None


def _points(value: object) -> list[Loss]:
    return [point for pair in _listed(value) if (point := _point(pair)) is not None]


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _point(pair: object) -> Loss | None:
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    step, loss = pair
    if not isinstance(step, int) or not isinstance(loss, int | float):
        return None
    return (step, float(loss)) if 0 < step < _FURTHEST and -1e15 < loss < 1e15 else None
