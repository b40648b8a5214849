"""elasticctl doctor of a daemon that hangs, or ended without being stopped."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.cli import health
from elasticd.cli.daemons import LOG_FILE
from elasticd.cli.daemons import name as name_process
from elasticd.cli.health import _start
from elasticd.client.client import Client
from elasticd.client.connection import ANSWER_SECONDS
from elasticd.client.restarting import await_status
from elasticd.errors import DiskError
from elasticd.settings.places import DAEMON_FILE, LOCAL_LOCK_NAME
from elasticd.shell.storage import diskend
from elasticd.shell.storage.health import examine
from tests.nobody import NOBODY
from tests.unit.cli.test_health import Ctl, examined, lived


def test_the_doctor_says_that_a_daemon_hangs(
    ctl: Ctl, home: Path, fake_program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections all the same, and runs."""
    node = home / "node-0"
    lived(node)
    (home / LOCAL_LOCK_NAME).touch()
    with subprocess.Popen([*fake_program, "run", "--home", str(node)]) as process:
        try:
            await_status(node, 20.0)
            assert examined(ctl, node) == (0, [])
            process.send_signal(signal.SIGSTOP)
            monkeypatch.setattr(health, "Client", partial(Client, answer_seconds=0.1))
            code, (found,) = examined(ctl, node)
        finally:
            process.kill()
    assert code == 1
    assert f"(process {process.pid}) is there, but does not answer: somebody has" in found["cause"]
    assert f"'kill -CONT {process.pid}'" in found["cure"] and str(node / LOG_FILE) in found["cure"]
    again = f"'kill -9 {process.pid}', then 'elasticctl local up --home {home}'"
    assert found["cure"].endswith(again) and "service" not in found["cure"]


def test_daemons_are_asked_side_by_side(
    ctl: Ctl, home: Path, daemon: Callable[..., Any], status: dict[str, Any]
) -> None:
    """Each answers once all are asked."""
    all_asked = threading.Barrier(3)

    def answer(_: dict[str, Any]) -> list[dict[str, Any]]:
        all_asked.wait(ANSWER_SECONDS / 2)
        return [{**status, "loop": {"failures": 1, "last_failure": "x"}}]

    for number in range(3):
        node = home / f"node-{number}"
        lived(node)
        daemon(node, {"status": answer})
        name_process(node / DAEMON_FILE, psutil.Process())
    _, out, _ = ctl("doctor", "--json", "--home", home)
    found = {Path(each["home"]).name: each["findings"] for each in json.loads(out)["homes"]}
    assert list(found) == ["node-0", "node-1", "node-2"]
    assert all("failed inside once" in each[0]["cause"] for each in found.values())


def test_the_doctor_says_that_nobody_listens_any_more(ctl: Ctl, home: Path) -> None:
    """Somebody has removed its socket, say."""
    lived(home)
    with subprocess.Popen(["sleep", "60"]) as process:
        name_process(home / DAEMON_FILE, psutil.Process(process.pid))
        code, (found,) = examined(ctl, home)
        process.kill()
    assert code == 1 and f"(process {process.pid}) is there, but listens no more" in found["cause"]
    assert f"'elasticctl service restart --home {home}'" in found["cure"]
    assert "CONT" not in found["cure"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another account's process")
def test_no_process_of_another_account_is_to_be_killed(ctl: Ctl, home: Path) -> None:
    """Whoever owns the home can write there what he likes."""
    lived(home)
    with subprocess.Popen(["sleep", "60"], user=NOBODY) as process:
        name_process(home / DAEMON_FILE, psutil.Process(process.pid))
        code, (found,) = examined(ctl, home)
        process.kill()
    assert code == 1 and found["path"] == str(home / DAEMON_FILE)
    assert f"a process of another account ({process.pid})" in found["cause"]
    assert "kill" not in found["cure"]


@pytest.mark.parametrize("local", [False, True])
def test_the_doctor_says_that_a_daemon_was_not_stopped(ctl: Ctl, home: Path, local: bool) -> None:
    """One that was takes its file along."""
    node = home / "node-0"
    lived(node)
    if local:
        (home / LOCAL_LOCK_NAME).touch()
    diskend.begin(node)
    with subprocess.Popen(["sleep", "60"]) as process:
        name_process(node / DAEMON_FILE, psutil.Process(process.pid))
        process.kill()
    code, (found,) = examined(ctl, node)
    assert (code, found["path"], found["wrong"]) == (1, str(node / DAEMON_FILE), True)
    assert f"no daemon runs here. The last one (process {process.pid}) was" in found["cause"]
    start = f"local up --home {home}" if local else f"service start --home {node}"
    assert f"'elasticctl {start}'" in found["cure"] and str(node / LOG_FILE) in found["cure"]
    assert (f"'elasticctl service status --home {node}'" in found["cure"]) is not local
    (node / DAEMON_FILE).write_bytes(b"")
    code, (found,) = examined(ctl, node)
    assert code == 1 and "its file names no process" in found["cause"]
    (node / "archives" / f"{'0' * 64}.tar").write_bytes(b"rotten")
    _, (_, found) = examined(ctl, node)
    assert found["cure"].startswith("See to what is said above")
    (node / "archives" / f"{'0' * 64}.tar").unlink()
    diskend.note(node, FULL, 1.5e9)
    _, (found,) = examined(ctl, node)
    assert "its disk refused" in found["cause"], "one thing is said once"
    diskend.begin(node)
    (node / DAEMON_FILE).unlink()
    assert examined(ctl, node) == (0, [])


def test_the_doctor_misses_no_daemon_in_a_copy_of_a_home(
    ctl: Ctl, home: Path, tmp_path: Path
) -> None:
    lived(home)
    name_process(home / DAEMON_FILE, psutil.Process())
    copy = tmp_path / "copy"
    shutil.copytree(home, copy)
    assert examined(ctl, copy) == (0, [])


FULL = OSError(errno.ENOSPC, "No space left on device", "/disk/work/a-1/x")


@pytest.mark.parametrize("error", [FULL, DiskError("/disk/journal: No space left on device")])
def test_the_doctor_says_that_a_daemon_ended_of_its_full_disk(
    ctl: Ctl, home: Path, error: Exception
) -> None:
    node = home / "node-0"
    lived(node)
    (home / LOCAL_LOCK_NAME).touch()
    for folder, start in (
        (node, f"elasticctl local up --home {home}"),
        (home, f"elasticctl service start --home {home}"),
    ):
        diskend.begin(folder)
        size = (folder / diskend.FILE_NAME).stat().st_size
        diskend.note(folder, error, 1.5e9)
        assert (folder / diskend.FILE_NAME).stat().st_size == size, "it needs no room"
        (finding,) = examine(folder, running=False, start=_start(folder))
        assert finding.wrong and finding.path == folder
        assert "it ended at 2017-07-1" in finding.cause
        path = getattr(error, "filename", None) or "/disk/journal"
        assert f"its disk refused: {path}: No space left on device" in finding.cause
        assert "It can be written again" in finding.cause
        assert finding.cure == f"Start the daemon again: '{start}'"
        assert examine(folder, running=True, start=start) == []
    code, (told,) = examined(ctl, node)
    assert code == 1 and "No space left on device" in told["cause"]
    diskend.begin(node)
    assert examined(ctl, node) == (0, [])


def test_only_an_end_that_was_the_disks_is_noted(home: Path) -> None:
    home.mkdir(exist_ok=True)
    diskend.note(home, FULL, 1.0)
    assert diskend.read(home) is None, "no daemon took the room for it"
    diskend.begin(home)
    diskend.note(home, ValueError("a bug"), 1.0)
    assert diskend.read(home) is None
    diskend.note(home, OSError(errno.EIO, "\udcff" * 9999), 1.0)
    found = diskend.read(home)
    assert found is not None and len(found.error) == 500
