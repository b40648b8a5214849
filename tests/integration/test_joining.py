"""Machines become members of a cluster of real daemons by a token, while it trains."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from elasticd.cli.daemons import start_daemon
from elasticd.client import restarting
from elasticd.client.client import Client
from elasticd.client.processes import find_daemon
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.settings.places import SOCKET_NAME
from elasticd.shell.storage import papers
from tests.fakessh import FakeSsh
from tests.integration.alone import copy_kernels
from tests.integration.cluster import ELASTICCTL, WAIT_SECONDS, Cluster
from tests.integration.test_digest import check
from tests.ports import free_address

pytestmark = pytest.mark.process

SLOW = ["--pace-seconds", "0.25"]


class Founded(Cluster):
    """One node that lets others in; ``size`` grows with those that join."""

    def on(self, node: str, *words: str) -> subprocess.CompletedProcess[str]:
        """``elasticctl`` with the home of a node."""
        return subprocess.run(
            [ELASTICCTL, "--home", self.home / node, *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )

    def token(self, *options: str) -> str:
        made = self.on("node-0", "cluster", "token", *options)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def join(self, node: str, token: str) -> subprocess.CompletedProcess[str]:
        return self.on(
            node, "cluster", "join", token, "--node-id", node, "--listen", free_address()
        )

    def start(self, node: str) -> None:
        self.size += 1
        self.restart_daemon(node)

    def whole(self) -> bool:
        return sorted(self.view()["members"]) == self.nodes


@pytest.fixture
def founded(tmp_path: Path, kernels: Path) -> Iterator[Founded]:
    made = Founded(tmp_path, 1, kernels)
    for node in ("node-1", "node-2"):
        copy_kernels(kernels, made.home / node)
        (made.home / node).rename(tmp_path / node)
    with made as cluster:
        for node in ("node-1", "node-2"):
            (tmp_path / node).rename(cluster.home / node)
        yield cluster


@pytest.mark.deep
def test_two_join_at_once_while_a_job_trains(
    founded: Founded, undisturbed: Callable[[str], str]
) -> None:
    expected = undisturbed("high.py")
    job = founded.submit("high.py", recovery__spare="none", job__args=SLOW)
    founded.wait_step(job, 2)
    token = founded.token("--uses", "2")
    with ThreadPoolExecutor() as both:
        joined = list(both.map(lambda node: founded.join(node, token), ("node-1", "node-2")))
    assert [done.returncode for done in joined] == [0, 0], joined
    for node in ("node-1", "node-2"):
        founded.start(node)
    founded.wait_for("a view of three", founded.whole)
    founded.wait_for("three ranks", lambda: len(founded.status(job)["ranks"]) == 3)
    check(founded, job, "high.py", expected)


@pytest.fixture
def alone(kernels: Path, tmp_path: Path) -> Iterator[Path]:
    """The home of a daemon that runs in a cluster of its own."""
    home = tmp_path / "alone"
    home.mkdir(mode=0o700)
    copy_kernels(kernels, home)
    (home / "elasticd.toml").write_text(f"node_id = 'alone'\nlisten = {free_address()!r}\n")
    daemon = start_daemon(home)
    try:
        restarting.await_status(home, WAIT_SECONDS)
        yield home
        assert daemon.poll() is None, (home / "daemon.log").read_text()
    finally:
        daemon.terminate()
        daemon.wait(WAIT_SECONDS)


def test_a_daemon_that_answers_is_found(tmp_path: Path) -> None:
    """Its file is there before its socket: a command would take it for one that doesn't run."""
    home = tmp_path / "alone"
    home.mkdir(mode=0o700)
    (home / "elasticd.toml").write_text(f"node_id = 'alone'\nlisten = {free_address()!r}\n")
    daemon = start_daemon(home)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (home / SOCKET_NAME).exists():
            assert daemon.poll() is None and time.monotonic() < deadline
        assert find_daemon(home) is not None
    finally:
        daemon.terminate()
        daemon.wait(WAIT_SECONDS)


@pytest.mark.long
def test_a_daemon_that_runs_alone_joins_by_one_command(
    founded: Founded, undisturbed: Callable[[str], str], alone: Path
) -> None:
    """It begins anew as a member, in the same process, and trains at once."""
    expected = undisturbed("high.py")
    job = founded.submit("high.py", recovery__spare="none", job__args=SLOW)
    founded.wait_step(job, 2)
    own, process = papers.read(alone).cluster_id, find_daemon(alone)
    command = [str(ELASTICCTL), "--home", str(alone), "cluster", "join", founded.token()]
    taken = subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    assert taken.returncode == 0 and "its daemon runs, as a member" in taken.stdout, taken
    assert papers.read(alone).cluster_id != own and find_daemon(alone) == process

    def trains() -> bool:
        return {rank["node"] for rank in founded.status(job)["ranks"]} == {"alone", "node-0"}

    founded.wait_for("a rank on the new node", trains)
    check(founded, job, "high.py", expected)


def test_a_daemon_begins_anew_while_a_job_trains(
    founded: Founded, undisturbed: Callable[[str], str]
) -> None:
    """With the settings that are there then. Its rank was the only one, so the job goes on from its
    newest checkpoint."""
    expected = undisturbed("high.py")
    job = founded.submit("high.py", recovery__spare="none", job__args=SLOW)
    founded.wait_step(job, 2)
    listen = free_address()
    said = founded.on("node-0", "configure", "--listen", listen)
    assert said.returncode == 0 and "service restart" in said.stderr, said
    done = founded.on("node-0", "service", "restart")
    assert (done.returncode, done.stdout) == (0, "the daemon has begun anew\n"), done
    (node,) = founded.client.request(ShowStatus())["nodes"]
    assert node["address"] == listen
    founded.hurry(job)
    assert founded.wait_end(job)["digest"] == expected


def test_a_daemon_whose_settings_are_wrong_is_not_ended_by_who_has_it_begin_anew(
    alone: Path,
) -> None:
    process, file = find_daemon(alone), alone / "elasticd.toml"
    right = file.read_text()
    file.write_text(f"{right}lissen = 1\n")
    command = [str(ELASTICCTL), "--home", str(alone), "service", "restart"]

    def restarted() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
        )

    said = restarted()
    assert said.returncode == 1 and f"{file}:3: lissen" in said.stderr, said
    assert Client(alone).request(ShowStatus())["nodes"] and find_daemon(alone) == process
    file.write_text(right)
    assert restarted().returncode == 0


@pytest.mark.deep
def test_a_token_is_spent_by_one_and_a_join_is_repeated_after_a_fault(founded: Founded) -> None:
    token = founded.token()
    founded.kill_daemon("node-0")
    failed = founded.join("node-1", token)
    assert failed.returncode == 1 and "could not join" in failed.stderr
    founded.restart_daemon("node-0")
    assert founded.join("node-1", token).returncode == 0
    # Its answer may have been lost: the papers were never written.
    shutil.rmtree(papers.folder_of(founded.home / "node-1"))
    taken = founded.join("node-2", token)
    assert taken.returncode == 1 and "the join token has been used" in taken.stderr
    again = founded.join("node-1", founded.token())
    assert again.returncode == 1 and "node-1" in again.stderr, "another key under a taken id"
    assert founded.join("node-2", founded.token()).returncode == 0
    founded.size += 1
    founded.restart_daemon("node-2")
    founded.size -= 1
    founded.wait_for("node-2", lambda: len(founded.view()["members"]) == 2)


@pytest.mark.deep
def test_who_joins_under_the_name_of_one_that_was_put_out_is_another(founded: Founded) -> None:
    """What was said of the machine before it, as that it is drained, is not true of it."""

    def state() -> str:
        told = founded.client.request(ShowStatus(ended=0))["nodes"]
        return next((str(each["state"]) for each in told if each["id"] == "node-1"), "")

    assert founded.join("node-1", founded.token()).returncode == 0
    founded.start("node-1")
    founded.wait_for("a view of both", founded.whole)
    drained = founded.on("node-0", "drain", "node-1")
    assert drained.returncode == 0, drained.stderr
    assert state() == "draining"
    founded.kill_daemon("node-1")
    assert founded.on("node-0", "cluster", "revoke", "node-1").returncode == 0
    shutil.rmtree(founded.home / "node-1")
    joined = founded.join("node-1", founded.token())
    assert joined.returncode == 0, joined.stderr
    founded.restart_daemon("node-1")
    founded.wait_for("it takes part", lambda: founded.whole() and state() == "alive")
    assert "put out" not in founded.on("node-0", "cluster", "list").stdout


@pytest.mark.long
def test_all_hosts_of_a_file_join_over_ssh(
    founded: Founded,
    undisturbed: Callable[[str], str],
    kernels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two daemons that run alone there train at once, and are left alone when it is said again."""
    expected = undisturbed("high.py")
    ssh = FakeSsh.made(tmp_path / "hosts")
    hosts = ("mac-2", "mac-3")
    homes = [ssh.home(host) for host in hosts]
    for host, home in zip(hosts, homes, strict=True):
        home.mkdir(parents=True, mode=0o700)
        copy_kernels(kernels, home)
        (home / "elasticd.toml").write_text(f"node_id = {host!r}\nlisten = {free_address()!r}\n")
    file = tmp_path / "hosts.txt"
    file.write_text("localhost\nmac-2\nmac-3\n")
    monkeypatch.setenv("PATH", ssh.path)
    job = founded.submit("high.py", recovery__spare="none", job__args=SLOW)
    daemons = [start_daemon(home) for home in homes]
    try:
        for home in homes:
            restarting.await_status(home, WAIT_SECONDS)
        done = founded.on("node-0", "cluster", "invite", str(file), "--run")
        assert done.returncode == 0, done
        assert done.stdout.count("joined; it listens on") == done.stdout.count("daemon runs") == 2

        def train() -> bool:
            return {rank["node"] for rank in founded.status(job)["ranks"]} == {"node-0", *hosts}

        founded.wait_for("ranks on both hosts", train)
        again = founded.on("node-0", "cluster", "invite", str(file), "--run")
        assert again.returncode == 0 and "nobody is left to be invited" in again.stdout, again
        assert len(ssh.said) == 2
        check(founded, job, "high.py", expected)
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(WAIT_SECONDS)
