"""How a trainer's process runs its script, and ends behind it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ENDS = """
import atexit, threading
from concurrent.futures import ThreadPoolExecutor
from elasticd.train.link.host import _finish_interpreter

atexit.register(print, "at the exit")
pool = ThreadPoolExecutor(2)
pool.submit(print, "in the pool").result()
release = threading.Event()
threading.Thread(target=lambda: (release.wait(), print("in a thread"))).start()
threading.Timer(0.1, release.set).start()
_finish_interpreter()
print("over")
"""


def test_threads_and_pools_that_a_script_leaves_end_as_python_ends_them() -> None:
    """An idle pool's threads wait for ever for work unless Python tells them that all is over."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=120)
    said = ["in the pool", "in a thread", "at the exit", "over"]
    assert (done.returncode, done.stdout.splitlines()) == (0, said), done.stderr


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
    host = "from elasticd.train.link.host import run_script as run; from pathlib import Path; "
    host += f"raise SystemExit(run(Path({str(script)!r}), ['--width', '4']))"
    for command in ([str(script), "--width", "4"], ["-c", host]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
