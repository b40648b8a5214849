"""The monitor's picture: lines for a width and a height. Pure.

What gives way on a narrow terminal are columns, as in all tables, the clock before what happened,
and the last words of that; other lines are folded. So what is shown of an id or a number is the
whole of it. On a low terminal each part loses rows in turn: of nodes and ranks the last, of faults
and events the oldest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len

from elasticd.cli.monitors.scene import Scene
from elasticd.cli.output import shown_bytes, shown_values
from elasticd.cli.performance import PERFORMANCE, performance_rows
from elasticd.cli.plainjobs import in_words, is_plain
from elasticd.cli.screen import Line, clean
from elasticd.cli.tables import GAP, STATE_STYLES, Row, Table, cut, fitted, fold, shown, within
from elasticd.core.words.limits import in_short
from elasticd.settings.rules import one_line

MONITORED_NODES = Table(
    ("node", "state", "link", "chip", "memory", "version"),
    drops=("version", "chip", "memory", "link"),
)
MONITORED_RANKS = Table(
    ("rank", "node", "step", "share", "grains", "s/grain"), drops=("s/grain", "grains", "share")
)
MONITORED_PLAIN = Table(("rank", "node", "trainer"), drops=("trainer",))
LEAST_WIDTH, LEAST_HEIGHT = 20, 6
_CLOCK_WIDTH = 40
"""On a terminal that is narrower it isn't said when something happened."""
_SHOWN = 10
"""Of what happened, where there is no height to fill."""
KEYS = (
    "q quit  tab, arrows: other job  l logs  p performance  v other curve",
    "q quit  tab job  l logs  p perf  v curve",
    "q quit  tab l p v",
)
"""The first that there is room for."""
_LEAST_CURVE = 4
"""Letters of a curve; where there is no room for these, its ends are told."""
_BLOCKS, _LETTERS = "▁▂▃▄▅▆▇█", "_.,-=+*#"
_STYLES = {
    "fault_detected": "yellow",
    "recovery_finished": "green",
    "growth_finished": "green",
    "job_parked": "yellow",
    "job_failed": "red",
    "node_unfit": "yellow",
    "batch_shrunk": "yellow",
}


@dataclass(slots=True)
class _Panel:
    """Lines under a title, of which not all may be shown."""

    title: str
    lines: Sequence[Line]
    newest: bool = False
    """The last ones are kept."""
    head: int = 0
    """So many of the first are the names of columns."""
    given: int = field(default=0)

    @property
    def least(self) -> int:
        return self.head + 1

    def shown(self, width: int | None) -> list[Line]:
        if self.given < self.least or not self.lines:
            return []
        title: Line = [(cut(self.title, width) if width else self.title, "bold")]
        if self.given >= len(self.lines):
            return [title, *self.lines]
        left = len(self.lines) - self.given
        told = f"{GAP}({left} {'earlier' if self.newest else 'more below'})"
        if width is None or cell_len(self.title + told) <= width:
            title.append((told, "dim"))
        return [title, *(self.lines[left:] if self.newest else self.lines[: self.given])]


def picture(
    scene: Scene,
    job: str | None,
    width: int | None,
    height: int | None = None,
    *,
    logs: bool = False,
    performance: bool = False,
    live: bool = False,
    blocks: bool = True,
    curve: str = "",
) -> list[Line]:
    """``job``: the one to show; what the scene has of another one is left out. ``width`` and
    ``height`` None: as many as it takes. ``logs``: the last lines of the logs instead of what
    happened. ``performance``: what a step of each rank is made of. ``blocks``: the terminal can
    show block elements. ``curve``: what of ``run.log`` is drawn instead of the loss."""
    width = None if width is None else max(width, LEAST_WIDTH)
    described, mine = scene.described(job), job is not None and scene.job == job
    top = _top(scene, described, job, width, mine=mine, blocks=blocks, curve=curve)
    parts = [_nodes(scene, width)]
    if described is not None:
        parts += [_steps(described, width) if performance else _ranks(described, width)]
    parts += [_queue(scene, width)]
    if logs and job is not None:
        lines = [line for text in scene.logs if mine for line in _folded(text, "", width)]
        parts += [_Panel("logs", lines or [[("nothing yet", "dim")]], newest=True)]
    elif mine:
        most, plain = _SHOWN if height is None else 0, is_plain(described or {})
        parts += [_happened("faults and recoveries", scene.faults[-most:], width, plain)]
        parts += [_happened("last events", scene.events[-most:], width, plain)]
    keys = next((each for each in KEYS if width is None or len(each) <= width), KEYS[-1])
    bottom: list[Line] = [[(keys, "dim")]] if live else []
    room = None if height is None else max(height, LEAST_HEIGHT) - len(top) - len(bottom)
    _deal([part for part in parts if part.lines], room)
    found = [*top, *(line for part in parts for line in part.shown(width))]
    if height is not None:
        found = found[: max(height, LEAST_HEIGHT) - len(bottom)]
    return [*found, *bottom]


def _deal(parts: Sequence[_Panel], room: int | None) -> None:
    """Give the rows that there are to the parts, one each in turn. Each needs one for its title."""
    if room is None:
        for part in parts:
            part.given = len(part.lines)
        return
    open_: list[_Panel] = []
    for part in parts:
        if room >= part.least + 1:
            part.given, room = part.least, room - part.least - 1
            open_.append(part)
    while room > 0 and (open_ := [part for part in open_ if part.given < len(part.lines)]):
        for part in open_[:room]:
            part.given += 1
        room -= len(open_[:room])


def _top(
    scene: Scene,
    job: Mapping[str, Any] | None,
    wanted: str | None,
    width: int | None,
    *,
    mine: bool,
    blocks: bool,
    curve: str,
) -> list[Line]:
    view = scene.status.get("view") or {}
    cluster, leader = shown(scene.status.get("cluster")), shown(view.get("leader"))
    members = len(view.get("members") or ())
    text = f"cluster {cluster}, leader {leader}, {members} in view, epoch {view.get('epoch')}"
    lines: list[Line] = _folded(text, "", width)
    if scene.trouble:
        lines += _folded(scene.trouble, "red", width)
    if job is None:
        said = "no jobs yet (elasticctl submit JOB.toml)" if wanted is None else f"no job {wanted}"
        return [*lines, *_folded(said, "", width)]
    ids = [each["id"] for each in scene.jobs]
    state = shown(job.get("state"))
    place = f"(job {ids.index(job['id']) + 1} of {len(ids)})"
    head: Line = [(shown(job["id"]), "bold"), (state, STATE_STYLES.get(state, "")), (place, "dim")]
    lines += _packed(head, width)
    plain = is_plain(job)
    parts = in_words(job) if plain else _figures(job)
    lines += _folded(", ".join(parts), "", width)
    if reason := in_short(job.get("reason")):
        lines += _folded(reason, "yellow", width, most=3)
    if values := shown_values(job):
        lines += _folded(values, "", width, most=2)
    if plain or not mine:
        return lines
    points, name = (scene.named[curve], curve) if curve in scene.named else (scene.losses, "loss")
    drawn = sparkline(points, (width or 80) - 2, blocks=blocks, name=name)
    return [*lines, *(_folded(drawn, "cyan", width) if drawn else [])]


def _figures(job: Mapping[str, Any]) -> list[str]:
    parts = [f"step {shown(job.get('step'))}/{shown(job.get('steps'))}"]
    parts += [f"loss {shown(job['loss'])}"] if job.get("loss") is not None else []
    speed = job.get("steps_per_second")
    parts += [f"{shown(speed)} steps/s"] if speed else []
    parts += [f"recoveries {shown(job.get('recoveries'))}"]
    return parts + ([f"{shown(job.get('lost_steps'))} steps lost"] if job.get("lost_steps") else [])


def sparkline(
    points: Sequence[tuple[int, float]], width: int, *, blocks: bool, name: str = "loss"
) -> str:
    """The values that were seen, the newest on the right, with the first and the last one. One
    alone has no curve."""
    values = [value for _, value in points if math.isfinite(value)]
    if len(values) < 2:
        return "".join(f"{one_line(name)} {value:.4g}" for value in values)
    first, last = f"{one_line(name)} {values[0]:.4g} ", f" {values[-1]:.4g}"
    room = width - cell_len(first) - cell_len(last)
    if room < _LEAST_CURVE:
        return f"{first}to{last}"
    size = -(-len(values) // room)
    means = [sum(part) / len(part) for part in _chunks(values, size)]
    low, high = min(means), max(means)
    signs = _BLOCKS if blocks else _LETTERS
    scale = (len(signs) - 1) / (high - low) if high > low else 0.0
    return first + "".join(signs[round((mean - low) * scale)] for mean in means) + last


def _chunks(values: Sequence[float], size: int) -> list[Sequence[float]]:
    return [values[at : at + size] for at in range(0, len(values), size)]


def _nodes(scene: Scene, width: int | None) -> _Panel:
    rows = [
        (
            node.get("id"),
            node.get("state"),
            _link(node.get("links") or ()),
            node.get("chip"),
            shown_bytes(node.get("memory_bytes")) if node.get("memory_bytes") else None,
            node.get("version"),
        )
        for node in scene.status.get("nodes") or ()
    ]
    return _tabled("nodes", MONITORED_NODES, rows, width)


def _link(links: Sequence[Mapping[str, Any]]) -> str | None:
    """How the daemon that answers reaches a node; None: it is that one, or nothing is known."""
    if not links:
        return None
    up = [each for each in links if each.get("state") == "up"]
    if not up:
        return "lost"
    times = [each.get("round_trip_seconds") or 0.0 for each in up]
    best = min((each for each in times if each > 0), default=0.0)
    text = f"{best * 1000:.1f} ms" if best else "up"
    return text if len(up) == len(links) else f"{text}, {len(links) - len(up)} lost"


def _ranks(job: Mapping[str, Any], width: int | None) -> _Panel:
    ranks = job.get("ranks") or ()
    if is_plain(job):
        who = [(rank.get("rank"), rank.get("node"), rank.get("pid")) for rank in ranks]
        return _tabled("ranks", MONITORED_PLAIN, who, width)
    total = sum(rank.get("grains") or 0 for rank in ranks)
    rows = [
        (
            rank.get("rank"),
            rank.get("node"),
            rank.get("step"),
            f"{(rank.get('grains') or 0) / total:.0%}" if total else None,
            rank.get("grains"),
            rank.get("grain_seconds") or None,
        )
        for rank in ranks
    ]
    return _tabled("ranks", MONITORED_RANKS, rows, width)


def _steps(job: Mapping[str, Any], width: int | None) -> _Panel:
    if is_plain(job):
        told = "what its steps are made of only its script knows"
        return _Panel("seconds a step", _folded(told, "dim", width))
    rows = performance_rows(job.get("ranks") or ())
    return _tabled("seconds a step", PERFORMANCE, rows, width)


def _tabled(title: str, table: Table, rows: Sequence[Row], width: int | None) -> _Panel:
    return _Panel(title, within(fitted(table, rows, width), width) if rows else [], head=1)


def _queue(scene: Scene, width: int | None) -> _Panel:
    waiting = [shown(job["id"]) for job in scene.jobs if job.get("state") == "queued"]
    return _Panel("queue", _folded(", ".join(waiting), "", width) if waiting else [])


def _happened(
    title: str, events: Sequence[Mapping[str, Any]], width: int | None, plain: bool
) -> _Panel:
    lines: list[Line] = []
    for event in events:
        told = _told({**event, "lost_steps": 0} if plain else event)
        clock = _clock(event.get("time")) + GAP
        if width is not None:
            clock = clock if width >= _CLOCK_WIDTH else ""
            told = cut(told, width - len(clock))
        lines.append([(clock, "dim"), (told, _STYLES.get(str(event.get("kind")), ""))])
    return _Panel(title, lines, newest=True)


def _clock(seconds: object) -> str:
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        return "-" * 8
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def _told(event: Mapping[str, Any]) -> str:
    """What happened, the figures first: the end of the line may be cut."""
    kind, reason = str(event.get("kind")), in_short(event.get("reason")) or ""
    if kind == "recovery_finished":
        lost = f", {shown(event.get('lost_steps'))} steps lost" if event.get("lost_steps") else ""
        return clean(f"{event.get('rung')} {_seconds(event.get('seconds'))}{lost}")
    if kind == "fault_detected":
        found = _seconds(event.get("seconds_to_detect"))
        where = f"rank {event.get('rank')} " if event.get("rank") is not None else ""
        head = f"{event.get('fault')} {where}{event.get('node')}, found in {found}"
        evidence = event.get("evidence")
        text = in_short(evidence[0]) if isinstance(evidence, list) and evidence else reason
        return clean(f"{head}: {text}")
    return clean(f"{kind.replace('_', ' ')}: {reason}" if reason else kind.replace("_", " "))


def _seconds(value: object) -> str:
    return f"{value:.2f} s" if isinstance(value, int | float) else "- s"


def _folded(text: str, style: str, width: int | None, most: int = 0) -> list[Line]:
    """``most``: in so many lines, if not 0."""
    text = clean(text.replace("\n", " "))
    if width is None:
        return [[(text, style)]]
    parts = fold(text, width)
    if 0 < most < len(parts):
        parts = [*parts[: most - 1], cut(" ".join(parts[most - 1 :]), width)]
    return [[(part, style)] for part in parts]


def _packed(pieces: Line, width: int | None) -> list[Line]:
    """Pieces beside each other; what has no room there goes below."""
    lines: list[Line] = []
    used = 0
    for text, style in pieces:
        if lines and (width is None or used + len(GAP) + cell_len(text) <= width):
            lines[-1] += [(GAP, ""), (text, style)]
            used += len(GAP) + cell_len(text)
        else:
            lines += _folded(text, style, width)
            used = cell_len(lines[-1][0][0])
    return lines
