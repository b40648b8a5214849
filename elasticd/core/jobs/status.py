"""What ``status`` shows of a job, from its record and its leader's last summary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from elasticd.core.words.limits import in_a_line
from elasticd.core.words.records import JobRecord
from elasticd.recovery import fitness
from elasticd.recovery.exactness import FAST
from elasticd.recovery.relief import cut
from elasticd.settings.job import JobSpec
from elasticd.types import NodeId

_MOST_LEFT_OUT = 16
"""So many jobs are told of that go on without a node: a full queue has thousands."""


def job_status(
    record: JobRecord,
    summary: Mapping[str, Any],
    queue_position: int | None = None,
    parked: str = "",
    waits: str = "",
) -> dict[str, Any]:
    """One entry of ``status --json``'s jobs. ``parked``: why nothing trains on this side.
    ``waits``: what a queued job waits for."""
    spec = JobSpec.from_dict(record.spec)
    fields: dict[str, Any] = {
        "generation": 0,
        "step": 0,
        "loss": None,
        "values": {},
        "steps_per_second": 0.0,
        "recoveries": 0,
        "lost_steps": 0,
        "exact": spec.world.reduction == "exact" and not record.inexact,
        "exact_reason": FAST if spec.world.reduction != "exact" else record.inexact or None,
        "updates_on_cpu": any(so for _, _, so in record.on_cpu),
        "bytes_per_step": 0,
        "fast_bytes_per_step": 0,
        "digest": None,
        "digest_step": None,
        "ranks": [],
        "quarantined": [],
        "unfit": [
            {"node": n, "reason": why} for n, why in sorted(fitness.left_out(record.unfit).items())
        ],
        **summary,
        **record.account,
    }
    if record.inexact:  # which another side may have found, of a job that has ended on this one
        fields |= {"exact": False, "exact_reason": fields["exact_reason"] or record.inexact}
    if parked and record.state == "running":
        fields |= {"state": "parked", "reason": parked, "ranks": [], "steps_per_second": 0.0}
    elif record.state != "running":
        fields |= {"state": record.state, "reason": record.reason, "ranks": []}
        fields |= {"steps_per_second": 0.0}
    if record.state == "queued":
        fields["reason"] = "; ".join(text for text in (waits, record.reason) if text) or None
    if record.paused and not record.ended:
        fields |= _paused(record, fields.get("reason"), plain=spec.plain is not None)
    if record.ended:
        fields["step"] = max(fields["step"], record.step)
    if record.state in ("queued", "finished"):
        fields["step"] = record.step  # our summary may be of a side that went on beyond the end
    if record.state == "finished":
        fields |= {"digest": record.digest, "digest_step": record.step}
    if spec.plain is not None:
        fields |= _plain(fields)
    return {
        "id": record.id,
        "name": spec.job.name,
        "mode": spec.job.mode,
        "state": "running",
        "reason": None,
        "steps": spec.train.steps,
        "global_batch": spec.batch.global_,
        "micro_batch": cut(spec.batch.global_, spec.batch.micro, record.relief).micro,
        "micro_batch_asked": spec.batch.micro,
        "relief": record.relief,
        "priority": record.priority,
        "submitted_by": record.submitter or None,
        "submitted_on": record.submitted_on or None,
        "queue_position": queue_position,
        **fields,
    }


_OF_STEPS = ("step", "grains", "grain_seconds", "active_bytes", "cached_bytes", "peak_bytes")
"""What a rank of a plain job tells of the rounds, and of the process in which it makes them."""


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Its script makes its own steps: those of the library, rounds of news between its ranks, are
    nobody's business, and no bits are promised."""
    nothing = dict.fromkeys(("loss", "exact", "exact_reason", "digest", "digest_step"))
    none = dict.fromkeys(
        ("step", "steps", "lost_steps", "bytes_per_step", "fast_bytes_per_step"), 0
    )
    ranks = [{**r, **{key: 0 for key in _OF_STEPS if key in r}} for r in fields["ranks"]]
    return {
        **nothing,
        **none,
        "values": {},
        "updates_on_cpu": False,
        "steps_per_second": 0.0,
        "restarts": fields.get("restarts", 0),
        "script_seconds": fields.get("script_seconds", 0.0) if ranks else 0.0,
        "ranks": [{**rank, "seconds": {}} if "seconds" in rank else rank for rank in ranks],
    }


def job_settings(record: JobRecord) -> dict[str, Any]:
    """What the job's job.toml says, for people: of its variables the names only."""
    spec = JobSpec.from_dict(record.spec).to_dict()
    spec["job"]["env"] = sorted(spec["job"].get("env") or ())
    if record.passed:
        spec["job"]["pass_env"] = list(record.passed)
    try:
        return with_recipe(spec, record)
    except ValueError:
        return spec


def with_recipe(spec: Mapping[str, Any], record: JobRecord) -> dict[str, Any]:
    """``spec``, the record's, with the recipe instead of the script that stands for it there.

    Raises:
        ValueError: the recipe can't be read.
    """
    if not record.recipe:
        return dict(spec)
    job = {name: value for name, value in spec["job"].items() if name != "entrypoint"}
    return {**spec, "job": job, "recipe": json.loads(record.recipe)}


def _paused(record: JobRecord, why: str | None, *, plain: bool) -> dict[str, Any]:
    """``why``: what one that is still to come to rest waits for."""
    if record.state == "queued":
        return {"state": "paused", "reason": "paused by the user"}
    if plain:
        return {"reason": "it is to be paused: its script is ended on every rank"}
    text = "it is to be paused, at a step that every member commits and stores"
    return {"reason": f"{text}; it waits: {why}" if why else text}


def jobs_without(queue: Iterable[JobRecord], node: NodeId) -> list[dict[str, str]]:
    """The first jobs of ``queue`` that go on without ``node``, each with the reason in short: the
    job's own entry has all of it."""
    found = ((record.id, fitness.left_out(record.unfit).get(node)) for record in queue)
    told = ({"job": job, "reason": in_a_line(why)} for job, why in found if why is not None)
    return list(islice(told, _MOST_LEFT_OUT))
