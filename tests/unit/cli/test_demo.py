from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from elasticd.cli import demo
from elasticd.cli.demo_faults import Strike, Target, choose, finished, measure, new_world, strike
from elasticd.cli.demo_screen import Screen, described_rank
from elasticd.cli.demo_watch import Watch
from elasticd.client.client import Client
from elasticd.errors import NoDaemonError, OperationError

KILLED_AT = 1000.0


@pytest.fixture
def struck() -> Strike:
    return Strike(Target("trainer", "node-2", 1, 4310), (4310,), KILLED_AT, generation=4, step=120)


def events(*, finish: bool = True) -> list[dict[str, Any]]:
    """An earlier recovery, then the one that belongs to ``struck``."""
    found: list[dict[str, Any]] = [
        {"time": 900.0, "kind": "world_formed", "generation": 4, "resume_step": 100}
        | {"seconds": 0.2, "rung": "retry"},
        {"time": 901.0, "kind": "recovery_finished", "generation": 4, "seconds": 1.0}
        | {"lost_steps": 0},
        {"time": 1000.3, "kind": "fault_detected", "generation": 4},
        {"time": 1000.5, "kind": "world_formed", "generation": 5, "resume_step": 120}
        | {"seconds": 0.2, "rung": "regroup"},
    ]
    if finish:
        end = {"time": 1000.9, "kind": "recovery_finished", "generation": 5, "seconds": 0.85}
        found.append(end | {"lost_steps": 0})
    return found


# --- targets ------------------------------------------------------------------------------------


def test_targets_are_followers_first_and_the_leaders_node_last(status: dict[str, Any]) -> None:
    view, job, nodes = status["view"], status["jobs"][0], status["nodes"]
    assert choose("trainer", view, job, nodes) == Target("trainer", "node-2", 1, 4310)
    assert choose("node", view, job, nodes) == Target("node", "node-0", 0, 4100)
    with pytest.raises(OperationError, match="no reducer"):
        choose("reducer", view, job, nodes)


def test_a_node_that_was_hit_is_hit_again_only_if_no_other_is_left(status: dict[str, Any]) -> None:
    ranks = [
        {"rank": rank, "node": f"node-{rank}", "pid": 100 + rank, "reducer_pid": 200 + rank}
        for rank in range(3)
    ]
    job = {**status["jobs"][0], "ranks": ranks}
    assert choose("reducer", status["view"], job, []).node == "node-1"
    assert choose("reducer", status["view"], job, [], hit=["node-1"]).node == "node-2"
    assert choose("reducer", status["view"], job, [], hit=["node-1", "node-2"]).pid == 201


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process with one child, whose pid it has printed."""
    script = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.process
def test_a_node_dies_with_its_children(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    job = {"step": 7, "generation": 3}
    struck = strike(Target("node", "node-1", 1, parent.pid), job)
    assert struck.pids == (parent.pid, child.pid)
    assert (struck.step, struck.generation) == (7, 3)
    assert parent.wait(10) == -signal.SIGKILL
    gone, _ = psutil.wait_procs([child], timeout=10)
    assert gone or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.process
def test_only_a_trainer_dies_where_a_trainer_is_meant(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    struck = strike(Target("trainer", "node-1", 1, child.pid), {"step": 7, "generation": 3})
    assert struck.pids == (child.pid,)
    assert parent.wait(10) == 0


def test_what_is_gone_already_is_said(struck: Strike) -> None:
    with pytest.raises(OperationError, match="gone before it was killed"):
        strike(Target("trainer", "node-1", 1, 2**22 + 1), {"step": 7, "generation": 3})


# --- figures ------------------------------------------------------------------------------------


def test_the_parts_of_a_recovery_add_up(struck: Strike) -> None:
    figures = measure(struck, events(), seen_at=1001.0)
    parts = (
        figures.seconds_to_detect,
        figures.seconds_to_agree,
        figures.seconds_to_form,
        figures.seconds_to_redo,
    )
    assert parts == (0.05, 0.25, 0.2, 0.4)
    assert figures.seconds_by_events == 0.9
    assert figures.seconds_to_next_step == 1.0
    assert (figures.rung, figures.resume_step, figures.steps_lost) == ("regroup", 120, 0)


def test_without_the_closing_event_the_rest_is_still_measured(struck: Strike) -> None:
    figures = measure(struck, events(finish=False), seen_at=1001.0)
    assert figures.seconds_by_events is None
    assert (figures.seconds_to_detect, figures.seconds_to_redo) == (0.3, 0.5)


def test_a_world_that_starts_earlier_has_lost_steps(struck: Strike) -> None:
    changed = [{**event, "resume_step": 117} for event in events()]
    assert measure(struck, changed, seen_at=1001.0).steps_lost == 3


def test_what_was_before_the_kill_does_not_count(struck: Strike) -> None:
    assert new_world(struck, events()[:3]) is None
    assert finished(struck, events(finish=False)) is None
    late_but_old = [{**event, "time": 1002.0} for event in events()[:2]]
    assert new_world(struck, late_but_old) is None


@pytest.mark.parametrize(
    ("pace", "steps"), [(2.0, 100), (1.1, 100), (10.0, 320), (500.0, 4000), (0.6, 48), (0.1, 40)]
)
def test_steps_fit_the_machine(pace: float, steps: int) -> None:
    assert demo.fitting_steps(pace, 100) == steps


# --- watching -----------------------------------------------------------------------------------


@pytest.fixture
def watch(home: Path) -> Iterator[Watch]:
    found = Watch(Client(home), lambda watch: None, lambda event: None)
    found.follow("byte-lm-1-k3f9")
    yield found
    found.close()


def test_an_answer_that_is_behind_is_passed_over(
    home: Path, daemon: Callable[..., Any], status: dict[str, Any], watch: Watch
) -> None:
    fake = daemon(home, {"status": status, "events": [{"end": True}]})
    watch.look(0.0)
    assert (watch.step, len(watch.ranks)) == (120, 2)
    fresh = {**status["jobs"][0], "generation": 0, "step": 0, "ranks": []}
    fake.answers["status"] = {**status, "jobs": [fresh]}
    watch.look(0.0)
    assert watch.step == 120
    later = {**status["jobs"][0], "step": 130}
    fake.answers["status"] = {**status, "view": {**status["view"], "epoch": 2}, "jobs": [later]}
    watch.look(0.0)
    assert watch.step == 120
    fake.answers["status"] = {**status, "jobs": [later]}
    watch.until("step 130", lambda: watch.step == 130, 10.0)


def test_waiting_ends_with_what_was_awaited(
    home: Path, daemon: Callable[..., Any], status: dict[str, Any], watch: Watch
) -> None:
    fake = daemon(home, {"status": status, "events": [{"end": True}]})
    with pytest.raises(OperationError, match="the moon did not come within 0 s"):
        watch.until("the moon", lambda: False, 0.05, poll_seconds=0.01)
    failed = {**status["jobs"][0], "state": "failed", "reason": "ValueError: no"}
    fake.answers["status"] = {**status, "jobs": [failed]}
    with pytest.raises(OperationError, match=r"failed while the moon was awaited: ValueError: no"):
        watch.until("the moon", lambda: False, 10.0)


def test_a_cluster_that_is_gone_is_not_waited_for(home: Path) -> None:
    watch = Watch(Client(home), lambda watch: None, lambda event: None, silence_seconds=0.0)
    with pytest.raises(NoDaemonError, match="no daemon has answered"):
        watch.until("the moon", lambda: False, 10.0, poll_seconds=0.0)


# --- what is shown ------------------------------------------------------------------------------


def test_plain_lines_say_where_the_job_is(status: dict[str, Any]) -> None:
    file = io.StringIO()
    job = status["jobs"][0]
    with Screen(Console(file=file, width=60)) as screen:
        screen.show("trains", job)
        screen.show("trains", {**job, "step": 121})
        screen.show("trains", {**job, "step": 122})
        screen.tell({"kind": "node_lost", "reason": "node-1 left the view"})
        screen.tell({"kind": "checkpoint_committed", "reason": "step 120 is consistent"})
    lines = [line.split(" s  ", 1)[1].rstrip() for line in file.getvalue().splitlines()]
    assert lines == [
        "  step 120/200  running  loss 2.135  3.1 steps/s",
        "  step 121/200  running  loss 2.135  3.1 steps/s",
        "    rank 0: node-0, trainer 4210, reducer 4211, 4 grains",
        "    rank 1: node-2, trainer 4310, reducer -, 4 grains",
        "  node lost: node-1 left the view",
    ]
    assert described_rank(job["ranks"][1]) in file.getvalue()


def test_a_terminal_shows_the_ranks(status: dict[str, Any]) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100)
    with Screen(console) as screen:
        screen.say("a line")
        screen.show("trains; next a trainer will be killed", status["jobs"][0])
        console.print(screen)
    for text in ("120/200", "4310", "next a trainer", "a line"):
        assert text in file.getvalue()


@pytest.mark.parametrize("width", range(20, 81, 4))
def test_a_narrow_terminal_shows_whole_numbers(status: dict[str, Any], width: int) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system=None, width=width)
    screen = Screen(console)
    job = {**status["jobs"][0], "state": "recovering", "step": 123456, "steps": 2345678}
    screen.show("trains; next a trainer will be killed", job)
    console.print(screen)
    assert "…" not in file.getvalue()
    words = file.getvalue().split()
    assert {"recovering", "123456/2345678", "2.135", "3.1", "killed"} <= {*words}, file.getvalue()


def test_the_table_names_each_fault(struck: Strike) -> None:
    figures = measure(struck, events(), seen_at=1001.0)
    returned = {"node": "node-2", "seconds_to_train_again": 2.5, "steps_committed_meanwhile": 4}
    rows = demo.fault_rows(demo.DemoResult(figures=[figures], returned=returned))
    assert rows == [
        ("trainer killed", "rank 1 on node-2", "0.05 s", "1.00 s", 0),
        ("node started again", "node-2", "-", "2.50 s", 0),
    ]


def test_digests_are_equal_only_if_there_are_two() -> None:
    assert not demo.DemoResult(digests=["ab"]).equal
    assert not demo.DemoResult(digests=["ab", "cd"]).equal
    assert demo.DemoResult(digests=["ab", "ab"]).equal


# --- the whole ----------------------------------------------------------------------------------


def test_a_home_in_use_is_refused(home: Path, ctl: Callable[..., tuple[int, str, str]]) -> None:
    home.mkdir()
    (home / "precious").touch()
    code, out, err = ctl("demo", "--home", home)
    assert (code, out) == (2, "")
    assert "a folder of its own" in err
    assert [path.name for path in home.iterdir()] == ["precious"]


def with_a_quarter_of_its_samples(folder: Path) -> Path:
    """The demo's job, with as many grains."""
    job_file = copied(folder)
    text = job_file.read_text()
    assert "global = 64\nmicro = 8\n" in text
    job_file.write_text(text.replace("global = 64\nmicro = 8\n", "global = 16\nmicro = 2\n"))
    return job_file


copied = demo._copy_example


@pytest.mark.process
def test_a_small_demo_ends_with_equal_digests(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "_copy_example", with_a_quarter_of_its_samples)
    plan = demo.DemoPlan(steps=20, fit_to_pace=False, faults=("reducer",))
    code = demo.run(home, True, plan)
    out, err = capfd.readouterr()
    assert code == 0, err
    found = json.loads(out)
    assert found["equal"] and len(set(found["digests"].values())) == 1
    [figures] = found["faults"]
    assert (figures["fault"], figures["steps_lost"]) == ("reducer", 0)
    assert 0 < figures["seconds_to_next_step"] < 60
    assert not any((home / name / "daemon.json").exists() for name in ("node-0", "node-1"))
    pids = [int(line.rsplit(" ", 1)[1]) for line in err.splitlines() if " runs at " in line]
    assert len(pids) == 3
    for pid in pids:
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
