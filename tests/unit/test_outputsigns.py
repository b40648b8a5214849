"""What a job's process and its daemon show each other in the output folder."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from elasticd.outputs import list_files
from elasticd.outputsigns import Coming, await_coming, want_copies, wanted_ns

WAIT_SECONDS = 20.0


def still() -> bool:
    return True


def test_nobody_waits_where_nothing_comes(tmp_path: Path) -> None:
    assert await_coming(tmp_path / "none", WAIT_SECONDS, still)
    Coming(tmp_path).close()
    assert await_coming(tmp_path, WAIT_SECONDS, still)
    found = list_files(tmp_path)
    assert (found.files, found.skipped) == ((), ())


def test_who_waits_goes_on_when_it_is_here(tmp_path: Path) -> None:
    coming = Coming(tmp_path)
    assert not await_coming(tmp_path, 0.0, still)
    looked = threading.Event()

    def close() -> None:
        looked.wait(WAIT_SECONDS)
        coming.close()

    def looks() -> bool:
        looked.set()
        return True

    thread = threading.Thread(target=close)
    thread.start()
    assert await_coming(tmp_path, WAIT_SECONDS, looks)
    thread.join()


def test_nobody_waits_in_a_world_that_has_ended(tmp_path: Path) -> None:
    coming = Coming(tmp_path)
    looks = iter([True, True, False])
    assert await_coming(tmp_path, WAIT_SECONDS, lambda: next(looks))
    coming.close()


def test_a_later_one_outlives_an_earlier_one(tmp_path: Path) -> None:
    earlier, later = Coming(tmp_path), Coming(tmp_path)
    earlier.close()
    assert not await_coming(tmp_path, 0.0, still)
    later.close()
    later.close()
    assert await_coming(tmp_path, WAIT_SECONDS, still)


def test_a_daemon_that_is_killed_keeps_nobody_waiting(tmp_path: Path) -> None:
    text = (
        "import pathlib, sys, time\nfrom elasticd.outputsigns import Coming\n"
        "sign = Coming(pathlib.Path(sys.argv[1]))\nprint('held', flush=True)\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-c", text, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        assert not await_coming(tmp_path, 0.0, still)
        child.kill()
        child.wait()
        assert await_coming(tmp_path, 0.0, still)


def test_when_copies_are_wanted(tmp_path: Path) -> None:
    assert wanted_ns(tmp_path) == 0
    want_copies(tmp_path)
    first = wanted_ns(tmp_path)
    assert first > 0
    (tmp_path / "file").write_text("x")
    want_copies(tmp_path)
    assert wanted_ns(tmp_path) >= first
    want_copies(tmp_path / "file")
    assert wanted_ns(tmp_path / "file") == 0
