"""Something small in a process of its own."""

from __future__ import annotations

import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from elasticd.errors import OperationError
from elasticd.shell.children.trial import tried

pytestmark = pytest.mark.process

LATE = 30.0


def run(code: str, folder: Path, late: float = LATE) -> bytes:
    return tried([sys.executable, "-c", code], dict(os.environ), folder, late)


def test_what_has_ended_is_not_waited_for_because_of_what_it_has_started(tmp_path: Path) -> None:
    """That has its pipes, as a worker has that reads data, and would outlive the time."""
    code = "import os, time\nif os.fork() == 0: time.sleep(600)\nos.write(1, b'said')\nos._exit(0)"
    assert run(code, tmp_path) == b"said"


def test_who_has_closed_its_pipes_is_waited_for(tmp_path: Path) -> None:
    code = "import os, sys; os.close(1); os.close(2); open('done', 'w').close(); os._exit(3)"
    with pytest.raises(OperationError, match=r"ended with status 3$"):
        run(code, tmp_path)
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("fd", [1, 2])
def test_who_prints_without_end_takes_no_memory(tmp_path: Path, fd: int) -> None:
    mebibytes = 64
    code = f"import os\nfor _ in range({mebibytes}): os.write({fd}, b'x' * (1 << 20))"
    tracemalloc.start()
    try:
        out = run(code, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert len(out) == (1 << 20 if fd == 1 else 0)


def test_the_last_that_it_says_of_its_failure_is_told(tmp_path: Path) -> None:
    code = "import os; os.write(2, b'x' * (1 << 20) + b'\\nthe cause\\n'); os._exit(1)"
    with pytest.raises(OperationError, match=r"ended with status 1: the cause$"):
        run(code, tmp_path)
