"""The look for leaks sees shared memory that a process keeps after its job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from elasticd.client.client import Client
from elasticd.supervision.birth import birth
from tests.integration import cluster as clusters
from tests.integration.cluster import Cluster, Seen
from tests.integration.nameless import held_by

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who holds it")

_MAKES = "import mmap, os, sys\nfd = os.memfd_create('elasticd-chunks')\nos.ftruncate(fd, 4096)\n"
_KEEPS_DESCRIPTOR = _MAKES
_KEEPS_MAPPING = _MAKES + "kept = mmap.mmap(fd, 4096, trackfd=False) if sys.version_info >= "
_KEEPS_MAPPING += "(3, 13) else mmap.mmap(fd, 4096)\nos.close(fd)\n"
_GIVES_BACK = _MAKES + "os.close(fd)\n"
_THEN_WAITS = "print(flush=True)\nsys.stdin.read()\n"


@contextmanager
def _process(program: str) -> Iterator[int]:
    """One that has done that, and lives on."""
    words = [sys.executable, "-c", program + _THEN_WAITS]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


class FakeClient:
    """A daemon that says in which state the only job is."""

    def __init__(self, state: str) -> None:
        self._state = state

    def request(self, *_: Any) -> dict[str, Any]:
        return {"jobs": [{"state": self._state}]}


def _kept(folder: Path, pid: int, state: str) -> list[str]:
    made = Cluster(folder, 0)
    made.client = cast(Client, FakeClient(state))
    born = birth(pid)
    made.seen.add(Seen(pid, psutil.Process(pid).create_time(), "trainer", born))
    return made.kept_memory()


@pytest.mark.parametrize("program", [_KEEPS_DESCRIPTOR, _KEEPS_MAPPING])
def test_memory_of_a_job_that_has_ended_is_a_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(clusters, "GIVE_BACK_SECONDS", 0.1)
    with _process(program) as pid:
        left = _kept(tmp_path, pid, "finished")
        assert left and all(f"process {pid}: " in what for what in left)
        assert _kept(tmp_path, pid, "running") == []


def test_memory_that_was_given_back_is_none(tmp_path: Path) -> None:
    with _process(_GIVES_BACK) as pid:
        assert held_by(pid) == []
        assert _kept(tmp_path, pid, "finished") == []
    assert held_by(pid) == [], "it has ended"
