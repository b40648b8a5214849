"""How a trainer's process ends behind its script."""

from __future__ import annotations

import subprocess
import sys

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
