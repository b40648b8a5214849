"""From the facts of a job to its report. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elasticd.cli import plainjobs
from elasticd.cli.output import ON_CPU, shown_bytes
from elasticd.cli.performance import told_parts
from elasticd.cli.plainjobs import is_plain
from elasticd.cli.reports.chronicle import Chronicle, StretchKind
from elasticd.cli.reports.facts import JobFacts
from elasticd.cli.reports.fields import maps, number, several, whole, words
from elasticd.cli.reports.goodput import Goodput, goodput, speeds
from elasticd.cli.reports.losses import thinned
from elasticd.cli.reports.paper import (
    Block,
    Cell,
    Chapter,
    Chart,
    CourseChart,
    Note,
    Paper,
    Sheet,
    Verbatim,
    in_words,
)
from elasticd.cli.screen import clean
from elasticd.cli.tables import shown
from elasticd.counting import counted, lasting
from elasticd.settings.plain import written
from elasticd.settings.rules import one_line
from elasticd.types import MOST_NAME_LETTERS, MOST_NAMED, STEP_PARTS

MOST_ROWS = 500
"""Of a table; how many more there are is said."""
_MOST_SETTINGS = 20_000
"""Letters."""


def paper(facts: JobFacts) -> Paper:
    """The report of a job. Of a plain one nobody but its script knows the steps: what tells of
    steps is left out."""
    plain = is_plain(facts.job)
    curves = _charts(facts) if plain else _curves(facts)
    named = tuple(_named(facts))
    chapters = [
        Chapter("State", _state(facts)),
        *([Chapter("Curves", tuple(curves))] if facts.curves or not plain else []),
        *([Chapter("Values that the script told", named)] if named else []),
        Chapter("Where the time went", tuple(_time(facts.course, plain=plain))),
        *([] if plain else [Chapter("What a step was made of", (_parts(facts),))]),
        Chapter("Faults and recoveries", tuple(_faults(facts, plain=plain))),
        *([] if plain else [Chapter("Checkpoints", tuple(_checkpoints(facts)))]),
        Chapter("Nodes", (_nodes(facts),)),
        Chapter("Configuration", (_settings(facts.job),)),
    ]
    if facts.lacking:
        lacking = tuple(Note(clean(text)) for text in facts.lacking)
        chapters.append(Chapter("What is missing here", lacking))
    return Paper(f"Job {words(facts.job, 'id', 200)}", tuple(chapters))


def moment(seconds: float | None) -> str | None:
    """A Unix time as people of here read it."""
    if seconds is None or not 0 <= seconds < 1e11:
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _state(facts: JobFacts) -> tuple[Block, ...]:
    job, course = facts.job, facts.course
    exact, plain = job.get("exact"), is_plain(job)
    pairs: list[tuple[Cell, ...]] = [
        ("state", words(job, "state", 40)),
        ("mode", plainjobs.MODE if plain else None),
        ("begun anew", plainjobs.again(job) if plain else None),
        ("step", f"{whole(job, 'step') or 0} of {whole(job, 'steps')}" if not plain else None),
        ("loss", number(job, "loss")),
        ("recoveries", whole(job, "recoveries")),
        ("lost steps", None if plain else whole(job, "lost_steps")),
        ("exact", None if exact is None else "yes" if exact else "no"),
        ("why not exact", words(job, "exact_reason") or None),
        ("updates", ON_CPU if job.get("updates_on_cpu") is True else None),
        ("digest", words(job, "digest", 200) or None),
        ("step of the digest", whole(job, "digest_step")),
        ("submitted by", words(job, "submitted_by", 200) or None),
        ("submitted on", words(job, "submitted_on", 200) or None),
    ]
    if course is not None:
        first = "submitted" if course.whole else "first event that is kept"
        pairs.append((first, moment(course.begin)))
        pairs.append(("ended", moment(course.end) if course.ended else None))
        share = None if plain else goodput(course).share
        pairs.append(("goodput", None if share is None else f"{share:.1%}"))
    pairs.append(("this report", f"{moment(facts.made)}, elasticctl {facts.version}"))
    blocks: list[Block] = [Sheet(("", ""), tuple(pair for pair in pairs if pair[1] is not None))]
    if reason := words(job, "reason"):
        blocks = [Verbatim(reason) if "\n" in reason else Note(reason), *blocks]
    return tuple(blocks)


def _charts(facts: JobFacts) -> Iterable[Block]:
    for each in facts.curves:
        yield Chart(each.name, "step", each.points, in_words(each.points, "step"))


def _named(facts: JobFacts) -> Iterable[Block]:
    for each in facts.named:
        told = in_words(each.points, "step")
        yield Chart(each.name, "step", each.points, told, small=True)
    drawn = {each.name for each in facts.named}
    rows = [
        (one_line(str(name)[:MOST_NAME_LETTERS]), shown(value), whole(last, "step"))
        for name, last in _last_told(facts.job)
        if isinstance(value := last.get("value"), int | float)
    ]
    if rows := [row for row in rows if row[0] not in drawn]:
        yield Note(
            "Of these no curve is drawn. It takes values at two steps, none of them nan, infinite"
            " or beyond 1e15."
        )
        yield _sheet(("name", "last value", "step"), rows)


def _last_told(job: Mapping[str, Any]) -> list[tuple[Any, Mapping[str, Any]]]:
    values = job.get("values")
    told = [*values.items()][: MOST_NAMED + 1] if isinstance(values, Mapping) else []
    return [(name, last) for name, last in told if isinstance(last, Mapping)]


def _curves(facts: JobFacts) -> Iterable[Block]:
    yield from _charts(facts)
    if not facts.curves:
        yield Note(
            "No loss by step: the daemon that was asked has heard none. A script that writes step"
            " and loss to a file of run.open has it here, too."
        )
    found = speeds(facts.course.marks) if facts.course is not None else []
    if facts.course is None or not found:
        yield Note("No steps per second by time: too few checkpoints are in the events.")
        return
    begin = facts.course.begin
    points: list[tuple[float, float]] = []
    until = found[0][0]
    for since, end, speed in found:
        points += [(until - begin, 0.0)] if since > until else []
        points.append((since - begin, speed))
        until = end
    points.append((until - begin, found[-1][2]))
    kept = tuple(thinned(points))
    title = "steps per second, means between checkpoints"
    yield Chart(title, "seconds", kept, in_words(kept, "second"), stepped=True)


_CAUSES: tuple[tuple[str, str], ...] = (
    ("useful", "steps that count"),
    ("detection", "until faults were found"),
    ("regrouping", "regrouping after faults"),
    ("redone", "steps that were lost and made again (estimate: at the mean pace)"),
    ("parked", "parked: too few nodes"),
    ("growth", "pauses for members that joined"),
    ("checkpoints", "pauses for checkpoints"),
)


def _time(course: Chronicle | None, *, plain: bool) -> Iterable[Block]:
    if course is None:
        yield Note("No events are kept of this job.")
        return
    spent = goodput(course)
    yield CourseChart(course.begin, course.stretches, course.faults, _told(course))
    if spent.turn <= 0:
        yield Note(f"It has not had its turn yet: {lasting(spent.waiting)} since it was submitted.")
        return
    if plain:
        yield Note(
            f"It had its turn for {lasting(spent.turn)}. Besides it waited"
            f" {lasting(spent.waiting)} for that and for its first start, and was paused for"
            f" {lasting(spent.paused)}. How much of it went into steps that count only its script"
            " knows."
        )
        return
    part = "unknown" if spent.share is None else f"{spent.share:.1%}"
    useful = lasting(spent.useful) or "nobody knows how much"
    yield Note(
        f"Goodput {part}: of the {lasting(spent.turn)} in which it was its turn"
        f" {useful} went into steps that count. Besides it waited"
        f" {lasting(spent.waiting)} for its turn and its first step, and was paused for"
        f" {lasting(spent.paused)}."
    )
    yield Sheet(("went to", "seconds", "share"), tuple(_rows_of(spent)))
    yield Note("Nobody records time in which no daemon runs: it counts as what it was before.")


def _rows_of(spent: Goodput) -> Iterable[tuple[Cell, ...]]:
    for name, told in _CAUSES:
        seconds = getattr(spent, name)
        if seconds is None:
            yield told, None, None
        elif seconds or name == "useful":
            yield told, round(seconds, 2), f"{seconds / spent.turn:.1%}"


def _told(course: Chronicle) -> str:
    kinds: dict[StretchKind, None] = dict.fromkeys(each.kind for each in course.stretches)
    spent = ", ".join(f"{kind} {lasting(course.seconds(kind))}" for kind in kinds)
    return f"{counted(len(course.faults), 'fault')}; {spent}"


def _nothing_told(recoveries: int) -> str:
    if not recoveries:
        return "Nothing broke, as far as the events tell."
    begun = counted(recoveries, "recovery", "recoveries")
    return f"No event tells of a fault, or of a recovery that was finished; {begun} had begun."


def _faults(facts: JobFacts, *, plain: bool) -> Iterable[Block]:
    course = facts.course
    if course is None or not (course.faults or course.recoveries):
        yield Note(_nothing_told(whole(facts.job, "recoveries") or 0))
        return
    rows: list[tuple[Cell, ...]] = [
        (
            moment(each.detected),
            each.fault,
            each.rank,
            each.node,
            each.seconds,
            "; ".join(each.evidence) + (f" ({each.confidence})" if each.confidence else ""),
        )
        for each in course.faults
    ]
    columns = ("time", "fault", "rank", "node", "seconds to detect", "evidence")
    yield _sheet(columns, rows)
    done: list[tuple[Cell, ...]] = [
        (moment(each.time), each.rung, each.seconds, each.lost_steps, each.resume_step)
        for each in course.recoveries
    ]
    if done and plain:
        yield Note("Recoveries: the seconds run from the earliest evidence to a whole world.")
        yield _sheet(("time", "seconds"), [(row[0], row[2]) for row in done])
    elif done:
        yield Note("Recoveries: the seconds run from the earliest evidence to the next step.")
        yield _sheet(("time", "rung", "seconds", "lost steps", "from step"), done)


def _checkpoints(facts: JobFacts) -> Iterable[Block]:
    rows: list[tuple[Cell, ...]] = [
        (
            whole(row, "step"),
            words(row, "lineage", 100),
            shown_bytes(row.get("bytes")),
            whole(row, "replicas"),
            "yes" if row.get("consistent") else "no",
            moment(number(row, "created")),
            " ".join(words({"": node}, "", 100) for node in several(row, "holders")),
            words(row, "digest", 200),
        )
        for row in facts.checkpoints
    ]
    if rows:
        columns = ("step", "lineage", "size", "replicas", "consistent", "made", "on", "digest")
        yield _sheet(columns, rows)
    else:
        yield Note("None is there.")
    for node, why in facts.silent.items():
        yield Note(clean(f"{node} was not asked: {why}"))


def _nodes(facts: JobFacts) -> Block:
    ranks: dict[str, list[str]] = {}
    for rank in maps(facts.job, "ranks"):
        ranks.setdefault(words(rank, "node", 100), []).append(str(whole(rank, "rank")))
    rows: list[tuple[Cell, ...]] = [
        (
            words(node, "id", 100),
            words(node, "state", 40),
            words(node, "version", 40) or None,
            words(node, "chip", 100) or None,
            shown_bytes(node.get("memory_bytes")) if node.get("memory_bytes") else None,
            " ".join(ranks.get(words(node, "id", 100), ())) or None,
        )
        for node in facts.nodes
    ]
    return _sheet(("node", "state now", "elasticd", "chip", "memory", "rank now"), rows)


def _parts(facts: JobFacts) -> Block:
    rows: list[tuple[Cell, ...]] = []
    for rank in facts.ranks:
        if (told := told_parts(rank)) is not None:
            each = [round(told[part], 4) if part in told else None for part in STEP_PARTS]
            who = whole(rank, "rank"), words(rank, "node", 100)
            rows.append((*who, *each, round(sum(told.values()), 4)))
    if not rows:
        return Note("Nobody has told it: it takes a few steps.")
    return _sheet(("rank", "node", *STEP_PARTS, "seconds a step"), rows)


def _settings(job: Mapping[str, Any]) -> Block:
    settings = job.get("settings")
    if not isinstance(settings, Mapping):
        return Note("The daemon that was asked is of an earlier version, and does not tell it.")
    settings = written(settings) if is_plain(job) else settings
    text = clean("\n\n".join(_tables(settings)))
    return Verbatim(text if len(text) <= _MOST_SETTINGS else text[:_MOST_SETTINGS] + "…")


def _tables(tables: Mapping[str, Any], within: str = "") -> list[str]:
    """As a job.toml has them, those in others behind these."""
    found: list[str] = []
    for table, keys in tables.items():
        items = keys if isinstance(keys, Mapping) else {"": keys}
        inner = {key: value for key, value in items.items() if isinstance(value, Mapping)}
        plain = [
            f"{key} = {json.dumps(v, default=str)}" for key, v in items.items() if key not in inner
        ]
        found.append("\n".join([f"[{within}{table}]", *plain]))
        found += _tables(inner, f"{within}{table}.")
    return found


def _sheet(columns: tuple[str, ...], rows: Sequence[tuple[Cell, ...]]) -> Sheet:
    """The newest rows, which are the last."""
    return Sheet(columns, tuple(rows[-MOST_ROWS:]), max(0, len(rows) - MOST_ROWS))
