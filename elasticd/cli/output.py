"""How a daemon's answers look to people: the tables, and the sentences."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from elasticd.cli import plainjobs, screen
from elasticd.cli.performance import PERFORMANCE, performance_rows
from elasticd.cli.plainjobs import is_plain
from elasticd.cli.screen import say
from elasticd.cli.tables import MIN_TEXT, Row, Table, fitted, fold, shown
from elasticd.core.words.limits import in_short
from elasticd.counting import counted
from elasticd.settings.rules import one_line

ENDED = ("finished", "failed", "cancelled")
_AFTER = ("parked", "queued", "paused")
"""States after all others of a job that has not ended, in this order."""
MAY_SWITCH_OFF = "may be switched off"

NODES = Table(
    ("node", "address", "state", "pid", "chip", "memory", "version"),
    drops=("chip", "memory", "pid", "address"),
)
JOBS = Table(
    ("job", "state", "step", "loss", "steps/s", "ranks", "recoveries", "reason"),
    drops=("recoveries", "ranks", "steps/s", "loss", "step"),
    text="reason",
    brief=True,
)
STARTED = Table(("node", "address", "pid"), drops=("pid", "address"))
RANKS = Table(
    ("rank", "node", "trainer", "reducer", "step", "grains", "active", "cached", "peak"),
    drops=("cached", "active", "grains", "peak", "step", "reducer"),
)
PLAIN_RANKS = Table(("rank", "node", "trainer", "reducer"), drops=("reducer",))


def print_table(table: Table, rows: Sequence[Row]) -> None:
    """Rows under their columns, as wide as the terminal; None is shown as ``-``."""
    screen.say_lines(fitted(table, rows, screen.width()))


def shown_bytes(count: object) -> str | None:
    """A number of bytes in the largest unit that leaves at least 1."""
    if not isinstance(count, int | float):
        return None
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def event_line(event: Mapping[str, Any]) -> str:
    """An event as one sentence: local time, job, what happened and why."""
    return ": ".join(filter(None, _event_parts(event)))


def _event_lines(event: Mapping[str, Any]) -> list[str]:
    """The same; where it is wider than the terminal, why it happened is folded below."""
    what, why = _event_parts(event)
    line, width = event_line(event), screen.width()
    if width is None or cell_len(line) <= width or not why:
        return [line]
    return [f"{what}:", *_wrapped(" " * 4, why, " " * 4)]


def _event_parts(event: Mapping[str, Any]) -> tuple[str, str]:
    seconds = event.get("time")
    clock = "-"
    if isinstance(seconds, int | float) and math.isfinite(seconds) and abs(seconds) < 1e11:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    kind = str(event.get("kind", "event")).replace("_", " ")
    who = event.get("job") or event.get("node") or "-"
    return one_line(f"{clock}  {who}  {kind}"), one_line(in_short(event.get("reason")) or "")


def print_nodes(status: Mapping[str, Any]) -> None:
    """The table of ``elasticctl nodes``."""
    notes = [drained_note(node, status.get("jobs", ())) for node in status["nodes"]]
    rows: list[Row] = [
        (
            node["id"],
            node.get("address"),
            node.get("state"),
            node.get("pid"),
            node.get("chip"),
            shown_bytes(node.get("memory_bytes")),
            node.get("version"),
        )
        for node in status["nodes"]
    ]
    table, roles = NODES, [_role(node) for node in status["nodes"]]
    if any(role != "train" for role in roles):
        table = Table((*table.columns, "role"), table.drops)
        rows = [(*row, role) for row, role in zip(rows, roles, strict=True)]
    if any(notes):
        table = Table((*table.columns, "note"), table.drops, text="note")
        rows = [(*row, note) for row, note in zip(rows, notes, strict=True)]
    print_table(table, rows)
    for node in status["nodes"]:
        for left in node.get("unfit") or ():
            why = f"{left['job']} goes on without {node['id']}: {in_short(left['reason'])}"
            say("\n".join(_wrapped("", why, "  ")))
    for told in status.get("walled") or ():
        say("\n".join(_wrapped("", f"no route to {told}", "  ")))
    for told in status.get("twins") or ():
        say("\n".join(_wrapped("", str(told), "  ")))
    if failed := failure_of(status):
        say("\n".join(_wrapped("", failed, "  ")))


def failure_of(status: Mapping[str, Any]) -> str:
    """What failed in the daemon that answers, beside all else; empty: nothing did."""
    loop = status.get("loop") or {}
    if not (count := loop.get("failures")):
        return ""
    times = "once" if count == 1 else f"{count} times"
    return f"{loop.get('node')}: failed inside {times}, last: {loop.get('last_failure')}"


def _role(node: Mapping[str, Any]) -> str:
    """What a node does at most; an older daemon doesn't say, and then all train."""
    return str((node.get("roles") or ("train",))[0])


def drained_note(node: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> str | None:
    """Of a drained node: whether it may be switched off, or which jobs it still has ranks of."""
    if node.get("state") != "draining":
        return None
    name = node["id"]
    busy = [
        job["id"]
        for job in jobs
        if any(rank.get("node") == name for rank in job.get("ranks") or ())
    ]
    forming = [
        job["id"]
        for job in jobs
        if job.get("state") in ("preflight", "recovering")
        or (job.get("state") == "running" and not job.get("ranks"))
    ]
    if busy:
        return f"still has a rank of {', '.join(busy)}"
    if forming:
        return f"wait until {', '.join(forming)} has regrouped"
    return MAY_SWITCH_OFF


def in_order(jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """As people look for them: those that have their turn, the parked ones last; those that wait,
    by their place in the queue; those that rest; the ended ones, the latest first."""
    return sorted(jobs, key=_order)


def _order(job: Mapping[str, Any]) -> tuple[int, float]:
    state = job.get("state")
    if state in ENDED:
        return len(_AFTER) + 1, -(job.get("ended") or 0.0)
    rank = _AFTER.index(state) + 1 if state in _AFTER else 0
    # An older daemon may not tell the place; then they stay in the order in which it told them.
    return rank, job.get("queue_position") or 0.0 if state == "queued" else 0.0


def print_jobs(status: Mapping[str, Any]) -> None:
    """The table of ``elasticctl jobs``."""
    if not status["jobs"]:
        say("no jobs yet (elasticctl submit JOB.toml)")
        return
    print_table(JOBS, job_rows(status["jobs"]))


def job_rows(jobs: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows of :data:`JOBS`."""
    return [
        (
            job["id"],
            _state(job),
            f"{job.get('step')}/{job.get('steps')}" if job.get("steps") else None,
            job.get("loss"),
            None if is_plain(job) else job.get("steps_per_second"),
            len(job.get("ranks") or ()),
            job.get("recoveries"),
            in_short(reason_of(job)),
        )
        for job in jobs
    ]


def reason_of(job: Mapping[str, Any]) -> str | None:
    """Why the job is in its state; also where it is finished before all of its steps."""
    steps, early = job.get("steps"), "its script asked to stop, or left its loop, there"
    ends = job.get("state") == "finished" and steps and (job.get("step") or 0) < steps
    return job.get("reason") or (early if ends else None)


def _state(job: Mapping[str, Any]) -> str:
    """With the place in the queue of one that waits there."""
    place = job.get("queue_position")
    return f"{job.get('state')} ({place}.)" if place else str(job.get("state"))


def print_status(status: Mapping[str, Any]) -> None:
    """What ``elasticctl status`` shows: the view, the nodes and the jobs with their ranks."""
    view = status["view"]
    members = ", ".join(view["members"])
    say(f"cluster {status['cluster']}, epoch {view['epoch']}, leader {view['leader']}: {members}")
    say()
    print_nodes(status)
    say()
    jobs = in_order(status["jobs"])
    print_jobs({"jobs": jobs})
    for job in jobs:
        if job.get("ranks"):
            say()
            _print_ranks(job)


def _at_once(job: Mapping[str, Any]) -> str:
    micro, asked = job.get("micro_batch"), job.get("micro_batch_asked")
    text = f"{micro} at once"
    return text if asked in (None, micro) else f"{text} instead of {asked}: memory was short"


def _exact(job: Mapping[str, Any]) -> str | None:
    if job.get("exact") is None:
        return None
    return "yes" if job["exact"] else ": ".join(filter(None, ("no", job.get("exact_reason"))))


def _traffic(job: Mapping[str, Any]) -> str | None:
    """What a rank sends in a step, and receives; and what it would if sums had no fixed order."""
    sent, fast = job.get("bytes_per_step"), job.get("fast_bytes_per_step")
    if not sent:
        return None
    shown = f"{shown_bytes(sent)} sent by a rank, and as much received"
    return f"{shown}; fast: {shown_bytes(fast)}" if fast and job.get("exact") else shown


def _of_script(job: Mapping[str, Any]) -> list[tuple[str, object]]:
    return [
        ("mode", plainjobs.MODE),
        ("runs", plainjobs.runs(job)),
        ("begun anew", plainjobs.again(job)),
        ("generation", job.get("generation")),
        ("recoveries", job.get("recoveries")),
    ]


def shown_values(job: Mapping[str, Any]) -> str:
    """What its script gave to ``run.log`` last."""
    named = job.get("values")
    told = named.items() if isinstance(named, Mapping) else ()
    found = [(name, v.get("value")) for name, v in told if isinstance(v, Mapping)]
    known = [(name, float(v)) for name, v in found if isinstance(v, int | float)]
    return ", ".join(f"{one_line(str(name))} {shown(value)}" for name, value in known)


def _of_steps(job: Mapping[str, Any]) -> list[tuple[str, object]]:
    digest = job.get("digest")
    return [
        ("step", f"{job.get('step')} of {job.get('steps')}"),
        ("loss", job.get("loss")),
        ("steps/s", job.get("steps_per_second")),
        ("batch", f"{counted(job.get('global_batch'), 'sample')}, {_at_once(job)}"),
        ("generation", job.get("generation")),
        ("recoveries", f"{job.get('recoveries')}, {counted(job.get('lost_steps'), 'step')} lost"),
        ("exact", _exact(job)),
        ("bytes/step", _traffic(job)),
        ("digest", f"{digest} (step {job.get('digest_step')})" if digest else None),
    ]


ON_CPU = "on the CPU: GPUs differ"
"""Where updates are made, in a job's facts; nothing is said of the usual place."""


def print_job(job: Mapping[str, Any]) -> None:
    """What ``elasticctl status JOB`` shows."""
    facts: list[tuple[str, object]] = [
        ("job", job["id"]),
        ("state", job.get("state")),
        ("reason", reason_of(job)),
        *(_of_script(job) if is_plain(job) else _of_steps(job)),
    ]
    if job.get("updates_on_cpu") is True:
        facts.append(("updates", ON_CPU))
    if values := shown_values(job):
        facts.append(("values", values))
    if by := job.get("submitted_by"):
        facts.append(("submitted", f"by {by} on {job.get('submitted_on')}"))
    facts += [("without", f"{u['node']}: {u['reason']}") for u in job.get("unfit") or ()]
    for name, value in facts:
        say("\n".join(_wrapped(f"{name:<11} ", value)))
    if job.get("ranks"):
        say()
        _print_ranks(job)
    if job.get("recent"):
        say("\nlately:")
        for event in job["recent"]:
            say("\n".join(_event_lines(event)))


def _print_ranks(job: Mapping[str, Any]) -> None:
    say(f"{job['id']}, generation {job.get('generation')}:")
    if is_plain(job):
        keys = "rank", "node", "pid", "reducer_pid"
        print_table(PLAIN_RANKS, [tuple(map(rank.get, keys)) for rank in job["ranks"]])
    else:
        print_table(RANKS, [rank_row(rank) for rank in job["ranks"]])


def rank_row(rank: Mapping[str, Any]) -> Row:
    """Of :data:`RANKS`. An older trainer doesn't tell its memory."""
    plain = [rank.get(key) for key in ("rank", "node", "pid", "reducer_pid", "step", "grains")]
    if not rank.get("peak_bytes"):
        return (*plain, None, None, None)
    return (
        *plain,
        *(shown_bytes(rank.get(f"{key}_bytes")) for key in ("active", "cached", "peak")),
    )


def print_performance(status: Mapping[str, Any]) -> None:
    """What ``elasticctl status --performance`` shows."""
    shown_ones = [job for job in in_order(status["jobs"]) if job.get("ranks")]
    if not shown_ones:
        say("no job has ranks now")
    for number, job in enumerate(shown_ones):
        if number:
            say()
        if is_plain(job):
            say(f"{job['id']}: what its steps are made of only its script knows")
            continue
        say(f"{job['id']}, step {job.get('step')}, seconds a step:")
        print_table(PERFORMANCE, performance_rows(job["ranks"]))


def _wrapped(name: str, value: object, later: str = " " * 12) -> list[str]:
    """A fact in lines that fit the terminal, all but the first behind ``later``.

    A text keeps its own lines, and their indents: the reason of a failed job is the end of a
    traceback.
    """
    width = screen.width()
    lines = [one_line(line) for line in str(value).splitlines()] if isinstance(value, str) else []
    found: list[str] = []
    for line in lines if len(lines) > 1 else [shown(value)]:
        text = line.lstrip(" ")
        indent = line[: len(line) - len(text)]
        room = width - len(later) - len(indent) if width is not None else 0
        parts = fold(text, room, whole=True) if room >= MIN_TEXT else [text]
        for part in parts:
            found.append(f"{later if found else name}{indent}{part}")
    return found
