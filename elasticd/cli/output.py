"""How answers look: JSON, tables for a terminal, the same tables as plain text for a pipe."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from elasticd.settings.rules import one_line

STATE_STYLES = {
    "alive": "green",
    "running": "green",
    "finished": "green",
    "recovering": "yellow",
    "suspect": "yellow",
    "parked": "yellow",
    "paused": "yellow",
    "draining": "yellow",
    "dead": "red",
    "failed": "red",
    "cancelled": "red",
}

MAX_HELD_LINE = 64 * 1024

Row = Sequence[object]


def print_json(value: Mapping[str, Any]) -> None:
    """One object on one line. JSON has no NaN; it becomes null."""
    print(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False), flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Rows under their columns; None is shown as ``-``."""
    console = Console()
    if console.is_terminal:
        console.print(_rich_table(columns, rows))
    else:
        for line in plain_table(columns, rows):
            print(line)


def plain_table(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Lines with the columns two spaces apart; numbers stand on the right."""
    cells = [[shown(value) for value in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *cells, strict=True)]
    right = [_is_numeric([row[at] for row in rows]) for at in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        parts = zip(values, widths, right, strict=True)
        return "  ".join(v.rjust(w) if r else v.ljust(w) for v, w, r in parts).rstrip()

    return [line([name.upper() for name in columns]), *(line(row) for row in cells)]


def shown(value: object) -> str:
    """A value as people read it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return one_line(str(value))


def in_short(reason: object) -> str | None:
    """A reason on one line; of a traceback the beginning and the end say it."""
    lines = [line.strip() for line in str(reason or "").splitlines() if line.strip()]
    if len(lines) > 1:
        return f"{lines[0]} … {lines[-1]}"
    return lines[0] if lines else None


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
    seconds = event.get("time")
    clock = "-"
    if isinstance(seconds, int | float) and math.isfinite(seconds) and abs(seconds) < 1e11:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    kind = str(event.get("kind", "event")).replace("_", " ")
    who = event.get("job") or event.get("node") or "-"
    reason = in_short(event.get("reason"))
    return one_line(f"{clock}  {who}  {kind}: {reason}" if reason else f"{clock}  {who}  {kind}")


def print_nodes(status: Mapping[str, Any]) -> None:
    """The table of ``elasticctl nodes``."""
    rows = [
        (
            node["id"],
            node.get("address"),
            node.get("state"),
            node.get("pid"),
            node.get("chip"),
            shown_bytes(node.get("memory_bytes")),
        )
        for node in status["nodes"]
    ]
    print_table(("node", "address", "state", "pid", "chip", "memory"), rows)
    for node in status["nodes"]:
        for left in node.get("unfit") or ():
            print(
                one_line(f"{left['job']} goes on without {node['id']}: {in_short(left['reason'])}")
            )


def print_jobs(status: Mapping[str, Any]) -> None:
    """The table of ``elasticctl jobs``."""
    if not status["jobs"]:
        print("no jobs yet (elasticctl submit JOB.toml)")
        return
    rows = [
        (
            job["id"],
            _state(job),
            f"{job.get('step')}/{job.get('steps')}",
            job.get("loss"),
            job.get("steps_per_second"),
            len(job.get("ranks") or ()),
            job.get("recoveries"),
            in_short(job.get("reason")),
        )
        for job in status["jobs"]
    ]
    columns = ("job", "state", "step", "loss", "steps/s", "ranks", "recoveries", "reason")
    print_table(columns, rows)


def _state(job: Mapping[str, Any]) -> str:
    """With the place in the queue of one that waits there."""
    place = job.get("queue_position")
    return f"{job.get('state')} ({place}.)" if place else str(job.get("state"))


def print_status(status: Mapping[str, Any]) -> None:
    """What ``elasticctl status`` shows: the view, the nodes and the jobs with their ranks."""
    view = status["view"]
    members = ", ".join(view["members"])
    print(f"cluster {status['cluster']}, epoch {view['epoch']}, leader {view['leader']}: {members}")
    print()
    print_nodes(status)
    print()
    print_jobs(status)
    for job in status["jobs"]:
        if job.get("ranks"):
            print()
            _print_ranks(job)


def _at_once(job: Mapping[str, Any]) -> str:
    micro, asked = job.get("micro_batch"), job.get("micro_batch_asked")
    text = f"{micro} at once"
    return text if asked in (None, micro) else f"{text} instead of {asked}: memory was short"


def _exact(job: Mapping[str, Any]) -> str | None:
    if job.get("exact") is None:
        return None
    return "yes" if job["exact"] else ": ".join(filter(None, ("no", job.get("exact_reason"))))


def print_job(job: Mapping[str, Any]) -> None:
    """What ``elasticctl status JOB`` shows."""
    digest = job.get("digest")
    facts: list[tuple[str, object]] = [
        ("job", job["id"]),
        ("state", job.get("state")),
        ("reason", job.get("reason")),
        ("step", f"{job.get('step')} of {job.get('steps')}"),
        ("loss", job.get("loss")),
        ("steps/s", job.get("steps_per_second")),
        ("batch", f"{job.get('global_batch')} samples, {_at_once(job)}"),
        ("generation", job.get("generation")),
        ("recoveries", f"{job.get('recoveries')}, {job.get('lost_steps')} steps lost"),
        ("exact", _exact(job)),
        ("bytes/step", shown_bytes(job.get("bytes_per_step"))),
        ("digest", f"{digest} (step {job.get('digest_step')})" if digest else None),
    ]
    facts += [("without", f"{u['node']}: {u['reason']}") for u in job.get("unfit") or ()]
    for name, value in facts:
        print(f"{name:<11} {_multiline(value)}")
    if job.get("ranks"):
        print()
        _print_ranks(job)
    if job.get("recent"):
        print("\nlately:")
        for event in job["recent"]:
            print(event_line(event))


def _print_ranks(job: Mapping[str, Any]) -> None:
    print(f"{job['id']}, generation {job.get('generation')}:")
    rows = [
        (
            rank.get("rank"),
            rank.get("node"),
            rank.get("pid"),
            rank.get("reducer_pid"),
            rank.get("step"),
            rank.get("grains"),
        )
        for rank in job["ranks"]
    ]
    print_table(("rank", "node", "trainer", "reducer", "step", "grains"), rows)


def _multiline(value: object) -> str:
    # The reason of a failed job is the end of a traceback: keep its lines.
    lines = [one_line(line) for line in str(value).splitlines()] if isinstance(value, str) else []
    return ("\n" + " " * 12).join(lines) if len(lines) > 1 else shown(value)


def _rich_table(columns: Sequence[str], rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        right = _is_numeric([row[at] for row in rows])
        last = at == len(columns) - 1  # the one that may be long
        justify: JustifyMethod = "right" if right else "left"
        table.add_column(name.upper(), justify=justify, overflow="fold", no_wrap=not last)
    for row in rows:
        cells = [Text(shown(value), STATE_STYLES.get(str(value), "")) for value in row]
        table.add_row(*cells)
    return table


def _is_numeric(values: Sequence[object]) -> bool:
    kept = [value for value in values if value is not None]
    return bool(kept) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in kept
    )


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


class LogPrinter:
    """Prints what ranks printed, as it is; ``labelled`` puts the rank before each line.

    Pieces end anywhere, so a labelled line waits for its end, or for :data:`MAX_HELD_LINE`.
    """

    def __init__(self, *, labelled: bool) -> None:
        self._labelled = labelled
        self._held: dict[str, str] = {}

    def print(self, piece: Mapping[str, Any]) -> None:
        """Print one answer of a daemon's log stream."""
        text = str(piece.get("text", ""))
        if self._labelled:
            rank = piece.get("rank")
            label = f"[{piece.get('node') if rank is None else rank}] "
            lines = (self._held.pop(label, "") + text).splitlines(keepends=True)
            if lines and not lines[-1].endswith("\n") and len(lines[-1]) < MAX_HELD_LINE:
                self._held[label] = lines.pop()
            text = "".join(label + line.rstrip("\r\n") + "\n" for line in lines)
        sys.stdout.write(text)
        sys.stdout.flush()

    def finish(self) -> None:
        """Print the lines that have no end."""
        for label, line in self._held.items():
            print(label + line)
        self._held.clear()
