"""The pure part of the monitor: pictures at every size, of hostile text too; keys; which job."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from elasticd.cli.monitors.keys import strokes
from elasticd.cli.monitors.picture import (
    KEYS,
    LEAST_HEIGHT,
    MONITORED_NODES,
    MONITORED_RANKS,
    picture,
    sparkline,
)
from elasticd.cli.monitors.scene import (
    MOST_EVENTS,
    MOST_LOSSES,
    Recollection,
    Scene,
    first,
    moved,
    turned,
)
from elasticd.cli.performance import PERFORMANCE
from elasticd.cli.screen import Line

from .conftest import STATUS
from .test_screen import EVIL, poisoned

JOB = "byte-lm-1-k3f9"
FAULT = {
    "time": 1.0, "kind": "fault_detected", "fault": "worker_exit", "rank": 1, "node": "node-1",
    "evidence": ["killed by signal 9"], "seconds_to_detect": 0.02, "reason": "worker_exit …",
}  # fmt: skip
RECOVERY = {
    "time": 2.0, "kind": "recovery_finished", "rung": "regroup", "seconds": 1.25, "lost_steps": 3,
}  # fmt: skip


def seen(status: dict[str, Any] | None = None, job: str = JOB) -> Scene:
    memory = Recollection(job)
    for event in (FAULT, RECOVERY, {"time": 3.0, "kind": "world_formed", "reason": "2 go on"}):
        memory.happened(event)
    for step in range(1, 60):
        memory.looked({"step": step, "loss": 5.0 / step})
    return memory.scene(status or STATUS, ("[0] step 120", "[1] step 120"))


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


def test_what_is_to_be_seen_at_eighty_columns() -> None:
    text = text_of(picture(seen(), JOB, 80, 40, live=True))
    for told in (
        "leader node-0", f"{JOB}  running  (job 1 of 2)", "step 120/200, loss 2.135", "3.1 steps/s",
        "loss 5 █", "M4 Max", "64.0 GiB", "node-1", "dead", "50%", "faults and recoveries",
        "worker_exit rank 1 node-1, found in 0.02 s: killed by signal 9",
        "regroup 1.25 s, 3 steps lost", "world formed: 2 go on", KEYS[0],
    ):  # fmt: skip
        assert told in text, told


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("width", [20, 33, 60, 80, 200])
def test_no_line_is_too_long_and_none_is_too_many(width: int, logs: bool) -> None:
    hostile = poisoned(STATUS)
    for height, (scene, job) in itertools.product(
        (LEAST_HEIGHT, 10, 24, 60),
        ((seen(), JOB), (seen(hostile, JOB + EVIL), JOB + EVIL), (seen(), "gone"), (seen(), None)),
    ):
        lines = picture(scene, job, width, height, logs=logs, live=True)
        assert len(lines) <= height
        assert all(cell_len("".join(text for text, _ in line)) <= width for line in lines)
        assert text_of(lines[-1:]) == next(keys for keys in KEYS if len(keys) <= width)


NODES = ("mac-studio-1", "mac-mini-in-the-attic", "m4", "macbook-1234567")
DRAWN = re.compile("[▁▂▃▄▅▆▇█_.,=+*#-]+")
"""Of a curve; its own signs are no word's."""
ALL_COLUMNS = {
    name for table in (MONITORED_NODES, MONITORED_RANKS, PERFORMANCE) for name in table.columns
}
COUNTED = re.compile(r"  \(\d+ (earlier|more below)\)$")


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Scene, str]:
    """A busy cluster of ordinary names and large numbers; no word is wider than the narrowest."""
    numbers, names = st.integers(0, 10**7), st.sampled_from([name[:18] for name in NODES])
    seconds = st.floats(0.001, 9999)
    jobs = [
        {**STATUS["jobs"][0], "id": f"byte-lm-{n}-k3f9", "step": draw(numbers),
         "steps": draw(numbers), "state": draw(st.sampled_from(["recovering", "queued", "parked"])),
         "values": {"accuracy": {"step": 1, "value": draw(seconds)}},
         "reason": draw(st.none() | st.just("waits for mac-studio-1 and mac-studio-12 since " * 4)),
         "ranks": [{"rank": n, "node": draw(names), "step": draw(numbers), "grains": draw(numbers),
                    "grain_seconds": draw(seconds)} for n in range(draw(st.integers(0, 4)))]}
        for n in range(draw(st.integers(1, 120)))
    ]  # fmt: skip
    nodes = [
        {"id": name, "state": "alive", "memory_bytes": draw(numbers), "version": "0.1.0"}
        for name in draw(st.lists(names, max_size=4))
    ]
    memory = Recollection(draw(st.sampled_from(jobs))["id"])
    for _ in range(draw(st.integers(0, 4))):
        memory.happened({**FAULT, "node": draw(names), "seconds_to_detect": draw(seconds)})
        memory.happened({**RECOVERY, "seconds": draw(seconds), "lost_steps": draw(numbers)})
    for step in range(draw(st.integers(0, 40))):
        memory.looked({"step": step, "loss": draw(seconds)})
    logs = tuple(f"[{n}] {draw(names)} step {draw(numbers)}" for n in range(3))
    return memory.scene({**STATUS, "nodes": nodes, "jobs": jobs}, logs), str(memory.job)


@settings(max_examples=150, deadline=None)
@given(scenes(), st.integers(20, 80), st.integers(LEAST_HEIGHT, 60), st.booleans(), st.booleans())
def test_what_is_shown_is_whole(
    made: tuple[Scene, str], width: int, height: int, logs: bool, performance: bool
) -> None:
    """Words are left out, but none is shown in part."""
    scene, job = made
    whole = {
        word
        for words in (performance, not performance)
        for word in text_of(picture(scene, job, None, performance=words)).split()
    } | {word for text in (*scene.logs, *KEYS, "logs", "nothing yet") for word in text.split()}
    whole |= {f"{word}," for word in whole}  # a list goes on where it ended
    whole |= {"(too", "narrow", "for", "to"}
    lines = picture(scene, job, width, height, logs=logs, performance=performance, live=True)
    for line in text_of(lines).split("\n"):
        assert cell_len(line) <= width
        words = COUNTED.sub("", line).removesuffix("…").split()
        for word in words:
            named = word.strip("(),").lower() in ALL_COLUMNS
            assert word in whole or named or DRAWN.fullmatch(word), line


def test_a_head_line_is_folded_and_an_event_ends_between_words() -> None:
    jobs = [
        {**STATUS["jobs"][0], "id": f"byte-lm-{n}-k3f9", "state": "queued"} for n in range(2, 121)
    ]
    status = {**STATUS, "jobs": [{**STATUS["jobs"][0], "state": "recovering"}, *jobs]}
    memory = Recollection(JOB)
    memory.happened({**FAULT, "node": "mac-studio-1"})
    memory.happened({**RECOVERY, "seconds": 1234.25})
    lines = text_of(picture(memory.scene(status), JOB, 40)).split("\n")
    assert {f"{JOB}  recovering", "(job 1 of 120)"} <= {*lines}, lines
    assert any(line.endswith("worker_exit rank 1…") for line in lines), lines
    assert "regroup 1234.25 s, 3…" in text_of(picture(memory.scene(status), JOB, 24))


def test_an_id_wider_than_the_terminal_goes_on_below() -> None:
    wide = "node-" + "0123456789" * 5
    status = {**STATUS, "nodes": [{"id": wide, "state": "alive"}]}
    job = {**STATUS["jobs"][0], "id": wide}
    lines = picture(Scene({**status, "jobs": [job]}), wide, 33)
    assert all(cell_len(text_of([line])) <= 33 for line in lines)
    assert text_of(lines).replace("\n", "").count(wide) == 2


def test_hostile_text_steers_nothing() -> None:
    hostile = poisoned(STATUS)
    memory = Recollection(JOB + EVIL)
    for event in (FAULT, RECOVERY, {"time": float("nan"), "kind": EVIL, "reason": EVIL}):
        memory.happened(poisoned(event))
        memory.happened({**event, "rung": EVIL, "fault": EVIL, "node": EVIL, "evidence": [EVIL]})
    scene = memory.scene(hostile, (EVIL, f"[0] {EVIL}"))
    for logs in (False, True):
        text = text_of(picture(scene, JOB + EVIL, None, logs=logs))
        assert all(char.isprintable() or char == "\n" for char in text)
        assert "\\x1b[2J" in text


def test_on_a_low_terminal_each_part_keeps_some_rows() -> None:
    nodes = [{"id": f"node-{n}", "state": "alive"} for n in range(32)]
    text = text_of(picture(seen({**STATUS, "nodes": nodes}), JOB, 80, 24, live=True))
    assert "nodes  (" in text and "more below)" in text and "regroup 1.25 s" in text
    assert "world formed: 2 go on" in text and KEYS[0] in text


def test_what_belongs_to_another_job_is_left_out() -> None:
    text = text_of(picture(seen(), "digits-2-aaaa", 80, 40))
    assert "failed" in text and "ValueError: no" in text
    assert "worker_exit" not in text and "█" not in text


def test_a_scene_that_is_old_says_why() -> None:
    scene = Scene(STATUS, JOB, trouble="no daemon has answered for 3 s")
    assert "no daemon has answered for 3 s" in text_of(picture(scene, JOB, 80, 40))
    assert "no jobs yet" in text_of(picture(Scene({}), None, 80, 40))


def test_the_curve_of_losses() -> None:
    losses = [(n, float(n)) for n in range(1, 9)]
    assert sparkline(losses, 80, blocks=True) == "loss 1 ▁▂▃▄▅▆▇█ 8"
    assert sparkline(losses, 80, blocks=False).isascii()
    assert sparkline(losses[:1], 80, blocks=True) == "loss 1"
    assert sparkline([], 80, blocks=True) == ""
    flat = [(n, 2.0) for n in range(1000)]
    assert "\n" not in sparkline(flat, 60, blocks=True, name="a\nb")
    assert len(sparkline([*flat, (1001, float("nan"))], 60, blocks=True)) <= 60


def test_what_the_script_told_can_be_chosen_in_place_of_the_loss() -> None:
    memory = Recollection(JOB)
    job = {**STATUS["jobs"][0], "values": {"acc": {"step": 9, "value": 0.5}, EVIL: {}}}
    for step in range(1, 9):
        told = {"acc": {"step": step, "value": step / 10}}
        memory.looked({"step": step, "loss": 5.0 / step, "lost_steps": 0, "values": told})
    scene = memory.scene({**STATUS, "jobs": [job]})
    assert "acc 0.5\n" in text_of(picture(scene, JOB, 80)), "the last value"
    assert "loss 5 █" in text_of(picture(scene, JOB, 80))
    assert "acc 0.1 ▁▂▃▄▅▆▇█ 0.8" in text_of(picture(scene, JOB, 80, curve="acc"))
    assert "loss 5 █" in text_of(picture(scene, JOB, 80, curve="gone"))
    assert [turned(scene.named, name) for name in ("", "acc", "gone")] == ["acc", "", ""]
    assert scene.plain(JOB)["values"]["acc"][-1] == [8, 0.8]
    assert strokes(b"v") == ["values"]


def test_memory_is_bounded_and_goes_back_with_the_job() -> None:
    memory = Recollection(JOB)
    for n in range(10_000):
        memory.happened({**FAULT, "time": n})
        memory.looked({"step": n, "loss": 1.0})
    assert len(memory.events) == MOST_EVENTS and MOST_LOSSES / 2 < len(memory.losses) <= MOST_LOSSES
    assert memory.losses[0] == (1, 1.0), "the beginning stays"
    memory.looked({"step": 9_990, "loss": 3.0})
    assert memory.losses[-1] == (9_990, 3.0) and memory.losses[-2][0] < 9_990
    memory.looked({"step": 9_991, "loss": None})
    assert memory.losses[-1][0] == 9_990


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["quit"]),
        (b"l\tQ", ["logs", "next", "quit"]),
        (b"\x1b[A\x1b[B\x1bOC\x1b[D\x1b[Z", ["previous", "next", "next", "previous", "previous"]),
        (b"\x1b[1;5C", ["next"]),
        (b"ABCDZ", []),
        (b"\x1b", []),
        (b"\x1bq", ["quit"]),
        (b"\x1b[200~\xff\x00", []),
    ],
)
def test_keys(data: bytes, keys: list[str]) -> None:
    assert strokes(data) == keys


def test_which_job_is_shown() -> None:
    jobs = [{"id": "f", "state": "finished"}, {"id": "r", "state": "running"}, {"id": "q"}]
    assert first(jobs) == "r" and first(jobs[:1]) == "f" and first([]) is None
    assert [moved(jobs, "r", by) for by in (1, -1, 2)] == ["q", "f", "f"]
    assert moved(jobs, "gone", 1) == "r" and moved([], None, 1) is None


def test_a_dead_link_is_told() -> None:
    def links(*states: str) -> str:
        told = [{"host": "h", "state": s, "round_trip_seconds": 0.0004} for s in states]
        node = {"id": "n", "state": "alive", "links": told}
        return text_of(picture(Scene({"nodes": [node]}), None, 80))

    assert "0.4 ms" in links("up") and "lost" not in links("up")
    assert "0.4 ms, 1 lost" in links("up", "lost") and "  lost" in links("lost")


def test_of_a_plain_job_no_steps_are_shown() -> None:
    job = {**STATUS["jobs"][0], "mode": "plain", "step": 0, "steps": 0, "loss": None,
           "restarts": 2, "script_seconds": 4000.0}  # fmt: skip
    scene = seen({**STATUS, "jobs": [job]})
    text = text_of(picture(scene, JOB, 100, 40))
    assert "2 ranks, its script runs for 1 h 6 min, begun anew 2 times, 2 recoveries" in text
    assert "regroup 1.25 s" in text and "steps lost" not in text
    assert "0/0" not in text and "█" not in text and "GRAINS" not in text
    assert "only its script knows" in text_of(picture(scene, JOB, 100, 40, performance=True))
