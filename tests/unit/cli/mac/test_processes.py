"""Probes of processes: each passes here, and fails with a cure where the system is another."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.cli.mac import processes
from elasticd.ipc.memoryfile import MEMORY_BYTES, create_memory
from tests.fullsocket import full_pair

pytestmark = pytest.mark.process


def test_shared_memory_passes_through_a_socket(tmp_path: Path) -> None:
    found = processes.descriptors(tmp_path, times=20)
    assert found.verdict == "pass" and found.value.startswith("20 passes")
    assert found.value.endswith("; a socket nobody keeps arrives, too")


@pytest.mark.parametrize("kept", [False, True])
def test_a_socket_that_is_shut_down_on_its_way_is_told(tmp_path: Path, kept: bool) -> None:
    found = processes.descriptors(tmp_path, times=2, outlives=lambda kept_: kept and kept_)
    if kept:
        assert found.verdict == "pass" and found.value.endswith("is shut down, as is expected")
    else:
        assert found.verdict == "fail" and "and kept until it was taken" in found.value
        assert found.cure


@pytest.mark.parametrize(("refusals", "verdict"), [(3, "pass"), (1 << 30, "fail")])
def test_descriptors_that_find_no_room_until_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int, verdict: str
) -> None:
    monkeypatch.setattr(processes, "_NOTICE_SECONDS", 0.5)
    found = processes.descriptors(tmp_path, times=1, make=lambda: full_pair(refusals))
    assert found.verdict == verdict, found.value
    if verdict == "fail":
        assert found.value.startswith("64 descriptors behind 8000 bytes") and found.cure


def test_memory_that_is_not_there_is_told_with_the_pass(tmp_path: Path) -> None:
    left = 3

    def create() -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(24, "Too many open files")
        return create_memory()

    found = processes.descriptors(tmp_path, create, times=9)
    assert found.verdict == "fail" and found.value.startswith("pass 4 of 9: ") and found.cure


def test_memory_that_is_too_small_is_told(tmp_path: Path) -> None:
    def small() -> int:
        with tempfile.TemporaryFile() as file:
            file.truncate(MEMORY_BYTES // 2)
            return os.dup(file.fileno())

    found = processes.descriptors(tmp_path, small, times=2)
    assert found.verdict == "fail" and found.cure


def test_descriptors_that_stay_are_told(tmp_path: Path) -> None:
    kept: list[int] = []

    def leaking() -> int:
        kept.append(create_memory())
        return os.dup(kept[-1])

    found = processes.descriptors(tmp_path, leaking, times=3)
    for fd in kept:
        os.close(fd)
    assert (
        found.verdict == "fail" and found.value.startswith("3 descriptors are left") and found.cure
    )


def test_a_zombies_group_is_killed(tmp_path: Path) -> None:
    assert processes.zombies(tmp_path).verdict == "pass"


def test_a_group_that_lives_on_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr(processes, "_NOTICE_SECONDS", 0.1)
    found = processes.zombies(tmp_path, refuse)
    assert found.verdict == "fail" and "killpg fails (No such process)" in found.value
    assert "ps -axo" in found.cure


def test_exits_are_noticed(tmp_path: Path) -> None:
    assert processes.exits(tmp_path).verdict == "pass"


def test_exits_that_go_unnoticed_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deaf(pid: int, on_exit: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    monkeypatch.setattr(processes, "_NOTICE_SECONDS", 0.1)
    found = processes.exits(tmp_path, deaf)
    assert found.verdict == "fail" and "goes unnoticed" in found.value and found.cure


def test_exits_that_are_noticed_late_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_SLOW_NOTICE_SECONDS", 0.0)
    found = processes.exits(tmp_path)
    assert (found.verdict, "noticed within" in found.value) == ("warn", True)
    assert "seconds longer" in found.cure


@pytest.mark.skipif(sys.platform == "darwin", reason="its /dev/zero has no memory of its own")
def test_memory_that_is_not_shared_is_told(tmp_path: Path) -> None:
    """Each who maps /dev/zero gets other pages."""
    found = processes.descriptors(tmp_path, lambda: os.open("/dev/zero", os.O_RDWR), times=2)
    assert (found.verdict, found.value) == ("fail", "pass 1 of 2: what was written isn't there")
    assert "shared memory" in found.cure


LISTENS = """
import json, socket, sys
port = int(json.loads(sys.argv[2])[int(sys.argv[1])].rpartition(":")[2])
server = socket.socket()
server.bind(("127.0.0.1", port))
server.listen()
"""


@pytest.mark.parametrize(
    ("script", "seconds", "said"),
    [
        ("import sys; sys.exit(7)", 4.0, "rank 0 ended with status 7"),
        ("import time; time.sleep(60)", 0.2, "rank 0 doesn't listen"),
        (LISTENS + "import time; time.sleep(60)", 4.0, "rank 0 hangs once rank 0 goes on"),
        (LISTENS + "sys.stdin.read(); import time; time.sleep(1); sys.exit('no peer')",
         4.0, "rank 0 got no sum: it says no peer"),
    ],
)  # fmt: skip
def test_a_ring_that_does_not_come_up_is_told(
    tmp_path: Path, script: str, seconds: float, said: str
) -> None:
    found = processes.ring(tmp_path, (sys.executable, "-c", script), 1, seconds)
    assert (found.verdict, found.value) == ("fail", said)
    assert "firewall" in found.cure


def test_a_ring_comes_up_beside_a_stopped_rank(tmp_path: Path) -> None:
    found = processes.ring(tmp_path, rounds=1, seconds=60.0)
    assert found.verdict == "pass", found
