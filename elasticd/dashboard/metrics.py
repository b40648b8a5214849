"""What Prometheus is told: names that stay, each with its unit, and the figures behind them. Pure.

The figures are those of ``status`` and of the report of a job (cli/reports), by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from elasticd.cli.monitors.scene import Event
from elasticd.cli.performance import told_parts
from elasticd.cli.plainjobs import is_plain
from elasticd.cli.reports.chronicle import Chronicle, SeenFault
from elasticd.cli.reports.fields import maps, number, whole, words
from elasticd.cli.reports.goodput import goodput

MetricKind = Literal["gauge", "counter", "summary"]
MetricSource = Literal["status", "events", "this process"]
Labels = tuple[str, ...]

NODE_STATES = ("alive", "suspect", "dead", "draining")
JOB_STATES = (
    "queued", "preflight", "running", "recovering", "parked", "paused", "finished", "failed",
    "cancelled",
)  # fmt: skip
CAUSES = (
    "useful", "detection", "regrouping", "redone", "parked", "growth", "checkpoints", "waiting",
    "paused",
)  # fmt: skip
"""What a job's time goes to: fields of :class:`elasticd.cli.reports.goodput.Goodput`."""
_NAME_LETTERS = 100


@dataclass(frozen=True, slots=True)
class Metric:
    """``name`` ends in its unit, if it has one. Of a summary there are ``_sum`` and ``_count``."""

    name: str
    kind: MetricKind
    labels: Labels
    source: MetricSource
    about: str


METRICS = (
    Metric("elasticd_daemon_up", "gauge", (), "this process",
           "1 if this node's daemon answers; if it doesn't, nothing else is told"),
    Metric("elasticd_build_info", "gauge", ("version",), "this process",
           "always 1; the version of elasticd that serves this"),
    Metric("elasticd_view_epoch", "gauge", (), "status", "number of the view"),
    Metric("elasticd_view_members", "gauge", (), "status", "nodes in the view"),
    Metric("elasticd_loop_stalls_total", "counter", (), "status",
           "how often the daemon's event loop was held up for more than 0.1 s"),
    Metric("elasticd_daemon_failures_total", "counter", (), "status",
           "how often something failed inside the daemon that nobody had thought of"),
    Metric("elasticd_node_state", "gauge", ("node", "state"), "status",
           "1 for the state that the node is in, 0 for the others"),
    Metric("elasticd_node_memory_bytes", "gauge", ("node",), "status", "memory of the machine"),
    Metric("elasticd_link_up", "gauge", ("from", "to", "host"), "status",
           "1 if this node reaches the other one at that address"),
    Metric("elasticd_link_round_trip_seconds", "gauge", ("from", "to", "host"), "status",
           "of the last pings on it"),
    Metric("elasticd_link_bytes_per_second", "gauge", ("from", "to", "host"), "status",
           "as measured once; not there before that"),
    Metric("elasticd_job_state", "gauge", ("job", "state"), "status",
           "1 for the state that the job is in, 0 for the others"),
    Metric("elasticd_job_step", "gauge", ("job",), "status", "committed steps"),
    Metric("elasticd_job_target_steps", "gauge", ("job",), "status", "`train.steps`"),
    Metric("elasticd_job_loss", "gauge", ("job",), "status", "of the last committed step"),
    Metric("elasticd_job_value", "gauge", ("job", "name"), "status",
           "what the script has given to `run.log` last; 33 names at most"),
    Metric("elasticd_job_steps_per_second", "gauge", ("job",), "status", "as `status` shows it"),
    Metric("elasticd_job_generation", "gauge", ("job",), "status", "number of the world"),
    Metric("elasticd_job_ranks", "gauge", ("job",), "status", "ranks in the world"),
    Metric("elasticd_job_global_batch_samples", "gauge", ("job",), "status", "`batch.global`"),
    Metric("elasticd_job_micro_batch_samples", "gauge", ("job",), "status",
           "samples computed at once, as they are now"),
    Metric("elasticd_job_exchanged_bytes_per_step", "gauge", ("job",), "status",
           "what ranks exchange in a step"),
    Metric("elasticd_job_exact", "gauge", ("job",), "status", "1 if its bits are promised"),
    Metric("elasticd_job_recoveries_total", "counter", ("job",), "status", "recoveries"),
    Metric("elasticd_job_lost_steps_total", "counter", ("job",), "status",
           "committed steps that had to be made again"),
    Metric("elasticd_job_restarts_total", "counter", ("job",), "status",
           "of a plain job: so often its script was begun anew"),
    Metric("elasticd_job_script_seconds", "gauge", ("job",), "status",
           "of a plain job: for how long its script runs already"),
    Metric("elasticd_rank_step", "gauge", ("job", "rank", "node"), "status",
           "the last step of that rank"),
    Metric("elasticd_rank_grains", "gauge", ("job", "rank", "node"), "status",
           "grains in its share"),
    Metric("elasticd_rank_grain_seconds", "gauge", ("job", "rank", "node"), "status",
           "median time of its last grains; not there before the first"),
    Metric("elasticd_rank_active_bytes", "gauge", ("job", "rank", "node"), "status",
           "what arrays of its trainer have of MLX's memory now"),
    Metric("elasticd_rank_cached_bytes", "gauge", ("job", "rank", "node"), "status",
           "what MLX keeps there for reuse"),
    Metric("elasticd_rank_peak_bytes", "gauge", ("job", "rank", "node"), "status",
           "the most that arrays ever had in that process"),
    Metric("elasticd_rank_step_seconds", "gauge", ("job", "rank", "node", "part"), "status",
           "what the time of a step goes to, mean of its last 20; not there before the second"),
    Metric("elasticd_job_goodput_ratio", "gauge", ("job",), "events",
           "useful step time over the time in which it was the job's turn"),
    Metric("elasticd_job_time_seconds", "gauge", ("job", "cause"), "events",
           "what the job's time went to since it was submitted"),
    Metric("elasticd_job_faults_total", "counter", ("job", "fault"), "events",
           "faults that were found"),
    Metric("elasticd_job_detection_seconds", "summary", ("job", "fault"), "events",
           "`seconds_to_detect` of `fault_detected`"),
    Metric("elasticd_job_recovery_seconds", "summary", ("job", "rung"), "events",
           "`seconds` of `recovery_finished`"),
    Metric("elasticd_job_checkpoint_step", "gauge", ("job",), "events",
           "step of the newest checkpoint"),
    Metric("elasticd_job_checkpoint_bytes", "gauge", ("job",), "events", "its size"),
    Metric("elasticd_job_checkpoint_replicas", "gauge", ("job",), "events",
           "nodes that hold each of its shards"),
    Metric("elasticd_job_checkpoint_stall_seconds", "gauge", ("job",), "events",
           "for how long training stood still for it"),
    Metric("elasticd_job_checkpoint_write_seconds", "gauge", ("job",), "events",
           "how long it took until it was stored"),
    Metric("elasticd_job_checkpoint_time_seconds", "gauge", ("job",), "events",
           "when that was, in Unix time"),
)  # fmt: skip
"""Names are contracts: dashboards and alerts of others hold on to them."""
_CHECKPOINT_FIELDS = ("step", "bytes", "replicas", "stall_seconds", "write_seconds")


@dataclass(frozen=True, slots=True)
class ToldJob:
    """What the events of a job tell. ``checkpoint``: the newest ``checkpoint_committed``."""

    course: Chronicle | None = None
    checkpoint: Event | None = None


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """What there is at one moment. ``status``: None if no daemon answers. ``told``: by job."""

    version: str
    status: Mapping[str, Any] | None
    told: Mapping[str, ToldJob] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value under the labels of its metric. ``count``: of a summary, how many it sums."""

    metric: str
    labels: Labels
    value: float
    count: int = 0


def samples(figures: ClusterFigures) -> Iterator[Sample]:
    """All that can be told now. What nobody said is left out."""
    status = figures.status
    yield Sample("elasticd_daemon_up", (), 0.0 if status is None else 1.0)
    yield Sample("elasticd_build_info", (figures.version,), 1.0)
    if status is None:
        return
    yield from _cluster(status)
    for node in maps(status, "nodes"):
        yield from _node(status, node)
    for job in maps(status, "jobs"):
        yield from _job(job)
        told = figures.told.get(str(job.get("id")))
        if told is not None:
            found = _told(words(job, "id", _NAME_LETTERS), told)
            yield from (s for s in found if not (is_plain(job) and _is_of_steps(s)))


def _cluster(status: Mapping[str, Any]) -> Iterator[Sample]:
    view, loop = _map(status, "view"), _map(status, "loop")
    yield from _some("elasticd_view_epoch", (), number(view, "epoch"))
    yield Sample("elasticd_view_members", (), len(view.get("members") or ()))
    yield from _some("elasticd_loop_stalls_total", (), number(loop, "stalls"))
    yield from _some("elasticd_daemon_failures_total", (), number(loop, "failures"))


def _node(status: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Sample]:
    name, me = words(node, "id", _NAME_LETTERS), words(_map(status, "loop"), "node", _NAME_LETTERS)
    yield from _states("elasticd_node_state", name, node.get("state"), NODE_STATES)
    memory = number(node, "memory_bytes")
    yield from _some("elasticd_node_memory_bytes", (name,), memory or None)
    for link in maps(node, "links"):
        labels = (me, name, words(link, "host", _NAME_LETTERS))
        yield Sample("elasticd_link_up", labels, float(link.get("state") == "up"))
        for key in ("round_trip_seconds", "bytes_per_second"):
            yield from _some(f"elasticd_link_{key}", labels, number(link, key) or None)


_OF_SCRIPTS = (
    ("generation", "generation"),
    ("recoveries_total", "recoveries"),
    ("restarts_total", "restarts"),
    ("script_seconds", "script_seconds"),
)
"""Of a plain job: what follows ``elasticd_job_`` in a metric's name, and the field of status."""
_OF_STEPS = (
    ("step", "step"),
    ("target_steps", "steps"),
    ("loss", "loss"),
    ("steps_per_second", "steps_per_second"),
    ("generation", "generation"),
    ("global_batch_samples", "global_batch"),
    ("micro_batch_samples", "micro_batch"),
    ("exchanged_bytes_per_step", "bytes_per_step"),
    ("recoveries_total", "recoveries"),
    ("lost_steps_total", "lost_steps"),
)
"""As these, of any other job."""


def _figures(
    job: Mapping[str, Any], name: str, pairs: Iterable[tuple[str, str]]
) -> Iterator[Sample]:
    for metric, key in pairs:
        yield from _some(f"elasticd_job_{metric}", (name,), number(job, key))


def _job(job: Mapping[str, Any]) -> Iterator[Sample]:
    name = words(job, "id", _NAME_LETTERS)
    yield from _states("elasticd_job_state", name, job.get("state"), JOB_STATES)
    ranks = maps(job, "ranks")
    yield Sample("elasticd_job_ranks", (name,), len(ranks))
    if is_plain(job):  # of its steps nobody knows but its script
        yield from _figures(job, name, _OF_SCRIPTS)
        return
    yield from _figures(job, name, _OF_STEPS)
    values = job.get("values")
    for each, told in values.items() if isinstance(values, Mapping) else ():
        if isinstance(told, Mapping):
            yield from _some("elasticd_job_value", (name, str(each)), number(told, "value"))
    yield Sample("elasticd_job_exact", (name,), float(job.get("exact") is True))
    for rank in ranks:
        labels = name, str(whole(rank, "rank")), words(rank, "node", _NAME_LETTERS)
        yield from _some("elasticd_rank_step", labels, number(rank, "step"))
        yield from _some("elasticd_rank_grains", labels, number(rank, "grains"))
        seconds = number(rank, "grain_seconds") or None
        yield from _some("elasticd_rank_grain_seconds", labels, seconds)
        if number(rank, "peak_bytes"):
            for key in ("active_bytes", "cached_bytes", "peak_bytes"):
                yield from _some(f"elasticd_rank_{key}", labels, number(rank, key))
        for part, spent in (told_parts(rank) or {}).items():
            yield Sample("elasticd_rank_step_seconds", (*labels, part), spent)


def _is_of_steps(sample: Sample) -> bool:
    """What a plain job's rounds of news would be taken for."""
    if sample.metric == "elasticd_job_time_seconds":
        return sample.labels[1] in ("useful", "redone", "checkpoints")
    return sample.metric.startswith(("elasticd_job_goodput", "elasticd_job_checkpoint"))


def _told(name: str, told: ToldJob) -> Iterator[Sample]:
    if told.course is not None:
        yield from _course(name, told.course)
    if told.checkpoint is None:
        return
    for key in (*_CHECKPOINT_FIELDS, "time"):
        metric = "elasticd_job_checkpoint_" + ("time_seconds" if key == "time" else key)
        yield from _some(metric, (name,), number(told.checkpoint, key))


def _course(name: str, course: Chronicle) -> Iterator[Sample]:
    spent = goodput(course)
    yield from _some("elasticd_job_goodput_ratio", (name,), spent.share)
    for cause in CAUSES:
        yield from _some("elasticd_job_time_seconds", (name, cause), getattr(spent, cause))
    faults: dict[str, list[SeenFault]] = {}
    for fault in course.faults:
        faults.setdefault(fault.fault, []).append(fault)
    for kind, found in sorted(faults.items()):
        yield Sample("elasticd_job_faults_total", (name, kind), len(found))
        known = [fault.seconds for fault in found if fault.seconds is not None]
        yield Sample("elasticd_job_detection_seconds", (name, kind), sum(known), len(known))
    rungs: dict[str, list[float]] = {}
    for recovery in course.recoveries:
        rungs.setdefault(recovery.rung, []).append(recovery.seconds)
    for rung, seconds in sorted(rungs.items()):
        yield Sample("elasticd_job_recovery_seconds", (name, rung), sum(seconds), len(seconds))


def _states(metric: str, name: str, now: object, known: Labels) -> Iterator[Sample]:
    for state in known:
        yield Sample(metric, (name, state), float(state == now))


def _some(metric: str, labels: Labels, value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield Sample(metric, labels, value)


def _map(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = said.get(key)
    return value if isinstance(value, Mapping) else {}


def table() -> str:
    """As docs/metrics.md has it."""
    rows = ["| name | kind | labels | from | what it is |", "| --- | --- | --- | --- | --- |"]
    for each in METRICS:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append(f"| `{each.name}` | {each.kind} | {labels} | {each.source} | {each.about} |")
    return "\n".join(rows) + "\n"


def series_of(metric: Metric) -> tuple[str, ...]:
    """The names under which Prometheus has it."""
    match metric.kind:
        case "gauge" | "counter":
            return (metric.name,)
        case "summary":
            return f"{metric.name}_sum", f"{metric.name}_count"
        case _:
            assert_never(metric.kind)
