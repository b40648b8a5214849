"""What a bundle leaves out of a daemon's log, and what it keeps."""

from __future__ import annotations

import pytest
import structlog

from elasticd.cli.unprinted import LEFT_OUT, without_printed
from elasticd.shell.daemon import _Printable

SECRET = "hf_s3cr3t"
TAIL = f'Traceback:\n  File "a.py", line 1, in f\nValueError: {SECRET} = "q\\x"'


def logged(event: str, **fields: object) -> str:
    """As a daemon writes it."""
    render = _Printable(key_order=["timestamp", "level", "event"])
    told = {"timestamp": "2026-11-27T08:29:22Z", "level": "info", "event": event, **fields}
    return render(structlog.get_logger(), "info", told) + "\n"


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (
            logged("event", kind="job_failed", job="a-1",
                   reason=f"the script ended with exit status 1:\n{TAIL}"),
            f'job=a-1 reason="the script ended with exit status 1 {LEFT_OUT}"',
        ),
        (
            logged("event", kind="notifying", job="a-1", reason=f"job a-1 has failed: {SECRET}"),
            f'kind=notifying job=a-1 reason="{LEFT_OUT}"',
        ),
        (
            logged("event", kind="fault_detected", job="a-1",
                   reason=f"oom on node-2: trainer ended with exit status 1 after: {SECRET}"),
            f'"oom on node-2: trainer ended with exit status 1 {LEFT_OUT}"',
        ),
        (logged("event", kind="recovery_failed", reason=SECRET), f'reason="{LEFT_OUT}"'),
        (logged("killing child", child="<trainer 3>", reason=SECRET), 'child="<trainer 3>"'),
        (logged("spare reducer ended", status=1, tail=SECRET), f'status=1 tail="{LEFT_OUT}"'),
        (logged(f"said: {SECRET}", job="a-1"), f'event="said {LEFT_OUT}" job=a-1'),
        (logged("uncaught", exception=TAIL), 'event=uncaught exception="'),
        (logged("new", reason=f'"{SECRET}'), "event=new"),
        (logged("new", reason=f"a\xa0{SECRET}"), "event=new"),
    ],
)  # fmt: skip
def test_what_a_script_may_have_said_is_left_out(line: str, kept: str) -> None:
    assert SECRET in line
    left = without_printed(line)
    assert SECRET not in left and kept in left and left.count("\n") == 1
    assert LEFT_OUT in left or "rest=" in left


@pytest.mark.parametrize(
    "line",
    [
        logged("event", kind="node_lost", reason="node-0 left the view: its daemon stops", job=""),
        logged("event", kind="fault_detected",
               reason="worker_exit on node-2: trainer ended with signal 9 while active"),
        logged("event", kind="recovery_finished",
               reason="retry took 0.27 s and lost 0 committed steps"),
        logged("node is dead", node="node-0", why="silent for 2 s: gone"),
        logged("child ended", child="<reducer 29164>", status=-9),
        'elasticd: elasticd.toml: "peers" is no list\n',
    ],
)  # fmt: skip
def test_what_a_daemon_says_by_itself_stays(line: str) -> None:
    assert without_printed(line) == line
