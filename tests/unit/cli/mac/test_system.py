"""Probes of the system: each passes as Macs should be, and fails with a cure."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import pytest

from elasticd.cli.mac import system
from elasticd.cli.mac.system import SystemFacts
from elasticd.errors import UsageError
from elasticd.launchd.plist import DaemonPlist
from elasticd.machinememory import MachineMemory
from elasticd.shell.children.awake import Assertion, Awake
from elasticd.supervision.service import Result


@dataclass
class FakeTools:
    """Answers by the program's name; what isn't known is not there."""

    answers: dict[str, Result] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, command: Sequence[str]) -> Result:
        self.asked.append(list(command))
        gone = Result(127, f"{command[0]}: there is no such program here")
        return self.answers.get(command[0].rpartition("/")[2], gone)


MAC = SystemFacts(
    "macOS", "15.1", "arm64", "Apple M3 Max, 40 GPU cores", 64 << 30, "3.12.1", "0.32.4", True
)
PMSET = """System-wide power settings:
Currently in use:
 standby              1
 powernap             1
 sleep                1 (sleep prevented by caffeinate)
 autorestart          0
"""
PLIST = DaemonPlist(Path("/Users/ann/elasticd"), "ann", Path("/Users/ann"), "/usr/bin")


def test_a_mac_is_asked_often_what_memory_is_free(tmp_path: Path) -> None:
    said = iter([MachineMemory(1 << 34, 1 << 33)] * 3)
    found = system.system(tmp_path, lambda: MAC, lambda: next(said, MachineMemory(1 << 34)))
    assert found.verdict == "warn" and "asked 200 times macOS says 3 times" in found.value


VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               65536.
Pages active:                            600000.
Pages inactive:                          500000.
Pages speculative:                         1000.
Pages purgeable:                          32768.
Pages purged:                            777777.
File-backed pages:                       131072.
"""


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Result(0, VM_STAT), "5.0 GiB of memory are free, 3.5 GiB by vm_stat"),
        (Result(0, "nothing that is known"), "are free, vm_stat does not say it"),
        (Result(1, VM_STAT), "are free, vm_stat does not say it"),
    ],
)
def test_what_is_free_is_told_beside_what_a_second_tool_says(
    tmp_path: Path, answer: Result, told: str
) -> None:
    tools = FakeTools({"vm_stat": answer})
    memory = MachineMemory(1 << 34, 5 << 30)
    found = system.system(tmp_path, lambda: MAC, lambda: memory, tools)
    assert (found.verdict, told in found.value) == ("pass", True)


@pytest.mark.parametrize(
    ("facts", "verdict", "cure"),
    [
        (MAC, "pass", ""),
        (replace(MAC, system="Linux", machine="x86_64", metal=False), "pass", ""),
        (replace(MAC, mlx="0.31.9"), "fail", "Install MLX 0.32.4 or newer"),
        (replace(MAC, machine="x86_64"), "fail", "built for Apple silicon"),
        (replace(MAC, metal=False), "fail", "restart this Mac"),
        (replace(MAC, release="13.6"), "fail", "Update macOS to 14"),
        (replace(MAC, release="14.5"), "warn", "Update macOS to 15"),
    ],
)
def test_what_a_machine_has_to_be(
    tmp_path: Path, facts: SystemFacts, verdict: str, cure: str
) -> None:
    found = system.system(tmp_path, lambda: facts)
    assert (found.verdict, cure in found.cure) == (verdict, True)
    assert "Apple M3 Max, 40 GPU cores, 64 GiB, Python 3.12.1" in found.value


def test_an_mlx_that_does_not_load_is_said(tmp_path: Path) -> None:
    def broken() -> SystemFacts:
        raise ImportError("Library not loaded: libmlx.dylib")

    found = system.system(tmp_path, broken)
    assert found.verdict == "fail" and "libmlx" in found.value and "pip install" in found.cure


def test_a_mac_that_sleeps_is_told_how_not_to(tmp_path: Path) -> None:
    tools = FakeTools({"pmset": Result(0, PMSET)})
    found = system.sleep_settings(tmp_path, tools, "darwin", lambda: 80.0)
    assert found.cure.startswith("sudo pmset -a sleep 0 autorestart 1 powernap 0. Drain")
    found = system.sleep_settings(tmp_path, tools, "darwin", lambda: None)
    assert (found.verdict, found.value) == ("warn", "sleep 1, autorestart 0")
    assert found.cure == "sudo pmset -a sleep 0 autorestart 1"
    awake = PMSET.replace("sleep                1", "sleep  0").replace(
        "restart          0", "restart 1"
    )
    tools.answers["pmset"] = Result(0, awake)
    assert system.sleep_settings(tmp_path, tools, "darwin", lambda: None).verdict == "pass"
    found = system.sleep_settings(tmp_path, FakeTools(), "darwin")
    assert found.verdict == "fail" and "no such program" in found.value and found.cure
    assert system.sleep_settings(tmp_path, FakeTools(), "linux").verdict == "pass"


ON, ENABLED = "FileVault is On.", '\t"com.openssh.sshd" => enabled'


@pytest.mark.parametrize(
    ("vault", "services", "version", "verdict"),
    [
        (Result(0, ON), Result(0, ENABLED), "26.1", "pass"),
        (Result(0, ON), Result(0, ENABLED), "15.6", "warn"),
        (Result(0, ON), Result(0, ENABLED.replace("enabled", "disabled")), "26.1", "warn"),
        (Result(0, ON), Result(1, ENABLED), "26.1", "warn"),
        (Result(0, "FileVault is On, but needs to be restarted to finish."), None, "26.1", "warn"),
        (Result(0, "FileVault is Off."), None, "26.1", "pass"),
        (Result(1, ON), None, "26.1", "pass"),
        (None, None, "26.1", "pass"),
    ],
)
def test_a_mac_that_waits_for_a_password_after_a_restart_is_told_unless_ssh_unlocks_it(
    tmp_path: Path, vault: Result | None, services: Result | None, version: str, verdict: str
) -> None:
    said = {
        "pmset": Result(0, " sleep 0\n autorestart 1"),
        "env": Result(0, version),
        "fdesetup": vault,
        "launchctl": services,
    }
    tools = FakeTools({name: answer for name, answer in said.items() if answer is not None})
    found = system.sleep_settings(tmp_path, tools, "darwin", lambda: None)
    assert found.verdict == verdict and found.value.startswith("sleep 0, autorestart 1")
    assert ("fdesetup authrestart" in found.cure) == (verdict == "warn")
    assert ["/usr/bin/fdesetup", "status"] in tools.asked


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (Result(0, "Firewall is disabled. (State = 0)"), "pass"),
        (Result(0, "Firewall is enabled. (State = 1)"), "warn"),
        (Result(0, "Firewall is enabled. (State = 2)"), "warn"),
        (Result(1, "not permitted"), "warn"),
    ],
)
def test_a_firewall_is_told_with_the_way_through(
    tmp_path: Path, answer: Result, verdict: str
) -> None:
    found = system.firewall(tmp_path, FakeTools({"socketfilterfw": answer}), "darwin")
    assert found.verdict == verdict and bool(found.cure) == (verdict != "pass")
    assert ("--setblockall off" in found.cure) == ("State = 2" in found.value)
    assert system.firewall(tmp_path, FakeTools(), "linux").verdict == "pass"


def test_the_property_list_is_linted_by_a_second_parser(tmp_path: Path) -> None:
    tools = FakeTools({"plutil": Result(0, f"{tmp_path}/com.elasticd.daemon.plist: OK")})
    found = system.plist(tmp_path, tools, lambda: PLIST, "darwin")
    assert (found.verdict, found.value) == ("pass", "OK")
    (command,) = tools.asked
    assert Path(command[-1]).read_bytes() == PLIST.data()
    tools.answers["plutil"] = Result(1, "Unexpected character at line 3")
    found = system.plist(tmp_path, tools, lambda: PLIST, "darwin")
    assert found.verdict == "fail" and "line 3" in found.value and found.cure
    gone = replace(PLIST, python="/gone/python")
    found = system.plist(tmp_path, tools, lambda: gone, "linux")
    assert found.verdict == "fail" and "/gone/python" in found.value and "Install" in found.cure

    def nobody() -> DaemonPlist:
        raise UsageError("there is no user 'ann' on this machine")

    found = system.plist(tmp_path, tools, nobody, "linux")
    assert found.verdict == "fail" and "--user" in found.cure


HOLDER = (sys.executable, "-c", "import time; time.sleep(60)")


def test_a_power_assertion_has_to_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_LOOK_SECONDS", 0.0)
    seen: list[int] = []

    def listing(command: Sequence[str]) -> Result:
        """As long as its process runs."""
        return Result(0, "".join(f"pid {pid}(caffeinate): x\n" for pid in running(seen)))

    class Held(Awake):
        def hold(self, pid: int) -> Assertion | None:
            held = Awake.hold(self, pid)
            assert held is not None
            seen.append(held.holder.pid)
            return held

    awake = Held(HOLDER)
    found = system.assertions(tmp_path, listing, awake, "darwin")
    assert found.verdict == "pass" and len(seen) == 1
    found = system.assertions(tmp_path, lambda command: Result(0, ""), Awake(HOLDER), "darwin")
    assert found.verdict == "fail" and "pmset -a sleep 0" in found.cure
    found = system.assertions(tmp_path, listing, Awake(("/gone/caffeinate",)), "darwin")
    assert found.verdict == "fail" and "caffeinate" in found.cure
    forever = Held(HOLDER)
    found = system.assertions(
        tmp_path, lambda command: Result(0, f"pid {seen[-1]}("), forever, "darwin"
    )
    assert found.verdict == "warn" and found.cure == f"End it by hand: kill {seen[-1]}"
    assert system.assertions(tmp_path, listing, None, "linux").verdict == "pass"


def running(pids: Sequence[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid)]
