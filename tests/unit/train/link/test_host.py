"""How a trainer's process runs its script, and ends behind it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from elasticd.launchd.protected import kept_out
from elasticd.recovery.signatures import last_words
from elasticd.settings.job import JobSpec
from elasticd.train.link import host

pytestmark = pytest.mark.process

ENDS = """
import atexit, threading
from concurrent.futures import ThreadPoolExecutor
from elasticd.train.finishing import finish_interpreter

atexit.register(print, "at the exit")
pool = ThreadPoolExecutor(2)
pool.submit(print, "in the pool").result()
release = threading.Event()
threading.Thread(target=lambda: (release.wait(), print("in a thread"))).start()
threading.Timer(0.1, release.set).start()
finish_interpreter()
print("over")
"""


def test_threads_and_pools_that_a_script_leaves_end_as_python_ends_them() -> None:
    """An idle pool's threads wait for ever for work unless Python tells them that all is over."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=120)
    said = ["in the pool", "in a thread", "at the exit", "over"]
    assert (done.returncode, done.stdout.splitlines()) == (0, said), done.stderr


FAILS = """
import atexit, os, threading
from concurrent.futures import ThreadPoolExecutor
from elasticd.train.finishing import finish_failed

atexit.register({at_exit})
pool = ThreadPoolExecutor(2)
pool.submit(print, "in the pool").result()
threading.Timer(0.1, print, ["in a thread"]).start()
finish_failed(lambda: os._exit(3), 3600, {seconds})
print("over")
"""


def test_what_a_script_that_fails_leaves_ends_as_python_ends_it_if_it_does() -> None:
    text = FAILS.format(at_exit='print, "at the exit"', seconds=3600)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    said = ["in the pool", "in a thread", "at the exit", "over"]
    assert (done.returncode, done.stdout.splitlines()) == (0, said), done.stderr


def test_nothing_that_is_to_be_done_at_the_exit_of_a_script_that_fails_holds_it_for_ever() -> None:
    text = FAILS.format(at_exit="threading.Event().wait", seconds=0.2)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (3, "")


ARGUMENTS = """
import dataclasses
from argparse import ArgumentParser

@dataclasses.dataclass
class Settings:
    width: int = 1

parser = ArgumentParser()
for f in dataclasses.fields(Settings):
    parser.add_argument("--" + f.name, type=f.type)
print(parser.parse_args().width + 1)
"""


def test_a_script_has_the_future_features_that_it_names_and_no_others(tmp_path: Path) -> None:
    """With ours its annotations would be strings."""
    script = tmp_path / "train.py"
    script.write_text(ARGUMENTS)
    begin = "from elasticd.train.link.host import run_script as run; from pathlib import Path; "
    begin += f"raise SystemExit(run(Path({str(script)!r}), ['--width', '4']))"
    for command in ([str(script), "--width", "4"], ["-c", begin]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


def test_what_fails_before_the_script_is_told_as_its_errors_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def begin() -> None:
        raise RuntimeError("[metal::load_device] No Metal device available.")

    def well() -> None:
        pass

    script = {"name": "job", "entrypoint": "train.py"}
    spec = JobSpec.from_dict(
        {"job": script, "train": {"steps": 1}, "batch": {"global": 4, "micro": 4}}
    )
    (tmp_path / "train.py").write_text("raise SystemExit(7)")
    assert host.run_behind(begin, spec, tmp_path) == 1
    assert "RuntimeError: [metal::load_device]" in capsys.readouterr().err
    before = list(sys.path), dict(sys.modules), list(sys.argv)
    try:
        assert host.run_behind(well, spec, tmp_path) == 7
    finally:
        sys.path[:], sys.argv[:] = before[0], before[2]
        sys.modules["__main__"] = before[1]["__main__"]


def raised(number: int, wrapped: str, filename: str | None) -> str:
    """What is printed of a script that could not read a file of a Mac's owner."""
    try:
        try:
            raise OSError(number, os.strerror(number), filename)
        except OSError as error:
            if not wrapped:
                raise
            raise ValueError("no such data") from (error if wrapped == "from" else None)
    except (OSError, ValueError) as error:
        host._explain(error, lambda met: kept_out(met, "darwin", lambda: "/x/Python.app"))
        return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("wrapped", ["", "from", "without"])
def test_a_script_that_macos_keeps_from_a_file_ends_with_the_cure(wrapped: str) -> None:
    said = last_words(raised(errno.EPERM, wrapped, "/Users/ada/Documents/data.npy"))
    named = "ValueError: no such data" if wrapped else "Operation not permitted: '/Users/ada"
    assert named in said and "Full Disk Access: /x/Python.app" in said


def test_what_is_no_file_of_an_owner_has_no_such_cure() -> None:
    for number, filename in ((errno.EACCES, "/x"), (errno.ENOENT, "/x"), (errno.EPERM, None)):
        assert "Full Disk Access" not in raised(number, "", filename)


def test_causes_that_lead_to_each_other_end() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    host._explain(one)
    assert not hasattr(one, "__notes__")
