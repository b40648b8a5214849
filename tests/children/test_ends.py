"""How a trainer's process ends, whatever its script has left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.children.test_trainer import SCRIPT, STEPS, begin, train_alone, trainer

pytestmark = pytest.mark.process


@pytest.mark.parametrize("given", ["raise ValueError('spoiled')", "sys.exit('spoiled')"])
@pytest.mark.parametrize(
    "away",
    [
        "pass",
        "sys.stderr = open('err.txt', 'w')",
        "sys.stderr.close()",
        "os.close(2)",
        "os.dup2(os.open('err.txt', os.O_WRONLY | os.O_CREAT), 2)",
        "sys.stderr = None",
        "sys.stderr = object()",
    ],
)
def test_what_a_script_ends_with_is_told_wherever_it_has_led_its_stderr(
    tmp_path: Path, away: str, given: str
) -> None:
    with trainer(tmp_path, f"import os, sys\n{away}\n{given}") as child:
        code, out = child.end()
    assert code == 1 and out.splitlines()[-1].endswith("spoiled") and out.count("spoiled") < 3
    kept = tmp_path / "clones" / "0" / "err.txt"
    assert not kept.exists() or kept.read_text().rstrip().endswith("spoiled")


LEFT = """
import atexit, queue, threading
from concurrent.futures import ThreadPoolExecutor

few = queue.Queue(maxsize=2)
atexit.register(print, "at the exit")
threading.Thread(target=threading.Event().wait).start()
ThreadPoolExecutor(1).submit(lambda: [few.put(i) for i in range(100)])
raise ValueError("spoiled")
"""


def test_a_script_that_fails_waits_for_no_thread_that_never_ends(tmp_path: Path) -> None:
    """It would be ended as one that hangs, again and again."""
    with trainer(tmp_path, LEFT) as child:
        assert child.wait("bye")["status"] == 1
        code, out = child.end()
    assert code == 1 and out.splitlines()[-2:] == ["ValueError: spoiled", "at the exit"]


FORKS = (
    "import atexit, os\natexit.register(print, 'at the exit')\n"
    + SCRIPT[: SCRIPT.index("    if step.number == 3")]
    + """
    print("step", step.number, file=log)
    if step.number == 2:
        pid = os.fork()
        if pid == 0:
            CHILD
        print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
).replace("for step in run", "log = run.open('steps')\nfor step in run")


@pytest.mark.parametrize(
    ("ends", "code"), [("sys.exit(7)", 7), ("break", 0), ("raise ValueError('in the child')", 1)]
)
def test_the_end_of_a_child_that_a_script_has_forked_is_not_its_own(
    tmp_path: Path, ends: str, code: int
) -> None:
    with trainer(tmp_path, FORKS.replace("CHILD", ends)) as child:
        begin(child, tmp_path)
        child.send("exact", generation=[1, "n", "x"], exact=True, reason="")
        child.wait("finished", step=STEPS)
        child.send("release")
        assert child.wait("bye")["status"] == 0
        status, out = child.end()
        said = [message["t"] for message in child.seen]
    assert (status, said.count("stops"), said.count("bye")) == (0, 0, 1)
    lines = [line for line in out.splitlines() if line.startswith(("child", "at the", "elasticd"))]
    assert lines == ["at the exit", f"child {code}", "at the exit"], out
    written = (tmp_path / "out" / "steps").read_text()
    assert written == "".join(f"step {number}\n" for number in range(1, STEPS + 1))


THREAD = (
    SCRIPT[: SCRIPT.index("for step in run")]
    + """
import threading

def train():
    for step in run:
        print("step", step.number, flush=True)

threading.Thread(target=train).start()
"""
)


def test_a_script_may_train_in_a_thread_that_it_does_not_wait_for(tmp_path: Path) -> None:
    with trainer(tmp_path, THREAD) as child:
        code, out = train_alone(child, tmp_path)
    assert (code, out.splitlines()) == (0, [f"step {n}" for n in range(1, STEPS + 1)])


def test_an_error_in_the_thread_in_which_a_script_trains_is_the_scripts(tmp_path: Path) -> None:
    script = THREAD.replace('print("step"', 'raise ValueError("spoiled")  # (')
    with trainer(tmp_path, script) as child:
        begin(child, tmp_path)
        child.send("exact", generation=[1, "n", "x"], exact=True, reason="")
        assert child.wait("bye")["status"] == 1
        code, out = child.end()
    assert code == 1 and out.splitlines()[-1] == "ValueError: spoiled"


STAYS = """
import os

if os.fork() == 0:
    open("../../gate").read()  # until the test opens the other end
os._exit(3)
"""


def test_the_end_of_a_trainer_is_heard_while_a_child_lives_that_it_has_forked(
    tmp_path: Path,
) -> None:
    with trainer(tmp_path, STAYS) as child:
        try:
            assert child.connection.receive() is None
        finally:
            (tmp_path / "gate").write_text("")
        assert child.end()[0] == 3


UNGUARDED = (
    """
import concurrent.futures, multiprocessing

def negative(number):
    return -number

context = multiprocessing.get_context("spawn")
STARTS
"""
    + SCRIPT
)
STARTS = {
    "a pool": "context.Pool(2).map(negative, range(4))",
    "an executor": "print(*concurrent.futures.ProcessPoolExecutor(2, context).map(negative, [1]))",
    "a process": "p = context.Process(target=negative)\np.start()\np.join()",
}


@pytest.mark.parametrize("starts", STARTS.values(), ids=STARTS)
def test_a_script_whose_processes_run_it_again_ends_with_the_cure(
    tmp_path: Path, starts: str
) -> None:
    """On a Mac all do that lack a guard, and a pool begins them anew for ever."""
    with trainer(tmp_path, "import elasticd\n" + UNGUARDED.replace("STARTS", starts)) as child:
        assert child.wait("bye")["status"] == 1
        code, out = child.end()
    assert code == 1 and "Traceback" not in out
    assert out.splitlines()[-1].endswith('below `if __name__ == "__main__":`'), out
