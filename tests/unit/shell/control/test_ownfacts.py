"""What a node says of its machine, on Linux and with a Mac's tools."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path

import pytest

from elasticd.build import build
from elasticd.core.words.codec import to_plain
from elasticd.preflight.power import FILEVAULT, SERVICES, THERMAL
from elasticd.preflight.seen import SPEED_NAME
from elasticd.preflight.speeds import SpeedSeen
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.ownfacts import PMSET, OwnFacts
from elasticd.shell.control.speeddesk import FRESH_SECONDS
from elasticd.systemtools import MACOS_VERSION
from elasticd.types import NodeId
from tests.tinydisk import tiny_disk


def own(home: Path, system: str, answers: dict[str, str], asked: list[str]) -> OwnFacts:
    def ask(command: Sequence[str]) -> str:
        asked.append(command[0])
        return answers.get(command[0], "")

    return OwnFacts(home, lambda: "M3", lambda: ["wall"], system, ask)


def test_a_linux_machine_is_asked_no_tool_of_macos(tmp_path: Path) -> None:
    asked: list[str] = []
    found = own(tmp_path, "linux", {}, asked).begun()()
    assert asked == [] and (found.elasticd, found.chip) == (build(), "M3")
    assert (found.walled, found.power) == (("wall",), {})
    assert found.free_bytes > 0 and found.memory_bytes > 0 and found.unix > 0 and found.mlx


def test_a_macs_settings_are_read(tmp_path: Path) -> None:
    answers = {
        PMSET[0]: " sleep   1 (sleep prevented by caffeinate)\n autorestart 0",
        "/usr/libexec/ApplicationFirewall/socketfilterfw": "Firewall is enabled.\nmore",
    }
    found = own(tmp_path, "darwin", answers, []).begun()()
    assert found.system == "macOS" and found.firewall == "Firewall is enabled."
    assert (found.power["sleep"], found.power["autorestart"]) == ("1", "0")


def test_a_macs_version_is_not_the_one_that_an_old_sdk_is_told(tmp_path: Path) -> None:
    answers = {MACOS_VERSION[0]: "26.1"}
    assert own(tmp_path, "darwin", answers, []).begun()().release == "26.1"
    assert own(tmp_path, "darwin", {}, []).begun()().release == platform.mac_ver()[0]
    assert own(tmp_path, "linux", answers, []).begun()().release == platform.release()
    assert {"SYSTEM_VERSION_COMPAT=0", "/usr/bin/sw_vers"} < {*MACOS_VERSION}


@pytest.mark.parametrize(("release", "locked"), [("26.1", "ssh"), ("15.6", "screen")])
def test_what_filevault_asks_for_the_password_is_read(
    tmp_path: Path, release: str, locked: str
) -> None:
    answers = {
        MACOS_VERSION[0]: release,
        FILEVAULT[0]: "FileVault is On.",
        SERVICES[0]: '\t"com.openssh.sshd" => enabled',
    }
    assert own(tmp_path, "darwin", answers, []).begun()().locked == locked
    assert own(tmp_path, "linux", answers, []).begun()().locked == ""


@pytest.mark.parametrize(
    "error", [FileNotFoundError(2, "/sys/class/power_supply"), RuntimeError("syscall failed")]
)
def test_a_system_that_tells_of_no_battery_has_none(tmp_path: Path, error: Exception) -> None:
    def battery() -> None:
        raise error

    found = OwnFacts(tmp_path, str, list, "linux", battery=battery).begun()()
    assert (found.battery, found.plugged) == (None, True)


def test_tools_that_say_nothing_leave_it_open(tmp_path: Path) -> None:
    found = own(tmp_path, "darwin", {}, []).begun()()
    assert (found.power, found.firewall, found.locked) == ({}, "", "")


@pytest.mark.parametrize(
    ("printed", "level"),
    [
        (f"{THERMAL[-1]} 0\n", "nominal"),
        (f"{THERMAL[-1]} 2\n", "heavy"),
        (f"{THERMAL[-1]} 9\n", ""),
        (f"{THERMAL[-1]}: Failed with code 1\nx", ""),
    ],
)
def test_how_hot_a_mac_is(tmp_path: Path, printed: str, level: str) -> None:
    assert own(tmp_path, "darwin", {THERMAL[0]: printed}, []).begun()().thermal == level
    assert own(tmp_path, "linux", {THERMAL[0]: printed}, []).begun()().thermal == ""


def test_addresses_that_others_are_told_have_their_masks(tmp_path: Path) -> None:
    told = ("127.0.0.1:7070", "192.0.2.9:7070")  # the second is of no interface
    found = OwnFacts(tmp_path, str, list, "linux", told=lambda: told).begun()()
    assert found.addresses == ("127.0.0.1/8",)


@pytest.mark.parametrize(
    ("ago_seconds", "gflops"), [(60.0, 300.0), (FRESH_SECONDS + 60, 0.0), (-3600.0, 0.0)]
)
def test_how_fast_it_is_was_measured_within_a_day(
    tmp_path: Path, ago_seconds: float, gflops: float
) -> None:
    own = OwnFacts(tmp_path, lambda: "x86_64", tuple, "linux")
    assert own.begun()().gflops == 0.0
    kept = SpeedSeen(NodeId("a"), 300.0, "cpu", unix=unix_seconds() - ago_seconds)
    (tmp_path / SPEED_NAME).write_text(json.dumps(to_plain(kept)))
    assert own.begun()().gflops == gflops


@pytest.mark.process
def test_how_many_files_the_disk_of_the_home_takes_is_said(tmp_path: Path) -> None:
    with tiny_disk(tmp_path, files=50):
        found = own(tmp_path, "linux", {}, []).begun()()
        assert (found.free_files, found.home) == (49, str(tmp_path))
