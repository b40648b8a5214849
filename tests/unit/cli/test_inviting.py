"""elasticctl cluster invite: what it prints, and hosts that answer over a false ssh."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.settings import config
from elasticd.shell.storage import issuing, papers
from elasticd.trust import tokens
from tests.fakessh import FakeSsh
from tests.unit.shell.control.welcoming import NODE, Host

Ctl = Callable[..., tuple[int, str, str]]
SECONDS = 60


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSsh:
    made = FakeSsh.made(tmp_path / "hosts")
    monkeypatch.setenv("PATH", made.path)
    return made


@pytest.fixture
def first(host: Host, daemon: Callable[..., Any]) -> Path:
    """The home of a node that lets others in, whose daemon answers."""
    (host.home / "elasticd.toml").write_text(f"listen = '{host.address}'\n")
    nodes = [
        {"id": NODE, "address": host.address, "state": "alive"},
        {"id": "alive", "address": "10.0.0.5:7070", "state": "suspect"},
        {"id": "dead", "address": "10.0.0.6:7070", "state": "dead"},
    ]
    daemon(host.home, {"status": {"cluster": "local", "nodes": nodes, "jobs": []}})
    return host.home


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "hosts.txt"


def test_it_prints_what_to_run(ctl: Ctl, first: Path, file: Path) -> None:
    file.write_text("localhost\nme@mac-2\nalive\ndead\nmac-3:2\n")
    code, out, err = ctl("cluster", "invite", file, "--home", first)
    lines = out.splitlines()
    token = lines[1].split()[3]
    assert (code, tokens.read(token).pin) == (0, papers.read(first).cluster_id)
    own = "--node-id mac-3-{0} --listen :707{1} --home ~/elasticd-mac-3-{0}"
    assert lines == [
        "# on me@mac-2", f"elasticctl cluster join {token}",
        "# on dead", f"elasticctl cluster join {token}",
        "# on mac-3 (mac-3-1)", f"elasticctl cluster join {token} {own.format(1, 0)}",
        "# on mac-3 (mac-3-2)", f"elasticctl cluster join {token} {own.format(2, 1)}",
    ]  # fmt: skip
    assert "localhost: is this node\nalive: alive is a member already\n" in err
    assert "4 nodes can join with that token" in err and "one elasticd of a machine" in err
    (kept,) = papers.read_tokens(first)
    assert kept.uses == 4 and 0 < kept.until_unix - time.time() <= 3600


def test_what_it_prints_for_programs(ctl: Ctl, first: Path, file: Path) -> None:
    file.write_text('[{"ssh": "localhost"}, {"ssh": "b", "ips": ["10.0.0.7"], "rdma": ["x"]}]')
    code, out, err = ctl("cluster", "invite", file, "--home", first, "--json")
    told = json.loads(out)
    command = f"elasticctl cluster join {told['token']} --listen 10.0.0.7:7070"
    assert (code, err, told["uses"]) == (0, "", 1)
    assert told["nodes"] == [
        {"host": "localhost", "node": NODE, "state": "this"},
        {"host": "b", "node": None, "state": "invited", "command": command},
    ]


def test_what_is_not_used_is_said(ctl: Ctl, first: Path, file: Path) -> None:
    file.write_text('{"backend": "jaccl", "hosts": [{"ssh": "b", "rdma": [null, "rdma_en2"]}]}')
    _, _, err = ctl("cluster", "invite", file, "--home", first)
    assert err.startswith("'backend' is not used: say it in job.toml\n'rdma' is not used: ")


def test_without_a_daemon_commands_can_be_printed_and_not_run(
    ctl: Ctl, host: Host, file: Path, ssh: FakeSsh
) -> None:
    file.write_text("mac-2\n")
    code, out, err = ctl("cluster", "invite", file, "--home", host.home)
    assert code == 0 and "cluster join" in out and "does not run; start its daemon" in err
    code, _, err = ctl("cluster", "invite", file, "--home", host.home, "--run")
    assert code == 3 and ssh.said == [] and len(papers.read_tokens(host.home)) == 1


@pytest.mark.parametrize("options", [[], ["--run"], ["--json"]])
def test_nobody_is_left(ctl: Ctl, first: Path, file: Path, options: list[str]) -> None:
    file.write_text("localhost\nalive\n")
    code, out, _ = ctl("cluster", "invite", file, "--home", first, *options)
    assert code == 0 and papers.read_tokens(first) == ()
    assert "nobody is left to be invited" in out or len(json.loads(out)["nodes"]) == 2


def test_a_wrong_file_changes_nothing(ctl: Ctl, first: Path, file: Path, ssh: FakeSsh) -> None:
    for said, error in (("a\nb slots=x\n", ":2: slots: must be"), ("a:2\na.x:2", ":2: a node")):
        file.write_text(said)
        code, out, err = ctl("cluster", "invite", file, "--home", first, "--run")
        assert (code, out, err.count("\n")) == (2, "", 1) and f"{file}{error}" in err
    assert ssh.said == [] and papers.read_tokens(first) == ()


def test_who_makes_no_members_invites_nobody(ctl: Ctl, first: Path, file: Path) -> None:
    (papers.folder_of(first) / papers.AUTHORITY_KEY).unlink()
    file.write_text("mac-2\n")
    code, out, err = ctl("cluster", "invite", file, "--home", first)
    assert (code, out) == (1, "") and "makes no members" in err


def test_without_ssh_nothing_is_done(
    ctl: Ctl, first: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file.write_text("mac-2\n")
    code, _, err = ctl("cluster", "invite", file, "--home", first, "--run")
    assert (code, err) == (1, "elasticctl: ssh: there is no such program here\n")
    assert papers.read_tokens(first) == ()


def test_hosts_join_over_ssh(ctl: Ctl, first: Path, file: Path, ssh: FakeSsh) -> None:
    """One that fails stops no other, and nobody but ssh's other end sees the token."""
    file.write_text("localhost\nmac-2\nrefuses\nwrong\nlacks\nmac-3 slots=2\n")
    code, out, err = ctl("cluster", "invite", file, "--home", first, "--run")
    assert code == 1, err
    assert papers.read(ssh.home("mac-2")).node == "mac-2"
    for slot in (1, 2):
        home = ssh.folder / "mac-3" / f"elasticd-mac-3-{slot}"
        assert papers.read(home).node == f"mac-3-{slot}"
        assert config.load(home).listen == f"127.0.0.1:{7069 + slot}"
        assert f"start mac-3-{slot} on mac-3: 'elasticd run --home {home}'" in out
    assert set(issuing.read(first)) == {"mac-2", "mac-3-1", "mac-3-2"}
    assert "mac-2: mac-2 joined; it listens on 127.0.0.1:" in out
    assert "start the daemon of mac-2: 'elasticctl service install' there" in out
    for line in (
        "refuses: ssh: refuses: Permission denied (publickey).",
        "wrong: no elasticctl answers as it should, but: {\"node\": \"wrong\"}",
        "lacks: there is no 'elasticctl' there: say where it is with --elasticctl PATH",
        "elasticctl: 3 nodes have not joined: refuses, wrong, lacks; say the same command again",
    ):  # fmt: skip
        assert line in err
    assert [line.split()[0] for line in (out + err).splitlines() if " of 6  " in line] != []
    (kept,) = papers.read_tokens(first)
    assert kept.uses == 6 and len(kept.keys) == 3
    assert len(ssh.said) == 6 and not any(tokens.PREFIX in each for each in ssh.said)
    assert "mac-2 elasticctl cluster join - --json" in ssh.said
    assert tokens.PREFIX not in out + err


def test_it_can_be_said_again(ctl: Ctl, first: Path, file: Path, ssh: FakeSsh) -> None:
    file.write_text("mac-2\n")
    said = ("cluster", "invite", file, "--home", first, "--run", "--json")
    answers = [ctl(*said) for _ in range(2)]
    # The host's side logs into the same stdout here.
    nodes = [json.loads(out.splitlines()[-1])["nodes"] for _, out, _ in answers]
    states = [node["state"] for (node,) in nodes]
    assert [code for code, *_ in answers] == [0, 0] and states == ["joined", "member"]
    assert nodes[0][0] == {
        "host": "mac-2", "node": "mac-2", "state": "joined", "home": str(ssh.home("mac-2")),
        "listen": config.load(ssh.home("mac-2")).listen, "running": False,
    }  # fmt: skip


def test_failures_for_programs(ctl: Ctl, first: Path, file: Path, ssh: FakeSsh) -> None:
    file.write_text("refuses\nlocalhost\n")
    code, out, _ = ctl("cluster", "invite", file, "--home", first, "--run", "--json")
    told, error = map(json.loads, out.splitlines())
    assert (code, error["exit"]) == (1, 1)
    assert told["nodes"] == [
        {"host": "refuses", "node": None, "state": "failed",
         "error": "ssh: refuses: Permission denied (publickey)."},
        {"host": "localhost", "node": NODE, "state": "this"},
    ]  # fmt: skip


def _gone(pids: list[int]) -> bool:
    """Whether all have been killed; a busy machine takes a moment to end them."""
    until = time.monotonic() + SECONDS
    while any(map(_runs, pids)):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_host_that_hangs_has_its_time(ctl: Ctl, first: Path, file: Path, ssh: FakeSsh) -> None:
    file.write_text("\n".join(f"hangs-{n}" for n in range(9)))  # one has to wait for its turn
    code, _, err = ctl("cluster", "invite", file, "--home", first, "--run", "--seconds", 1)
    assert code == 1 and err.count("no answer in time") == 9
    assert _gone(ssh.hanging)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_running(
    first: Path, file: Path, ssh: FakeSsh, number: int
) -> None:
    file.write_text("hangs-1\nhangs-2\n")
    program = Path(sys.executable).with_name("elasticctl")
    command = [str(program), "cluster", "invite", str(file), "--home", str(first), "--run"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        until = time.monotonic() + SECONDS
        while len(ssh.hanging) < 4 and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and len(ssh.hanging) == 4
    assert "say the same command again" in err and "Traceback" not in err
    assert _gone(ssh.hanging)
