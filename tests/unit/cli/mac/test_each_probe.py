"""Each probe has a case in which it doesn't pass, and says the cure. A new one needs one, too."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.cli.mac import disks, metal, processes, serving, starting, system, whole
from elasticd.cli.mac.probes import PROBES
from elasticd.cli.mac.system import SystemFacts
from elasticd.errors import UsageError
from elasticd.launchd.plist import DaemonPlist
from elasticd.preflight.finding import ProbeFinding
from elasticd.shell.children.awake import Awake
from elasticd.supervision.service import Result
from tests.unit.cli.mac.test_serving import Died

pytestmark = pytest.mark.process


def no_mlx() -> SystemFacts:
    raise ImportError("libmlx.dylib")


def nobody() -> DaemonPlist:
    raise UsageError("there is no user 'ann' on this machine")


def no_such_process(pid: int, number: int) -> None:
    raise ProcessLookupError(3, "No such process")


def deaf(pid: int, on_exit: Callable[[], None]) -> Callable[[], None]:
    return lambda: None


def too_small() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def full(fd: int) -> None:
    raise OSError(28, "No space left on device")


def always_other() -> str:
    return next(_NUMBERS)


_NUMBERS = map(str, itertools.count())
NOT_WELL: dict[str, Callable[[Path], ProbeFinding]] = {
    "system": lambda at: system.system(at, no_mlx),
    "sleep": lambda at: system.sleep_settings(at, lambda _: Result(0, " sleep 1"), "darwin"),
    "firewall": lambda at: system.firewall(at, lambda _: Result(0, "It is enabled"), "darwin"),
    "plist": lambda at: system.plist(at, lambda _: Result(0, "OK"), nobody),
    "service": lambda at: serving.service(at, Died()),
    "assertions": lambda at: system.assertions(
        at, lambda _: Result(0, ""), Awake(("/gone/caffeinate",)), "darwin"
    ),
    "zombies": lambda at: processes.zombies(at, no_such_process),
    "exits": lambda at: processes.exits(at, deaf),
    "starts": lambda at: starting.starts(
        at, lambda: None, ("/bin/sh", "-c", "kill -SEGV $$"), times=1
    ),
    "descriptors": lambda at: processes.descriptors(at, too_small, times=1),
    "ring": lambda at: processes.ring(at, (sys.executable, "-c", "import sys; sys.exit(7)"), 1),
    "flush": lambda at: disks.flush(at, full),
    "grain": lambda at: metal.grain(at, always_other),
    "adamw": lambda at: metal.adamw(at, always_other),
    "embedding": lambda at: metal.embedding(at, always_other, 2),
    "shortage": lambda at: metal.shortage(at, lambda: None, lambda: "a"),
    "demo": lambda at: whole.demo(at, (sys.executable, "-c", "print('{}')"), lambda: 0),
}


def test_every_probe_has_such_a_case() -> None:
    assert NOT_WELL.keys() == {probe.name for probe in PROBES}


@pytest.mark.parametrize("name", NOT_WELL)
def test_what_is_not_well_is_said_with_the_cure(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_NOTICE_SECONDS", 0.1)
    found = NOT_WELL[name](tmp_path)
    assert found.verdict in ("warn", "fail") and found.value and found.cure
