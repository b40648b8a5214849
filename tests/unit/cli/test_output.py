"""What terminals show, and the small words of tables and lines."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from elasticd.cli import output, watch
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


def test_where_a_machine_lets_nothing_out_it_says_so_below_its_nodes(
    capfd: pytest.CaptureFixture[str], status: dict[str, Any]
) -> None:
    output.print_nodes(status)
    assert "no route to" not in capfd.readouterr().out
    output.print_nodes(status | {"walled": [f"10.0.0.2:7070: {CURE}"]})
    printed = " ".join(capfd.readouterr().out.split())
    assert "no route to 10.0.0.2:7070: this Mac lets nothing out to it" in printed
    assert "Local Network" in printed


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        (None, None),
        ("", None),
        ("one", "one"),
        ("failed:\n  Traceback\n  x\nValueError: no\n", "failed: … ValueError: no"),
    ],
)
def test_reasons_on_one_line(reason: str | None, line: str | None) -> None:
    assert output.in_short(reason) == line


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
    output.print_job({**job, "reason": "the script of node-1 " * 4, "recent": []})
    lines = capfd.readouterr().out.splitlines()
    at = lines.index("reason      the script of node-1 the script of node-1 the")
    assert lines[at + 1] == " " * 12 + "script of node-1 the script of node-1"
    monkeypatch.delenv("COLUMNS")
    output.print_job(job)
    assert len(capfd.readouterr().out.splitlines()[-1]) > 100, "in a pipe an event is one line"
