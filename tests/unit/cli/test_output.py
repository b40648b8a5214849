"""What terminals show, and the small words of tables and lines."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from elasticd.cli import output, watch
from elasticd.core.words import limits
from elasticd.shell.network.twins import CURE as TWIN_CURE
from elasticd.shell.network.wall import CURE


def test_the_bar_shows_where_the_job_is(status: dict[str, Any]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)
    bar = watch.LiveProgress()
    event = {"time": 0, "job": "j", "kind": "recovery_finished", "reason": "all is [well]"}
    bar.update(watch.Sight(status["jobs"][0], ({"time": 0, "kind": "world_formed"}, event)))
    console.print(bar)
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()[:2]
    assert first.startswith("byte-lm-1-k3f9 running ")
    assert "120/200 loss 2.135, 3.1 steps/s, world 2 (node-0 node-2)" in first
    assert second.rstrip() == "1970-01-01 00:00:00  j  recovery finished: all is [well]"


def test_a_terminal_gets_the_same_table(
    status: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    output.print_nodes(status)
    coloured = capfd.readouterr().out
    assert "\x1b[32malive" in coloured
    assert "127.0.0.1:7070" in coloured


def test_roles_have_a_column_where_not_all_train(
    capfd: pytest.CaptureFixture[str], status: dict[str, Any]
) -> None:
    output.print_nodes(status)
    assert "role" not in capfd.readouterr().out
    first, *others = status["nodes"]
    mini = {**first, "id": "mini", "state": "alive", "roles": ["store", "witness"]}
    output.print_nodes(status | {"nodes": [mini, *others]})
    head, line, *more = capfd.readouterr().out.splitlines()
    assert head.split()[-1] == "ROLE" and line.split()[-1] == "store"
    assert any(" train" in each for each in more), "an older daemon doesn't say what its nodes do"


def test_where_a_machine_lets_nothing_out_it_says_so_below_its_nodes(
    capfd: pytest.CaptureFixture[str], status: dict[str, Any]
) -> None:
    output.print_nodes(status)
    assert "no route to" not in capfd.readouterr().out
    output.print_nodes(status | {"walled": [f"10.0.0.2:7070: {CURE}"]})
    printed = " ".join(capfd.readouterr().out.split())
    assert "no route to 10.0.0.2:7070: this Mac lets nothing out to it" in printed
    assert "Local Network" in printed


def test_which_node_two_machines_are_is_said_below_the_nodes(
    capfd: pytest.CaptureFixture[str], status: dict[str, Any]
) -> None:
    output.print_nodes(status | {"twins": [f"two machines are b: x and y. {TWIN_CURE}"]})
    printed = " ".join(capfd.readouterr().out.split())
    assert f"two machines are b: x and y. {TWIN_CURE}" in printed


def test_what_failed_inside_the_daemon_is_said_below_its_nodes(
    capfd: pytest.CaptureFixture[str], status: dict[str, Any]
) -> None:
    output.print_nodes(status)
    assert "failed inside" not in capfd.readouterr().out
    loop = {"node": "a", "failures": 2, "last_failure": "repairing checkpoints failed: KeyError: 1"}
    output.print_nodes(status | {"loop": loop})
    printed = " ".join(capfd.readouterr().out.split())
    assert "a: failed inside 2 times, last: repairing checkpoints failed: KeyError: 1" in printed


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (None, None),
        ("", None),
        ("one", "one"),
        ("failed:\n  Traceback\n  x\nValueError: no\n", "failed: … ValueError: no"),
        (
            'failed:\n  File "a.py", line 3\n    x()\n    ^^^\nValueError: no:\n  - a\nsee b\n',
            "failed: … ValueError: no: … see b",
        ),
    ],
)
def test_reasons_on_one_line(reason: str | None, line: str | None) -> None:
    assert limits.in_short(reason) == line


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, None), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")],
)
def test_bytes(count: int | None, text: str | None) -> None:
    assert output.shown_bytes(count) == text


def test_an_event_without_a_usable_time_is_shown() -> None:
    for time in (None, float("nan"), float("inf"), 1e300, "x"):
        event = {"time": time, "node": "n", "kind": "k", "reason": "a\x1b[2J\nb"}
        assert output.event_line(event) == "-  n  k: a\\x1b[2J … b"


STACKS = """on node-1 the script has hung for 15 s:
Thread 0x1 (most recent call first):
  File "/home/somebody/train.py", line 12 in a_function_with_a_long_name_that_sleeps_for_ever
"""


def test_long_texts_of_a_job_are_folded_beside_their_names(
    status: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    event = {"time": None, "job": "byte-lm-1-k3f9", "kind": "fault_detected", "reason": STACKS}
    job = {**status["jobs"][0], "reason": STACKS, "recent": [event], "ranks": []}
    monkeypatch.setenv("COLUMNS", "60")
    output.print_job(job)
    lines = capfd.readouterr().out.splitlines()
    at = lines.index("reason      on node-1 the script has hung for 15 s:")
    assert lines[at + 1 : at + 6] == [
        " " * 12 + "Thread 0x1 (most recent call first):",
        " " * 12 + '  File "/home/somebody/train.py", line 12 in',
        " " * 12 + "  a_function_with_a_long_name_that_sleeps_for_ever",
        "step        120 of 200",
        "loss        2.135",
    ]
    lately = lines[lines.index("lately:") + 1 :]
    assert lately == [
        "-  byte-lm-1-k3f9  fault detected:",
        "    on node-1 the script has hung for 15 s: … File",
        '    "/home/somebody/train.py", line 12 in',
        "    a_function_with_a_long_name_that_sleeps_for_ever",
    ]
    output.print_job({**job, "values": {"acc\x1b[2J\nb": {"step": 9, "value": 0.93}}, "recent": []})
    assert "values      acc\\x1b[2J\\nb 0.93" in capfd.readouterr().out
    output.print_job({**job, "reason": "the script of node-1 " * 4, "recent": []})
    lines = capfd.readouterr().out.splitlines()
    at = lines.index("reason      the script of node-1 the script of node-1 the")
    assert lines[at + 1] == " " * 12 + "script of node-1 the script of node-1"
    monkeypatch.delenv("COLUMNS")
    output.print_job(job)
    assert len(capfd.readouterr().out.splitlines()[-1]) > 100, "in a pipe an event is one line"


def test_a_plain_job_is_shown_without_steps(
    status: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    job = {**status["jobs"][0], "mode": "plain", "step": 0, "steps": 0, "loss": None}
    output.print_job(job)
    shown = capfd.readouterr().out
    assert "plain: its script has its own group and steps" in shown
    assert "begun anew  -" in shown, "an earlier daemon doesn't tell"
    job |= {"restarts": 1, "script_seconds": 185.0}
    output.print_job(job)
    output.print_performance({"jobs": [job]})
    shown = capfd.readouterr().out
    assert "begun anew  1 time" in shown and "runs        for 3 min 5 s" in shown
    assert "seconds a step" not in shown and "RANK  NODE    TRAINER  REDUCER" in shown
    for of_steps in ("step ", "STEP", "loss", "steps/s", "lost", "digest", "GRAINS", "PEAK"):
        assert of_steps not in shown, of_steps
    output.print_jobs({"jobs": [job]})
    assert "3.1" not in capfd.readouterr().out
    line = watch.progress_line({**job, "steps_per_second": 0.0})
    assert "its script runs for 3 min 5 s, begun anew 1 time, 2 recoveries, world " in line
    assert "step" not in watch.progress_line({**job, "steps_per_second": 0.0})
    console = Console(file=io.StringIO(), force_terminal=True, width=160, color_system=None)
    bar = watch.LiveProgress()
    bar.update(watch.Sight(job, ()))
    console.print(bar)
    assert isinstance(console.file, io.StringIO) and "0/0" not in console.file.getvalue()
    ended = watch.summary({**job, "state": "finished", "reason": None})
    assert ended == f"{job['id']} finished: 2 recoveries, begun anew 1 time"
    failed = watch.summary({**job, "state": "failed", "reason": "no"})
    assert failed == f"{job['id']} failed: 2 recoveries, begun anew 1 time; no"
    shows = watch.PlainProgress()
    shows(watch.Sight({**job, "step": 0}, ()))
    assert "its script runs" in capfd.readouterr().out
    events = ({"time": 0, "kind": "node_joined"}, {"time": 0, "kind": "checkpoint_committed"})
    for mode, told in (("plain", "node joined"), ("elastic", "checkpoint committed")):
        sight = watch.Sight({**job, "mode": mode}, events)
        watch.PlainProgress()(sight)
        assert ("checkpoint committed" in capfd.readouterr().out) is (mode == "elastic")
        console = Console(file=io.StringIO(), width=160)
        bar.update(sight)
        console.print(bar)
        assert isinstance(console.file, io.StringIO) and told in console.file.getvalue()


def test_a_job_that_ended_early_says_why() -> None:
    job = {"id": "j", "state": "finished", "reason": None, "step": 6, "steps": 12, "loss": 0.5}
    job |= {"recoveries": 0, "lost_steps": 0, "digest": "d"}
    said = "its script asked to stop, or left its loop, there"
    assert output.reason_of(job) == said and said in watch.summary(job)
    assert said in output.job_rows([job])[0]
    whole = {**job, "step": 12}
    assert output.reason_of(whole) is None and said not in watch.summary(whole)
    assert output.reason_of({**job, "state": "running"}) is None
    assert output.reason_of({**job, "state": "failed", "reason": "why"}) == "why"
