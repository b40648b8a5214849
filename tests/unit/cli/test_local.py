"""local up and down, with programs that are daemons only in what the command line sees."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.cli import local
from elasticd.cli.daemons import name
from elasticd.client.connection import probe
from elasticd.client.processes import find_daemon
from elasticd.errors import OperationError, UsageError
from elasticd.settings import config
from elasticd.settings.localhomes import node_homes
from elasticd.shell.children.ports import claim_port
from elasticd.shell.storage import papers
from tests.integration.otheraccount import need_root

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster(home: Path) -> Iterator[Path]:
    yield home
    local.down(home, 0.5)


def configs(home: Path) -> list[config.NodeConfig]:
    return [config.load(folder) for folder in node_homes(home)]


def configure(home: Path, number: int, **changes: Any) -> None:
    folder = home / f"node-{number}"
    changed = replace(config.load(folder), **changes)
    (folder / "elasticd.toml").write_text(config.dump(changed))


def pids(nodes: list[dict[str, Any]]) -> dict[str, int]:
    return {node["id"]: node["pid"] for node in nodes}


@pytest.mark.process
def test_up_writes_homes_and_starts_daemons(cluster: Path, fake_program: list[str]) -> None:
    nodes = local.up(cluster, 3, fake_program)
    assert [node["id"] for node in nodes] == ["node-0", "node-1", "node-2"]
    addresses = [node["address"] for node in nodes]
    assert len(set(addresses)) == 3
    for number, settings in enumerate(configs(cluster)):
        assert settings.node_id == f"node-{number}"
        assert settings.cluster == "local"
        assert settings.listen == addresses[number]
        assert settings.peers == tuple(a for a in addresses if a != settings.listen)
    members = [papers.read(folder) for folder in node_homes(cluster)]
    assert [member.node for member in members] == ["node-0", "node-1", "node-2"]
    assert len({member.cluster_id for member in members}) == 1
    assert len({member.secret for member in members}) == 1
    for node in nodes:
        process = psutil.Process(node["pid"])
        assert os.getsid(process.pid) == process.pid
        assert process.cwd() == node["home"]


@pytest.mark.process
def test_a_damaged_node_does_not_take_the_others_down(
    cluster: Path, fake_program: list[str]
) -> None:
    local.up(cluster, 3, fake_program)
    local.down(cluster, 0.5)
    configure(cluster, 1, failure_domain="damaged")
    with pytest.raises(OperationError, match=r"node-1 is damaged .*\n\(the other 2 run"):
        local.up(cluster, None, fake_program)
    assert local.down(cluster, 0.5) == ["node-0", "node-2"]


@pytest.mark.process
def test_daemons_hold_none_of_the_callers_descriptors(
    cluster: Path, fake_program: list[str]
) -> None:
    inherited = os.dup(0)
    os.set_inheritable(inherited, True)
    try:
        local.up(cluster, 1, fake_program)
    finally:
        os.close(inherited)
    status = probe(cluster / "node-0" / "control.sock")
    assert str(inherited) not in status["descriptors"] or inherited < 3
    assert {"0", "1", "2"} <= set(status["descriptors"])


@pytest.mark.process
def test_up_again_leaves_running_nodes_alone(cluster: Path, fake_program: list[str]) -> None:
    before = pids(local.up(cluster, 3, fake_program))
    assert pids(local.up(cluster, None, fake_program)) == before
    settings = configs(cluster)
    victim = psutil.Process(before["node-1"])
    victim.kill()
    psutil.wait_procs([victim], timeout=10)
    after = pids(local.up(cluster, 3, fake_program))
    assert configs(cluster) == settings
    assert {name for name in after if after[name] != before[name]} == {"node-1"}


@pytest.mark.process
def test_a_daemon_that_ends_while_up_looks_is_started_again(
    cluster: Path, fake_program: list[str]
) -> None:
    before = pids(local.up(cluster, 2, fake_program))
    os.kill(before["node-1"], signal.SIGSTOP)
    killer = threading.Timer(0.3, os.kill, (before["node-1"], signal.SIGKILL))
    killer.start()
    after = pids(local.up(cluster, None, fake_program))
    killer.join()
    assert after["node-0"] == before["node-0"]
    assert after["node-1"] != before["node-1"]


@pytest.mark.process
def test_a_cluster_that_was_down_keeps_what_it_can(cluster: Path, fake_program: list[str]) -> None:
    local.up(cluster, 2, fake_program)
    local.down(cluster)
    configure(cluster, 0, failure_domain="desk")
    first, second = configs(cluster)
    before = [papers.read(folder) for folder in node_homes(cluster)]
    with socket.socket() as taken:
        taken.bind(config.split_address(first.listen))
        taken.listen()
        local.up(cluster, None, fake_program)
    moved, stayed = configs(cluster)
    assert moved.listen != first.listen
    assert moved.failure_domain == "desk"
    assert stayed == replace(second, peers=(moved.listen,))
    assert [papers.read(folder) for folder in node_homes(cluster)] == before


@pytest.mark.process
def test_homes_of_before_and_damaged_ones_are_given_certificates(
    cluster: Path, fake_program: list[str]
) -> None:
    local.up(cluster, 3, fake_program)
    local.down(cluster)
    first, second, third = node_homes(cluster)
    kept = papers.read(third)
    shutil.rmtree(papers.folder_of(second))
    local.up(cluster, None, fake_program)
    local.down(cluster)
    assert papers.read(third) == kept and papers.read(second).cluster_id == kept.cluster_id
    (papers.folder_of(first) / papers.KEY).write_bytes(b"torn")
    local.up(cluster, None, fake_program)
    members = [papers.read(folder) for folder in node_homes(cluster)]
    assert len({member.cluster_id for member in members}) == 1
    assert members[0].cluster_id != kept.cluster_id


@pytest.mark.process
def test_nodes_are_added_only_while_all_are_down(cluster: Path, fake_program: list[str]) -> None:
    local.up(cluster, 1, fake_program)
    with pytest.raises(UsageError, match="nodes can be added after 'elasticctl local down'"):
        local.up(cluster, 2, fake_program)
    local.down(cluster)
    assert len(local.up(cluster, 2, fake_program)) == 2
    with pytest.raises(UsageError, match="has nodes up to node-1, more than 1"):
        local.up(cluster, 1, fake_program)


@pytest.mark.process
def test_the_others_are_started_where_one_was_removed(
    cluster: Path, fake_program: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    local.up(cluster, 3, fake_program)
    local.down(cluster, 0.5)
    shutil.rmtree(cluster / "node-1")
    with pytest.raises(UsageError, match="has nodes up to node-2, more than 2"):
        local.up(cluster, 2, fake_program)
    again = pids(local.up(cluster, None, fake_program))
    assert sorted(again) == ["node-0", "node-1", "node-2"]
    assert "node-1 is gone; node-1 begins anew" in capfd.readouterr().err
    psutil.Process(again["node-1"]).kill()
    shutil.rmtree(cluster / "node-1")
    with pytest.raises(UsageError, match="has 2 nodes, of which 2 run"):
        local.up(cluster, 3, fake_program)


def test_a_folder_that_is_called_so_by_chance_makes_no_thousand_nodes(home: Path) -> None:
    (home / "node-999").mkdir(parents=True)
    with pytest.raises(UsageError, match="has node-999, and there are 64 nodes at most"):
        local.up(home, None)


@pytest.mark.process
def test_a_daemon_that_fails_is_shown_and_the_others_are_ended(
    cluster: Path, fake_program: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    local.up(cluster, 2, fake_program)
    local.down(cluster)
    configure(cluster, 1, failure_domain="fails")
    with pytest.raises(OperationError, match="the daemon of node-1 ended with status 7"):
        local.up(cluster, 2, fake_program)
    assert "  node-1: the fake daemon fails, as told\n" in capfd.readouterr().err
    assert local.down(cluster) == []


@pytest.mark.process
@pytest.mark.parametrize("how", ["stubborn", "stopped", "killed"])
def test_down_ends_whatever_is_left(
    how: str, cluster: Path, fake_program: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    local.up(cluster, 1, fake_program)
    local.down(cluster)
    if how == "stubborn":
        configure(cluster, 0, failure_domain="stubborn")
    daemon = psutil.Process(local.up(cluster, 1, fake_program)[0]["pid"])
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )
    entry = {"pid": child.pid, "create_time": psutil.Process(child.pid).create_time(), "role": "t"}
    (cluster / "node-0" / "children.json").write_text(json.dumps([entry]))
    if how == "stopped":
        daemon.suspend()
        monkeypatch.setattr(local, "AGREE_SECONDS", 0.1)  # it never does
    if how == "killed":
        daemon.kill()
        psutil.wait_procs([daemon], timeout=10)
    assert local.down(cluster, 0.5) == ([] if how == "killed" else ["node-0"])
    with child:
        child.wait(10)
    # Nobody but this process reaps the daemon that it started: ended is ended, a zombie too.
    assert psutil.wait_procs([daemon], timeout=10) == ([daemon], [])
    assert not (cluster / "node-0" / "control.sock").exists()


def test_a_port_that_a_ring_will_bind_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the claim shows that it is spoken for."""
    claimed = claim_port("127.0.0.1")
    monkeypatch.setattr(local, "PORTS", range(claimed.port, claimed.port + 1))
    with contextlib.closing(claimed), pytest.raises(OperationError, match="no free port from"):
        local._addresses([None])
    assert local._addresses([None]) == [f"127.0.0.1:{claimed.port}"]


_SILENT = """
import os, signal, sys
with open({fifo!r}, "w") as started:
    started.write(f"{{os.getpid()}}\\n")
signal.pause()
"""
_UP = """
import signal, sys
from pathlib import Path
from elasticd.cli import local
# Whoever runs the tests may ignore them, as nohup does.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
try:
    local.up(Path({home!r}), 2, [sys.executable, "-c", {silent!r}])
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT, signal.SIGINT]],
    ids=["ctrl-c", "term", "hang-up", "twice"],
)
def test_up_that_is_interrupted_leaves_nothing(
    numbers: list[signal.Signals], home: Path, tmp_path: Path
) -> None:
    fifo = tmp_path / "started"
    os.mkfifo(fifo)
    silent = _SILENT.format(fifo=str(fifo))
    with (
        open(os.open(fifo, os.O_RDWR), encoding="ascii") as started,
        subprocess.Popen(
            [sys.executable, "-c", _UP.format(home=str(home), silent=silent)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as up,
    ):
        daemons = [psutil.Process(int(started.readline())) for _ in range(2)]
        for number in numbers:
            up.send_signal(number)
        assert up.wait(60) == 130
    for daemon in daemons:
        # Where nobody reaps orphans they stay as zombies.
        assert not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE
    assert not list(home.glob("node-*/daemon.json"))


def test_a_pid_that_belongs_to_another_process_is_left_alone(home: Path) -> None:
    node = home / "node-0"
    node.mkdir(parents=True)
    me = psutil.Process()
    record = {"pid": me.pid, "create_time": me.create_time() - 100, "address": "127.0.0.1:1"}
    (node / "daemon.json").write_text(json.dumps(record))
    (node / "children.json").write_text(json.dumps([{**record, "role": "trainer"}]))
    assert local.down(home) == []


def test_a_daemon_is_found_after_the_clock_was_set(home: Path) -> None:
    home.mkdir(exist_ok=True)
    me = psutil.Process()
    name(home / "daemon.json", me)
    record = json.loads((home / "daemon.json").read_bytes())
    record["create_time"] -= 2.5
    (home / "daemon.json").write_text(json.dumps(record))
    assert find_daemon(home) == me
    record["born"] += "0"
    (home / "daemon.json").write_text(json.dumps(record))
    assert find_daemon(home) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": "x"}', '{"pid": 1e400}', "\xff"])
def test_a_damaged_daemon_file_names_nobody(content: str, home: Path) -> None:
    node = home / "node-0"
    node.mkdir(parents=True)
    (node / "daemon.json").write_text(content, encoding="latin-1")
    assert local.down(home) == []


def test_down_where_nothing_runs(ctl: Ctl, home: Path) -> None:
    code, out, _ = ctl("local", "down", "--home", home)
    assert (code, out) == (0, f"nothing runs in {home}\n")
    assert not home.exists()
    assert json.loads(ctl("--json", "local", "down", "--home", home)[1])["ended"] == []


def test_a_damaged_configuration_is_named(ctl: Ctl, home: Path) -> None:
    (home / "node-0").mkdir(parents=True)
    (home / "node-0" / "elasticd.toml").write_text("listn = 'x'\n")
    code, _, err = ctl("local", "up", "--home", home)
    assert code == 2
    assert err == (
        f'elasticctl: {home}/node-0/elasticd.toml:1: listn: unknown key; did you mean "listen"?\n'
    )


def test_a_home_that_cannot_be_made(ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = ctl("local", "up", "--home", tmp_path / "file" / "home")
    assert code == 1
    assert err.startswith(f"elasticctl: {tmp_path}/file")


def test_only_one_local_command_at_a_time(home: Path) -> None:
    (home / "node-0").mkdir(parents=True)
    with local._locked(home), pytest.raises(OperationError, match="another 'elasticctl local'"):
        local.down(home)


@pytest.mark.process
def test_the_partition_setting_is_kept_and_not_changed_under_way(
    cluster: Path, fake_program: list[str]
) -> None:
    local.up(cluster, 2, fake_program, partition="strict")
    assert [settings.partition for settings in configs(cluster)] == ["strict", "strict"]
    with pytest.raises(UsageError, match="runs with --partition strict"):
        local.up(cluster, 2, fake_program, partition="available")
    local.down(cluster)
    local.up(cluster, 2, fake_program)
    assert [settings.partition for settings in configs(cluster)] == ["strict", "strict"]


def test_a_partition_setting_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must be available or strict, not maybe"):
        local.up(tmp_path, 1, partition="maybe")


def test_down_says_that_a_daemon_of_no_local_cluster_runs(ctl: Ctl, home: Path) -> None:
    home.mkdir(exist_ok=True)
    me = psutil.Process()
    name(home / "daemon.json", me)
    code, out, err = ctl("local", "down", "--home", home)
    assert (code, out) == (1, "")
    assert f"process {me.pid}" in err and "service stop" in err


@pytest.mark.parametrize("laid", ["home", "node", "link", "open"])
@pytest.mark.parametrize("command", ["local up -n 1", "local down", "reset --yes"])
def test_a_home_that_another_account_has_laid_is_refused(
    command: str, laid: str, ctl: Ctl, home: Path, tmp_path: Path
) -> None:
    """A link in it would have us write, end and remove anywhere."""
    other = tmp_path / "other"
    (other / "work").mkdir(parents=True)
    home.mkdir(exist_ok=True)
    if laid == "link":
        (home / "node-0").symlink_to(other)
    else:
        (home / "node-0").mkdir()
    if laid == "open":
        home.chmod(0o777)
    else:
        need_root()
        os.chown(home / "node-0" if laid == "node" else home, 12345, -1)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = ctl(*command.split(), "--home", home)
    assert (code, out) == (2, "")
    assert ("chmod 700" if laid == "open" else "belongs to another account") in err
    assert sorted(tmp_path.rglob("*")) == before
