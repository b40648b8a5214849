"""Children of a process that has used the network: they begin, or it is told with its cure."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from elasticd.cli.mac.starting import starts

pytestmark = pytest.mark.process


def unknown() -> None:
    raise socket.gaierror(8, "nodename nor servname provided, or not known")


def test_children_begin_after_the_network_was_used(tmp_path: Path) -> None:
    found = starts(tmp_path, lambda: None, times=3)
    assert (found.verdict, found.value.partition(" ")[0]) == ("pass", "3"), found


def test_no_network_is_no_failure(tmp_path: Path) -> None:
    assert starts(tmp_path, unknown, times=1, own=tuple).verdict == "pass"
    assert starts(tmp_path, unknown, times=1, own=lambda: ["192.0.2.1"]).verdict == "pass"


def test_children_that_crash_are_told_with_the_signal(tmp_path: Path) -> None:
    """Only after the network was used."""
    used: list[str] = []
    crashes = ("/bin/sh", "-c", f"test -e {tmp_path}/used && kill -SEGV $$")

    def look() -> None:
        used.append("look")
        (tmp_path / "used").touch()

    def own() -> list[str]:
        used.append("own")
        return []

    found = starts(tmp_path, look, crashes, 2, own)
    assert (found.verdict, used) == ("fail", ["look", "own"])
    assert found.value.startswith("2 of 2 children") and found.value.endswith("by SIGSEGV")
    assert "numeric addresses" in found.cure and "VPNs" in found.cure and "bundle" in found.cure


def test_children_that_end_otherwise_are_no_crash(tmp_path: Path) -> None:
    assert starts(tmp_path, lambda: None, ("/bin/sh", "-c", "exit 7"), 1).verdict == "pass"
