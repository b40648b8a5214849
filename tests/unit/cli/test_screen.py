"""No control character of a name, a reason, a log or an error reaches a terminal."""

from __future__ import annotations

import ast
import io
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import elasticd.cli
from elasticd.cli import screen, watch
from elasticd.cli.demo_screen import Screen

from .test_commands import EVENTS, PROGRAM, Ctl, Daemon

EVIL = "a\x1b[2J\x07\x9b31m\u202eb\x7f\x00\u2028c\r"
ALLOWED = {
    "screen.py": "it is what cleans",
    "keeper.py": "a process of its own, which prints into a file",
    "demo_screen.py": "rich's console, with cleaned text",
}


def harmless(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


def poisoned(value: Any) -> Any:
    """The same with every text evil, except those that the program itself understands."""
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, list):
        return [poisoned(item) for item in value]
    if isinstance(value, dict):
        return {key: poisoned(item) for key, item in value.items()}
    return value


EVENT = {"time": 1.0, "node": EVIL, "job": EVIL, "kind": EVIL, "reason": f"one{EVIL}\ntwo{EVIL}"}
ROW = {
    "step": 5, "lineage": EVIL, "bytes": 5, "shards": 1, "replicas": 1, "consistent": True,
    "created": 5.0, "holders": [EVIL],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "events": [EVENT, {"end": True}],
    "logs": [
        {"rank": 0, "node": "n", "text": EVIL + "\n"},
        {"rank": None, "node": EVIL, "text": EVIL + "\nmore" + EVIL},
        {"end": True},
    ],
    "cancel": {"id": EVIL, "state": EVIL},
    "pause": {"id": EVIL, "state": EVIL},
    "drain": {"id": EVIL, "state": EVIL},
    "undrain": {"id": EVIL, "state": EVIL},
    "forget": {"error": f"no job {EVIL}\n{EVIL}", "code": 1},
    "checkpoints": {"job": EVIL, "checkpoints": [ROW], "silent": {EVIL: EVIL}},
    "checkpoints_verify": [
        {"replicas": 1, "silent": {EVIL: EVIL}},
        {"ok": False, "reason": EVIL, "node": EVIL, "step": 1, "shard": 0, "shards": 1},
        {"end": True},
    ],
    "checkpoints_prune": {
        "removed": [ROW], "kept": [], "failures": [EVIL], "silent": {EVIL: EVIL},
    },
    "outputs": [{
        "job": EVIL, "node": EVIL, "main": EVIL, "copy": True, "made": 0.0, "files": 0, "bytes": 0,
        "skipped": [EVIL], "note": "",
    }, {"end": True}],
    "chaos": {"pid": 5, "node": EVIL},
}  # fmt: skip
COMMANDS = (
    ["jobs"], ["nodes"], ["status"], ["status", "j"], ["wait", "j"], ["events"], ["events", "-f"],
    ["logs", "j"], ["logs", "j", "--rank", "0"], ["cancel", "j"], ["pause", "j"], ["drain", "n"],
    ["undrain", "n"], ["forget", "j"], ["checkpoints", "list", "j"],
    ["checkpoints", "verify", "j"], ["checkpoints", "prune", "j"], ["outputs", "j", "--out", "o"],
    ["chaos", "kill", "j", "--rank", "0"], ["chaos", "link", "a" + EVIL[:3], "b"],
    ["nope" + EVIL.replace("\0", "")], ["jobs", "--state", "x\x1b[2J"],
    ["logs", "j", "--since", "x\x9b"], ["submit", "no\x1b[2J.toml"],
)  # fmt: skip


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("json_", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_nothing_that_is_shown_steers_the_terminal(
    command: list[str],
    json_: bool,
    terminal: bool,
    ctl: Ctl,
    home: Path,
    tmp_path: Path,
    daemon: Daemon,
    status: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "dumb")
    told = poisoned(status)
    told["jobs"][0] |= {"recent": [EVENT], "reason": f"Traceback{EVIL}\n  {EVIL}"}
    if command[0] == "wait":
        told["jobs"] = [{**told["jobs"][0], "state": "failed"}]
    events = [*ANSWERS["events"][:1], {"error": EVIL, "code": 1}]
    answers = ANSWERS | ({"events": events} if "-f" in command else {})
    daemon(home, {**answers, "status": told})
    _, out, err = ctl(*command, "--home", home, *(["--json"] if json_ else []))
    assert out + err
    assert harmless(out), out.encode("unicode_escape")
    assert harmless(err), err.encode("unicode_escape")
    if json_:
        assert [json.loads(line) for line in out.splitlines()]


def test_bars_are_harmless(capfd: pytest.CaptureFixture[str], status: dict[str, Any]) -> None:
    console = Console(width=70, force_terminal=True, color_system=None)
    bar = watch.LiveProgress()
    bar.update(watch.Sight(poisoned(status["jobs"][0]), (EVENT,)))
    console.print(bar)
    story = Screen(Console(width=70))
    story.show(EVIL, poisoned(status["jobs"][0]))
    story.tell({**EVENT, "kind": "world_formed"})
    console.print(story)
    out, _ = capfd.readouterr()
    assert out and harmless(out), out.encode("unicode_escape")


def test_what_says_how_far_something_is_takes_no_markup() -> None:
    """On a real terminal, of a process of its own."""
    said = "[/none][bold]a file's name[/]"
    program = (
        "import sys, time; from elasticd.cli.screen import progress\n"
        "with progress(False) as tell: tell(sys.argv[1]); time.sleep(0.3)"
    )
    ours, its = os.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", program, said],
            stderr=its, env={**os.environ, "TERM": "xterm", "COLUMNS": "80"}, check=True,
            timeout=60,
        )  # fmt: skip
        assert said.encode() in os.read(ours, 65536)
    finally:
        os.close(its)
        os.close(ours)


@pytest.mark.parametrize("labelled", [False, True])
@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.text(st.sampled_from("ab\r\n\t\x1b\x9b日\x85\u2028"), max_size=9)))
def test_logs_in_any_pieces_are_the_same_lines(labelled: bool, pieces: list[str]) -> None:
    def printed(parts: list[str]) -> str:
        with pytest.MonkeyPatch.context() as patch:
            said: list[str] = []
            patch.setattr("sys.stdout", _Gathered(said))
            printer = screen.LogPrinter(labelled=labelled)
            for part in parts:
                printer.print({"rank": 1, "text": part})
            printer.finish()
            return "".join(said)

    whole = printed(["".join(pieces)])
    assert printed(pieces) == whole and harmless(whole)


class _Gathered:
    def __init__(self, said: list[str]) -> None:
        self._said = said

    def write(self, text: str) -> int:
        self._said.append(text)
        return len(text)

    def flush(self) -> None:
        pass


def test_raw_logs_are_the_bytes(
    home: Path, daemon: Daemon, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    from elasticd.cli.entry import run

    piece = {"rank": 0, "node": "n", "data": b"\x1b[31m\xff\r\n"}
    fake = daemon(home, {"logs": [piece, {"end": True}]})
    assert run(["logs", "j", "--raw", "--rank", "0", "--home", os.fspath(home)]) == 0
    assert capfdbinary.readouterr().out == b"\x1b[31m\xff\r\n"
    assert fake.requests[0] == {"do": "logs", "job": "j", "rank": 0, "follow": False, "raw": True}


@pytest.mark.parametrize(
    "command", ["logs j", "logs j --raw --rank 0", "logs j --json", "jobs", "reset"]
)
def test_closed_streams_end_no_command(
    home: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As in ``elasticctl logs j >&- <&-``."""
    from elasticd.cli.entry import run

    piece = {"rank": 0, "node": "n", "text": "x", "data": b"x"}
    daemon(home, {"logs": [piece, {"end": True}], "status": {"jobs": []}})
    said = io.StringIO()
    for name, stream in (("stdin", None), ("stdout", None), ("stderr", said)):
        monkeypatch.setattr(sys, name, stream)
    code = run([*command.split(), "--home", os.fspath(home)])
    assert (code, "--yes" in said.getvalue()) == ((2, True) if command == "reset" else (0, False))
    monkeypatch.setattr(sys, "stderr", None)
    assert run(["no-such-command"]) == 2


def test_json_is_printable_and_means_the_same(ctl: Ctl, home: Path, daemon: Daemon) -> None:
    jobs = [{"id": EVIL + "日\U000e0001", "state": "running"}]
    daemon(home, {"status": {"jobs": jobs}})
    out = ctl("jobs", "--json", "--home", home)[1]
    assert harmless(out) and "日" in out
    assert json.loads(out) == {"jobs": jobs}


def printers(tree: ast.Module) -> list[int]:
    """Lines that print or write to a standard stream by themselves."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.lineno] if node.func.id == "print" else []
        if isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "write"):
            holder = ast.unparse(node.value)
            found += (
                [node.lineno] if holder in ("typer", "click", "sys.stdout", "sys.stderr") else []
            )
    return found


def test_all_commands_print_through_the_screen() -> None:
    folder = Path(elasticd.cli.__file__).parent
    wild = {
        name: lines
        for path in sorted(folder.rglob("*.py"))
        if (name := path.relative_to(folder).as_posix()) not in ALLOWED
        and (lines := printers(ast.parse(path.read_text())))
    }
    assert wild == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_signal_in_the_midst_of_a_line_leaves_one_object_a_line(
    number: int, unbuffered: str, home: Path, daemon: Daemon
) -> None:
    """The line is longer than a pipe, and nobody reads before the signal."""
    long = {**EVENTS[0], "reason": "r" * 300_000}
    daemon(home, {"events": [long, EVENTS[1], {"end": True}]})
    child = subprocess.Popen(
        [*PROGRAM, "--home", home, "events", "--json"],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    select.select([child.stdout], [], [])
    child.send_signal(number)
    out, _ = child.communicate()
    event, end = map(json.loads, out.splitlines())
    assert event == long and end == {"error": "interrupted", "exit": child.returncode}
    assert child.returncode == 130
