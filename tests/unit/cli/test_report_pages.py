"""The pure part of a report: what the events come to, and pages that hostile text can't break."""

from __future__ import annotations

import itertools
import json
import time
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.cli.reports import html, markdown
from elasticd.cli.reports.chronicle import Chronicle, Reader, Stretch, partition
from elasticd.cli.reports.drawing import line_chart, ticks
from elasticd.cli.reports.facts import JobFacts
from elasticd.cli.reports.goodput import goodput, speeds
from elasticd.cli.reports.losses import MOST_POINTS, curve, thinned
from elasticd.cli.reports.paper import Chart, Sheet
from elasticd.cli.reports.writing import MOST_ROWS, moment, paper

T = 1_790_000_000.0


def event(after: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"time": T + after, "node": "node-0", "job": "j", "kind": kind, **fields}


# Ten seconds in the queue, a fault at 40 that is known at 41 and over at 44 with five lost steps,
# a pause from 60 to 70, the end at 100.
COURSE = [
    event(0, "job_submitted"),
    event(10, "world_formed", resume_step=0, seconds=1.0, rung="start"),
    event(30, "checkpoint_committed", step=40, stall_seconds=0.5),
    event(
        41, "fault_detected", fault="worker_exit", rank=1, node="node-1", evidence=["signal 9"],
        confidence="certain", seconds_to_detect=1.0, evidence_time=T + 40, detected_time=T + 41,
    ),
    event(41, "recovery_started", resume_step=40),
    event(43, "world_formed", resume_step=40, seconds=2.0, rung="restore"),
    event(44, "recovery_finished", rung="restore", seconds=4.0, lost_steps=5, resume_step=40),
    event(60, "job_paused", step=70),
    event(70, "world_formed", resume_step=70, seconds=0.5, rung="start"),
    event(90, "growth_finished", pause_seconds=0.25, resume_step=80),
    event(100, "job_finished", steps=120, digest="d"),
]  # fmt: skip


def read(events: list[dict[str, Any]], now: float = 200.0) -> Chronicle:
    reader = Reader()
    for each in events:
        reader.take(each)
    course = reader.result(T + now)
    assert course is not None
    return course


def test_each_second_is_counted_once() -> None:
    course = read(COURSE)
    assert [(s.begin - T, s.end - T, s.kind) for s in course.stretches] == [
        (0, 10, "waiting"), (10, 40, "training"), (40, 41, "detection"), (41, 44, "regrouping"),
        (44, 60, "training"), (60, 70, "paused"), (70, 100, "training"),
    ]  # fmt: skip
    assert read(COURSE[::-1]) == course, "the order in which events come means nothing"


def test_goodput_and_what_it_was_lost_to() -> None:
    spent = goodput(read(COURSE))
    assert (spent.turn, spent.waiting, spent.paused) == (80, 10, 10)
    assert (spent.detection, spent.regrouping, spent.parked) == (1, 3, 0)
    assert (spent.checkpoints, spent.growth) == (0.5, 0.25)
    stepping = 76 - 0.75
    assert spent.redone == pytest.approx(stepping * 5 / 125)
    assert spent.share == pytest.approx(stepping * 120 / 125 / 80)
    lost = spent.detection + spent.regrouping + spent.redone + spent.checkpoints + spent.growth
    assert spent.useful is not None and spent.useful + lost == pytest.approx(spent.turn)


def test_speeds_are_between_steps_that_were_named() -> None:
    found = [(a - T, b - T, rate) for a, b, rate in speeds(read(COURSE).marks)]
    assert found == [(10, 30, 2.0), (43, 60, 30 / 17), (70, 100, 50 / 30)]


def test_frequent_checkpoints_make_no_step_seem_fast_or_slow() -> None:
    """Ten steps a second; of every second checkpoint the daemon hears a second late."""
    events = [event(n + 0.95 * (n % 2), "checkpoint_committed", step=10 * n) for n in range(1, 40)]
    events = [event(0, "world_formed", resume_step=0), *events]
    rates = [rate for _, _, rate in speeds(read(events).marks)]
    assert len(rates) > 10 and 6 < min(rates) <= max(rates) < 15


def test_a_checkpoint_that_is_told_late_makes_no_step_seem_fast() -> None:
    events = [
        event(0, "world_formed", resume_step=0),
        event(20, "checkpoint_committed", step=40),
        event(20.1, "world_formed", resume_step=48),
        event(26, "checkpoint_committed", step=50),
    ]
    assert [rate for _, _, rate in speeds(read(events).marks)] == [2.0, pytest.approx(10 / 6)]


@pytest.mark.parametrize("apart", [0.2, 1.0, 3.0])
def test_an_even_pace_is_even_from_the_beginning(apart: float) -> None:
    events = [
        event(apart * n, "checkpoint_committed", step=round(50 * apart * n)) for n in range(1, 60)
    ]
    events = [event(0, "world_formed", resume_step=0), *events]
    rates = [rate for _, _, rate in speeds(read(events).marks)]
    assert rates and all(49 < rate < 51 for rate in rates), rates


def test_checkpoints_that_are_told_at_once_make_no_step_seem_fast_or_slow() -> None:
    """Fifteen steps a second; for seventeen seconds no daemon was there to hear of any."""
    times: list[tuple[float, int]] = [(n, n) for n in range(4, 41, 4)]
    times += [(60 + n / 100, 40 + 4 * n) for n in range(6)] + [(n, n) for n in range(64, 90, 4)]
    events = [event(at, "checkpoint_committed", step=15 * step) for at, step in times]
    events = [event(0, "world_formed", resume_step=0), *events]
    rates = [rate for _, _, rate in speeds(read(events).marks)]
    assert 14 < min(rates) <= max(rates) < 16


@pytest.mark.parametrize(
    ("steps", "rates"),
    [
        # After a daemon was killed: step 0 again, in the same second as step 40.
        ([(0, 0), (39.5, 0), (40, 40), (80, 80)], [1, 1]),
        ([(0, 0), (40, 40), (79.5, 40), (80, 80)], [1, 1]),
        ([(0, 0), (40, 40), (40.5, 0), (41, 40), (80, 80)], [1, 1]),
        ([(0, 0), (40, 40), (79, 20), (79.5, 0), (80, 80), (81, 60)], [1, 1]),
    ],
)
def test_a_checkpoint_that_is_told_again_is_no_progress(
    steps: list[tuple[float, int]], rates: list[float]
) -> None:
    events = [event(after, "checkpoint_committed", step=step) for after, step in steps]
    events = [event(0, "world_formed", resume_step=0), *events]
    assert [rate for _, _, rate in speeds(read(events).marks)] == rates


def test_steps_that_are_made_again_are_no_progress() -> None:
    events = [
        event(0, "world_formed", resume_step=0),
        event(40, "checkpoint_committed", step=40),
        event(50, "world_formed", resume_step=20),
        event(50.5, "checkpoint_committed", step=20),
        event(51, "checkpoint_committed", step=40),
        event(90, "checkpoint_committed", step=60),
    ]
    found = [(a - T, b - T, rate) for a, b, rate in speeds(read(events).marks)]
    assert found == [(0, 40, 1), (50, 90, 0.5)]


def test_a_fault_has_the_time_at_which_it_was_detected() -> None:
    """It is told once it is known from where to go on."""
    told = event(
        70, "fault_detected", fault="peer_lost", evidence_time=T + 38, detected_time=T + 40
    )
    course = read([*COURSE, told])
    assert [each.detected - T for each in course.faults] == [40, 41]
    blocks = [b for c in paper(replace(FACTS, course=course)).chapters for b in c.blocks]
    (sheet,) = (b for b in blocks if isinstance(b, Sheet) and "evidence" in b.columns)
    assert [row[0] for row in sheet.rows] == [moment(T + 40), moment(T + 41)]


def test_a_pause_is_drawn_as_such() -> None:
    charts = [b for c in paper(replace(FACTS, course=read(COURSE))).chapters for b in c.blocks]
    drawn = next(b for b in charts if isinstance(b, Chart) and b.stepped)
    assert [(x, round(y, 3)) for x, y in drawn.points] == [
        (10, 2.0), (30, 0.0), (43, 1.765), (60, 0.0), (70, 1.667), (100, 1.667)
    ]  # fmt: skip


def test_a_recovery_that_goes_on_counts_until_now() -> None:
    course = read(COURSE[:5], now=50)
    assert course.stretches[-2:] == (
        Stretch(T + 40, T + 41, "detection"),
        Stretch(T + 41, T + 50, "regrouping"),
    )
    assert not course.ended and course.end == T + 50


def test_a_fault_that_broke_nothing_takes_no_time() -> None:
    slow = event(80, "fault_detected", fault="slow", seconds_to_detect=5.0)
    assert read([*COURSE, slow]).stretches == read(COURSE).stretches


def test_a_job_that_waits_has_no_goodput() -> None:
    spent = goodput(read(COURSE[:1], now=50))
    assert spent.share is None and spent.waiting == 50
    assert Reader().result(T) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.integers(0, 50),
            st.sampled_from(["training", "regrouping", "detection", "parked", "waiting", "paused"]),
        ),
        max_size=12,
    )
)
def test_a_partition_covers_the_same_time(spans: list[tuple[int, int, Any]]) -> None:
    told = [Stretch(a, b, kind) for a, b, kind in spans if a < b]
    found = partition(told)
    seconds = {n for each in told for n in range(int(each.begin), int(each.end))}
    assert sum(each.seconds for each in found) == len(seconds)
    assert all(a.end <= b.begin for a, b in itertools.pairwise(found))


@given(
    st.lists(
        st.fixed_dictionaries(
            {"kind": st.sampled_from([e["kind"] for e in COURSE])},
            optional={
                key: st.one_of(
                    st.none(), st.text(max_size=3), st.booleans(), st.floats(), st.integers(),
                    st.lists(st.integers(), max_size=2),
                )
                for key in ("time", "seconds", "lost_steps", "evidence", "step", "resume_step",
                            "steps", "evidence_time", "detected_time", "rank", "stall_seconds")
            },
        ),
        max_size=8,
    )
)  # fmt: skip
@settings(max_examples=200)
def test_events_may_say_anything(events: list[dict[str, Any]]) -> None:
    reader = Reader()
    for each in events:
        reader.take(each)
    course = reader.result(T)
    html.page(paper(replace(FACTS, course=course)))


# --- curves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,0.5\n2,0.25\n", "f: second column"),
        ("1 0.5\n2 0.25 more\n", "f: second column"),
        ("step,acc,loss\n1,9,0.5\n2,9,0.25\n", "f: loss"),
        ('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25, "acc": 9}\n', "f: loss"),
        ('{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n{"note": 1}\n', "f: loss"),
    ],
)
def test_logs_that_are_curves(text: str, found: str) -> None:
    drawn = curve("f", text)
    assert drawn is not None and drawn.name == found
    assert drawn.points == ((1.0, 0.5), (2.0, 0.25))


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "hello\nworld\n", "1,0.5\n", "1\n2\n", "1.5,2\n1.6,3\n", "2,1\n1,1\n",
        "1,1\n1,2\n",
        "2026-01-01 1\n2026-01-02 2\n", "{", '{"step": 1}\n{"step": 2}', "1,\x00\n2,\x00",
        '{"step": ' + "9" * 4000 + ', "loss": 1}\n{"step": 2, "loss": 1}', "[" * 100_000,
        "1," + "9" * 200_000 + "\n2,3",
        '{"a":' * 100_000,
    ],
    ids=range(16),
)  # fmt: skip
def test_logs_that_are_none(text: str) -> None:
    assert curve("f", text) is None


def test_a_long_curve_keeps_its_ends_and_its_peaks() -> None:
    points = [(float(n), 100.0 if n == 51_234 else n % 7) for n in range(100_000)]
    kept = thinned(points)
    assert len(kept) <= MOST_POINTS and kept == sorted(kept)
    assert (51_234.0, 100.0) in kept and points[0] in kept and points[-1] in kept


@pytest.mark.parametrize("points", [((1.0, 2.0), (2.0, 2.0)), ((1.0, 0.0), (1e14, -1e14))])
def test_any_curve_can_be_drawn(points: tuple[tuple[float, float], ...]) -> None:
    drawn = line_chart(Chart("loss", "step", points, "said"))
    assert drawn.find("path") is not None and drawn.get("role") == "img"


def test_ticks_are_round() -> None:
    assert ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert ticks(0.13, 0.31, 3) == [0.2, 0.3]


# --- pages ----------------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[2J\x00\u202e\ud800|`*_[a](http://x)"
EVENTS = [
    *COURSE,
    event(99, "fault_detected", fault=EVIL, node=EVIL, evidence=[EVIL], confidence=EVIL),
    event(99, "recovery_finished", rung=EVIL, seconds=0.5, lost_steps=0, resume_step=1),
]
JOB = {
    "id": "j" + EVIL,
    "state": "failed" + EVIL,
    "reason": f"ValueError: {EVIL}\n  in line 2 {EVIL}",
    "step": 120,
    "steps": 120,
    "loss": float("nan"),
    "digest": EVIL,
    "exact": False,
    "exact_reason": EVIL,
    "submitted_by": EVIL,
    "ranks": [{"rank": 0, "node": EVIL}, "no map"],
    "values": {EVIL: {"step": 3, "value": 1.0}, "odd": {"step": EVIL, "value": EVIL}, 7: 8},
    "settings": {"job": {"name": EVIL, "args": [EVIL]}, EVIL: EVIL},
}
ROW = {"step": 5, "lineage": EVIL, "bytes": 5, "replicas": 1, "consistent": True, "created": T,
       "holders": [EVIL], "digest": EVIL}  # fmt: skip
DRAWN = curve(EVIL, "1,2\n2,1\n3,3\n")
assert DRAWN is not None
FACTS = JobFacts(
    made=T,
    job=JOB,
    nodes=({"id": EVIL, "state": EVIL, "version": EVIL, "chip": EVIL, "memory_bytes": EVIL},),
    course=read(EVENTS),
    checkpoints=(ROW,),
    silent={EVIL: EVIL},
    curves=(DRAWN,),
    ranks=({"rank": EVIL, "node": EVIL, "seconds": {"compute": 1.5, EVIL: EVIL}},),
    lacking=(EVIL,),
    version="0",
    named=(DRAWN,),
)


class _Page(HTMLParser):
    """What a browser makes of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_text_is_text_in_the_page() -> None:
    text = html.page(paper(FACTS))
    found = _Page()
    found.feed(text)
    assert not found.tags & {"script", "img", "iframe", "a", "link", "object"}
    assert not [name for name in found.attributes if name.startswith("on")]
    assert "alert(1)" in found.text and "\\x1b[2J" in found.text
    assert all(char.isprintable() or char == "\n" for char in text)
    text.encode()
    assert "http://" not in text.replace("http://x", "") and "https://" not in text
    assert "url(" not in text and "@import" not in text


def test_the_page_stands_alone_and_is_well_formed() -> None:
    drawn = curve("losses.csv", "1,2\n2,1\n")
    assert drawn is not None
    job = {"id": "j", "state": "running", "step": 1, "steps": 2}
    calm = JobFacts(T, job, (), read(COURSE), (), {}, (drawn,), (), (), "0", (drawn, drawn))
    text = html.page(paper(calm))
    body = text[text.index("<body>") : text.index("</body>") + len("</body>")]
    root = ET.fromstring(body)
    charts = [svg for svg in root.iter("svg") if svg.get("role") == "img"]
    assert len(charts) == 5 and all(svg.get("aria-label") for svg in charts)
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_hostile_text_is_text_in_markdown() -> None:
    text = markdown.page(paper(FACTS))
    assert all(char.isprintable() or char == "\n" for char in text)
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert "<" not in prose and "[a](" not in prose and "http\\://x" in prose
    assert "http://" not in prose, "a reader would make a link of it"
    rows = [line for line in prose.splitlines() if line.startswith("|")]
    for line in rows:
        assert line.replace("\\|", "").count("|") in (3, 4, 6, 7, 9, 11), line


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("# no heading", "\\# no heading"),
        ("- no item", "\\- no item"),
        ("1. no item", "1\\. no item"),
        ("2.5 s", "2.5 s"),
        ("a_b *c*", "a\\_b \\*c\\*"),
        ("www.x.org", "www\\.x.org"),
    ],
)
def test_a_note_is_no_markup(text: str, written: str) -> None:
    from elasticd.cli.reports.paper import Chapter, Note, Paper

    assert markdown.page(Paper("t", (Chapter("c", (Note(text),)),))).splitlines()[4] == written


def test_figures_are_those_of_the_events() -> None:
    text = markdown.page(paper(replace(FACTS, course=read(COURSE))))
    recovery = next(line for line in text.splitlines() if "restore" in line)
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(T + 44))
    assert recovery == f"| {clock} | restore | 4 | 5 | 40 |"
    assert "| worker\\_exit | 1 | node-1 | 1 | signal 9 (certain) |" in text
    assert "| until faults were found | 1 | 1.2% |" in text


def test_a_job_that_ends_before_its_first_checkpoint_has_no_known_goodput() -> None:
    events = [*COURSE[:2], event(20, "job_failed", reason="ValueError")]
    spent = goodput(read(events))
    assert (spent.share, spent.useful, spent.redone, spent.turn) == (None, None, 0, 10)
    text = markdown.page(paper(replace(FACTS, course=read(events))))
    assert "Goodput unknown: of the 10.00 s" in text and "0.0%" not in text
    assert "| goodput |" not in text


def test_a_recovery_that_no_event_tells_of_is_not_nothing() -> None:
    quiet = replace(FACTS, course=read(COURSE[:2]))
    assert "Nothing broke" in markdown.page(paper(quiet))
    text = markdown.page(paper(replace(quiet, job={**JOB, "recoveries": 1})))
    assert "Nothing broke" not in text and "1 recovery had begun" in text


def test_a_long_history_is_bounded() -> None:
    many = [event(n, "fault_detected", fault="slow", node=str(n)) for n in range(MOST_ROWS + 7)]
    text = html.page(paper(replace(FACTS, course=read(many))))
    assert "7 earlier rows are left out." in text and len(text) < 400_000


def test_what_an_older_daemon_does_not_tell_is_named() -> None:
    job = {key: value for key, value in JOB.items() if key != "settings"}
    text = markdown.page(paper(replace(FACTS, job=job, course=None, curves=())))
    assert "of an earlier version" in text and "No events are kept" in text
    assert "No loss by step" in text and json.dumps("nan") not in text
