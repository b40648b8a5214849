"""elasticctl cluster: make one, print a token, join, list; without a daemon in the home."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from elasticd.cli import clusterhome
from elasticd.cli.daemons import name as name_process
from elasticd.client import restarting
from elasticd.client.joining import KEY_NAME
from elasticd.errors import OperationError, UsageError
from elasticd.settings import config
from elasticd.settings.config import NodeConfig
from elasticd.settings.places import DAEMON_FILE, LOCAL_LOCK_NAME
from elasticd.shell.network import ownaddresses
from elasticd.shell.network.binding import refuse_shared
from elasticd.shell.storage import founding, issuing, papers
from elasticd.trust import tokens
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.ports import free_ports
from tests.unit.shell.control.welcoming import CLUSTER, NODE, PEER, Host

Ctl = Callable[..., tuple[int, str, str]]
AT = "10.1.2.3:7070"


@pytest.fixture
def first(ctl: Ctl, home: Path) -> Path:
    assert ctl("cluster", "init", "--home", home, "--listen", AT, "--node-id", "mac-1")[0] == 0
    return home


def test_init_makes_the_first_member(ctl: Ctl, home: Path) -> None:
    code, out, err = ctl("cluster", "init", "--home", home, "--listen", AT, "--node-id", "mac-1")
    assert (code, err) == (0, "")
    member = papers.read(home)
    assert member.node == "mac-1" and founding.founder_of(home) is not None
    assert papers.is_private(home) and home.stat().st_mode & 0o777 == 0o700
    settings = config.load(home)
    assert (settings.node_id, settings.listen) == ("mac-1", AT)
    assert member.cluster_id[:12] in out and member.cluster_id not in out
    assert "elasticctl service install" in out and "elasticctl cluster token" in out
    assert str(home) in out  # the commands that it names are for this home


def test_init_for_programs(ctl: Ctl, home: Path) -> None:
    code, out, err = ctl("cluster", "init", "--home", home, "--listen", AT, "--json")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert told == {
        "cluster": papers.read(home).cluster_id,
        "node": config.load(home).node_id,
        "home": str(home),
        "listen": AT,
        "addresses": [AT],
        "running": False,
    }


def test_init_finds_this_machines_addresses(ctl: Ctl, home: Path) -> None:
    code, out, err = ctl("cluster", "init", "--home", home, "--json")
    if code == 0:
        told = json.loads(out)
        assert told["listen"] == config.load(home).listen == "0.0.0.0:7070"
        assert told["addresses"] == [f"{host}:7070" for host in ownaddresses.hosts()]
        assert not any(map(clusterhome.is_loopback, told["addresses"]))
        token = json.loads(ctl("cluster", "token", "--home", home, "--json")[1])
        assert token["addresses"] == told["addresses"][: tokens.MOST_ADDRESSES]
    else:  # a machine without any network
        assert (code, "--listen" in err) == (2, True)


def test_init_keeps_what_the_user_wrote(ctl: Ctl, home: Path) -> None:
    home.mkdir()
    file = home / "elasticd.toml"
    file.write_text('# mine\nlisten = "10.9.9.9:1234"  # the cable\n[keep]\ndays = 3\n')
    file.chmod(0o644)
    assert ctl("cluster", "init", "--home", home, "--node-id", "mac-1")[0] == 0
    assert file.read_text() == (
        '# mine\nlisten = "10.9.9.9:1234"  # the cable\nnode_id = "mac-1"\n\n[keep]\ndays = 3\n'
    )
    assert file.stat().st_mode & 0o777 == 0o644


def test_init_warns_where_only_this_machine_listens(ctl: Ctl, home: Path) -> None:
    code, _, err = ctl("cluster", "init", "--home", home, "--listen", "127.0.0.1:7070")
    assert (code, "from this machine only" in err) == (0, True)


def test_a_member_makes_no_other_cluster(ctl: Ctl, first: Path) -> None:
    before = papers.read(first)
    code, out, err = ctl("cluster", "init", "--home", first)
    assert (code, out) == (2, "")
    assert "is a member of a cluster already" in err and f"remove {first}/cluster" in err
    assert papers.read(first) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--listen", "here"], "--listen: must be HOST:PORT"),
        (["--listen", AT, "--node-id", "a b"], "--node-id: must be 1 to 63 letters"),
    ],
)
def test_init_refuses_what_is_wrong(ctl: Ctl, home: Path, options: list[str], said: str) -> None:
    code, _, err = ctl("cluster", "init", "--home", home, *options)
    assert (code, said in err) == (2, True)
    assert not home.exists()


def test_a_wrong_settings_file_is_not_touched(ctl: Ctl, home: Path, host: Host) -> None:
    home.mkdir()
    (home / "elasticd.toml").write_text("nod_id = 1\n")
    for command in (["init", "--listen", AT], ["join", host.token().text()]):
        code, _, err = ctl("cluster", *command, "--home", home)
        assert code == 2 and "elasticd.toml:1" in err and "nod_id" in err
    assert [each.name for each in home.iterdir()] == ["elasticd.toml"]


def test_a_local_clusters_home_is_no_nodes(ctl: Ctl, home: Path) -> None:
    (home / "node-0").mkdir(parents=True)
    code, _, err = ctl("cluster", "init", "--home", home)
    assert (code, "local cluster" in err) == (2, True)


def test_a_token_is_alone_on_stdout(ctl: Ctl, first: Path) -> None:
    code, out, err = ctl("cluster", "token", "--home", first, "--uses", 2)
    assert code == 0 and out.count("\n") == 1
    token = tokens.read(out)
    assert (token.pin, token.addresses) == (papers.read(first).cluster_id, (AT,))
    (kept,) = papers.read_tokens(first)
    assert kept.uses == 2 and kept == tokens.opened(token.secret, kept.until_unix, 2)
    assert "2 nodes can join" in err and "cluster join TOKEN" in err
    assert "which does not run" in err or "does not run" in err
    assert out.strip() not in err
    code, out, _ = ctl("cluster", "token", "--home", first, "--json")
    told = json.loads(out)
    assert set(told) == {"token", "until_unix", "uses", "addresses"}
    assert len(papers.read_tokens(first)) == 2


def test_a_token_is_made_where_the_cluster_was(ctl: Ctl, first: Path, tmp_path: Path) -> None:
    (papers.folder_of(first) / papers.AUTHORITY_KEY).unlink()
    code, out, err = ctl("cluster", "token", "--home", first)
    assert (code, out) == (1, "") and "mac-1 makes no members" in err
    code, _, err = ctl("cluster", "token", "--home", tmp_path / "other")
    assert code == 2 and "is no member of a cluster" in err and "cluster init" in err


@pytest.mark.parametrize("options", [["--hours", 0], ["--uses", 0], ["--hours", 10000]])
def test_a_token_that_nobody_could_use(ctl: Ctl, first: Path, options: list[object]) -> None:
    assert ctl("cluster", "token", "--home", first, *options)[0] == 2


def test_join(ctl: Ctl, home: Path, host: Host) -> None:
    token = host.token().text()
    code, out, err = ctl("cluster", "join", token, "--home", home, "--node-id", "mac-2")
    assert code == 0
    member = papers.read(home)
    assert (member.node, member.peers) == ("mac-2", (host.address, PEER))
    assert member.cluster_id == host.member.cluster_id and founding.founder_of(home) is None
    settings = config.load(home)
    assert (settings.node_id, settings.cluster) == ("mac-2", CLUSTER)
    assert settings.listen.startswith("127.0.0.1:")  # towards a cluster on this machine
    assert host.joined[NodeId("mac-2")].address == settings.listen
    assert not (home / KEY_NAME).exists() and papers.is_private(home)
    assert "joined cluster" in out and "elasticctl service install" in out
    assert f"becomes '{CLUSTER}'" in err
    # Said again, it is done already.
    code, out, _ = ctl("cluster", "join", token, "--home", home, "--json")
    assert code == 0 and json.loads(out)["already"] is True


def test_join_reads_the_token_from_a_file(
    ctl: Ctl, home: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(host.token().text() + "\n"))
    assert ctl("cluster", "join", "-", "--home", home, "--node-id", "b")[0] == 0
    assert papers.read(home).node == "b"


def test_join_at_a_port_of_ones_own(ctl: Ctl, home: Path, host: Host) -> None:
    """At the address towards the cluster, as where nothing is said."""
    token = host.token().text()
    code, _, err = ctl("cluster", "join", token, "--home", home, "--listen", ":99999")
    assert (code, "must be HOST:PORT, not ':99999'" in err, home.exists()) == (2, True, False)
    said = ("--home", home, "--node-id", "b", "--listen", ":7071")
    assert ctl("cluster", "join", token, *said)[0] == 0
    assert config.load(home).listen == "127.0.0.1:7071" == host.joined[NodeId("b")].address


def test_join_that_failed_can_be_repeated_with_the_same_key(
    ctl: Ctl, home: Path, host: Host
) -> None:
    token = host.token().text()
    stuck = papers.folder_of(host.home) / "issued.json.partial"
    stuck.mkdir()
    code, _, err = ctl("cluster", "join", token, "--home", home, "--node-id", "b")
    assert code == 1 and err.count("\n") == 1 and "can't do it now" in err
    assert not papers.is_member(home) and not (home / "elasticd.toml").exists()
    assert (home / KEY_NAME).stat().st_mode & 0o777 == 0o600
    stuck.rmdir()
    # And again where the answer came, and the disk here failed.
    (home / ".cluster.new").write_text("no folder")
    code, _, err = ctl("cluster", "join", token, "--home", home, "--node-id", "b")
    assert code == 1 and not papers.is_member(home)
    (home / ".cluster.new").unlink()
    assert ctl("cluster", "join", token, "--home", home, "--node-id", "b")[0] == 0
    assert [len(each.keys) for each in host.tokens] == [1]


@pytest.mark.parametrize(
    ("node", "code", "said"),
    [(NODE, 1, "another node of the cluster is called"), ("a b", 2, "--node-id: must be")],
)
def test_join_as_somebody_else(
    ctl: Ctl, home: Path, host: Host, node: str, code: int, said: str
) -> None:
    token = host.token().text()
    found = ctl("cluster", "join", token, "--home", home, "--node-id", node)
    assert (found[0], said in found[2]) == (code, True)
    assert not papers.is_member(home)


def test_join_with_what_is_no_token(ctl: Ctl, home: Path, host: Host) -> None:
    text = host.token().text()
    for wrong in ("token", text[:-1], text[:40] + ("a" if text[40] != "a" else "b") + text[41:]):
        code, _, err = ctl("cluster", "join", wrong, "--home", home)
        assert (code, "no whole join token" in err) == (2, True)
    assert not home.exists()


def test_join_where_nobody_answers(ctl: Ctl, home: Path, host: Host) -> None:
    token = tokens.Token(host.member.cluster_id, b"s" * 16, ("127.0.0.1:1",)).text()
    code, _, err = ctl("cluster", "join", token, "--home", home)
    assert (code, "could not join: 127.0.0.1:1: Connection refused" in err) == (1, True)


def test_a_node_alone_leaves_its_cluster_for_another(ctl: Ctl, first: Path, host: Host) -> None:
    """A daemon that was started before makes a cluster of its own."""
    assert ctl("cluster", "join", host.token().text(), "--home", first)[0] == 0
    member = papers.read(first)
    assert (member.node, member.cluster_id) == ("mac-1", host.member.cluster_id)
    assert founding.founder_of(first) is None


def test_a_node_of_a_local_cluster_is_not_alone(ctl: Ctl, home: Path, host: Host) -> None:
    (home / "node-1").mkdir(parents=True)
    (home / "node-0").mkdir()
    (home / LOCAL_LOCK_NAME).touch()
    founding.found(home / "node-0", NodeId("node-0"))
    code, _, err = ctl("cluster", "join", host.token().text(), "--home", home / "node-0")
    assert (code, "is a member of another cluster" in err) == (2, True)


@pytest.mark.parametrize("command", ["list", "token", "init"])
def test_a_local_clusters_node_that_has_lost_its_papers_gets_them_from_local_up(
    ctl: Ctl, home: Path, command: str
) -> None:
    (home / "node-1").mkdir(parents=True)
    (home / LOCAL_LOCK_NAME).touch()
    code, _, err = ctl("cluster", command, "--home", home / "node-1")
    assert code == 2 and f"'elasticctl local up --home {home}'" in err
    assert "cluster init" not in err and "cluster join" not in err


def test_a_local_clusters_node_is_started_with_it_and_stays_in_it(ctl: Ctl, home: Path) -> None:
    node = home / "node-0"
    node.mkdir(parents=True)
    (home / LOCAL_LOCK_NAME).touch()
    founding.found(node, NodeId("node-0"))
    _, _, err = ctl("cluster", "token", "--home", home)
    assert f"'elasticctl local up --home {home}'" in err and "service" not in err
    _, _, err = ctl("cluster", "init", "--home", node)
    assert "a local cluster's node stays in it" in err and "remove" not in err


def test_a_member_of_another_cluster_does_not_join(ctl: Ctl, first: Path, host: Host) -> None:
    assert ctl("cluster", "token", "--home", first)[0] == 0  # so somebody may have joined it
    code, _, err = ctl("cluster", "join", host.token().text(), "--home", first)
    assert code == 2 and "is a member of another cluster" in err and "remove" in err
    token = tokens.Token(papers.read(first).cluster_id, b"s" * 16, (AT,)).text()
    code, _, err = ctl("cluster", "join", token, "--home", first, "--node-id", "other")
    assert (code, "is a member already, as mac-1" in err) == (2, True)


def test_a_daemon_that_does_not_answer_must_be_restarted(
    ctl: Ctl, home: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarting, "BEGIN_SECONDS", 0.0)
    home.mkdir()
    name_process(home / DAEMON_FILE, psutil.Process())
    code, out, _ = ctl("cluster", "join", host.token().text(), "--home", home, "--node-id", "b")
    assert code == 0 and "service restart --home" in out
    assert config.load(home).listen == "127.0.0.1:7070"  # its own port is as good as free


def test_list(ctl: Ctl, home: Path, host: Host) -> None:
    for name in ("mac-2", "mac-3"):
        token = host.token(letter=name[-1:].encode()).text()
        assert ctl("cluster", "join", token, "--home", home / name, "--node-id", name)[0] == 0
    name = host.member.name_of(NodeId("mac-3"))
    back = host.member.name_of(NodeId("mac-2"))
    before = host.joined[NodeId("mac-2")].serial - 1
    out_ones = Revoked({name: host.joined[NodeId("mac-3")].serial, back: before, "0" * 32: 1})
    papers.write_revoked(host.home, out_ones)
    code, out, err = ctl("cluster", "list", "--home", host.home)
    assert (code, err) == (0, "")
    assert f"this node is {NODE}" in out and "it lets others in" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "joined" in lines["mac-2"] and "put out" in lines["mac-3"]
    assert f"put out: {'0' * 32}, mac-3\n" in out and "put out: mac-2" not in out
    told = json.loads(ctl("cluster", "list", "--home", host.home, "--json")[1])
    assert told["cluster"] == host.member.cluster_id and told["makes_members"] is True
    assert [(each["node"], each["revoked"]) for each in told["issued"]] == [
        ("mac-2", False), ("mac-3", True),
    ]  # fmt: skip
    assert told["good_until_unix"] > told["since_unix"]
    for secret in (host.member.secret.hex(), "PRIVATE"):
        assert secret not in out and secret not in json.dumps(told)
    code, out, _ = ctl("cluster", "list", "--home", home / "mac-2")
    assert code == 0 and "another node lets others in" in out


def test_list_of_what_is_damaged(ctl: Ctl, first: Path) -> None:
    (papers.folder_of(first) / papers.NODE).write_bytes(b"")
    for command in ("list", "token"):
        code, out, err = ctl("cluster", command, "--home", first)
        assert (code, out) == (1, "") and "damaged" in err and err.count("\n") == 1


def test_list_of_a_damaged_register(ctl: Ctl, first: Path) -> None:
    (papers.folder_of(first) / issuing.ISSUED).write_bytes(b"")
    code, _, err = ctl("cluster", "list", "--home", first)
    assert code == 1 and "issued.json: damaged; remove it" in err


@pytest.mark.skipif(sys.platform == "darwin", reason="XDG_STATE_HOME has no meaning there")
def test_the_usual_home_is_meant_rather_than_a_local_cluster(ctl: Ctl, tmp_path: Path) -> None:
    """Also while its daemon does not run."""
    usual = tmp_path / "state/elasticd"
    local = usual / "local/node-0"
    local.mkdir(parents=True)
    founding.found(local, NodeId("node-0"))
    assert "this node is node-0" in ctl("cluster", "list")[1]
    assert ctl("cluster", "init", "--listen", AT, "--node-id", "mac-1")[0] == 0
    assert "this node is mac-1" in ctl("cluster", "list")[1]
    assert papers.read_tokens(local) == () and ctl("cluster", "token")[0] == 0
    assert len(papers.read_tokens(usual)) == 1


def test_the_first_node_needs_an_address_that_others_reach() -> None:
    assert clusterhome.listen_of_first(7071, ["10.0.0.5", "10.0.0.6"]) == "0.0.0.0:7071"
    with pytest.raises(UsageError, match="--listen HOST:PORT"):
        clusterhome.listen_of_first(7070, ())


@pytest.mark.parametrize(
    ("listen", "advertise", "told"),
    [
        ("10.0.0.8:1", (), "10.0.0.8:1"),
        ("0.0.0.0:7070", (), "10.0.0.9:7070"),
        ("0.0.0.0:7070", ("10.0.0.7:7071",), "10.0.0.7:7071"),
    ],
)
def test_what_the_others_are_told_of_it(listen: str, advertise: tuple[str, ...], told: str) -> None:
    settings = NodeConfig(advertise=advertise)
    assert clusterhome.reached_at(listen, "10.0.0.9", settings) == told


@pytest.mark.parametrize(
    ("host", "listen", "running", "found"),
    [
        ("10.0.0.9", None, False, "0.0.0.0:8070"),
        ("10.0.0.9", None, True, "0.0.0.0:7070"),
        ("10.0.0.9", "10.0.0.8:1", False, "10.0.0.8:1"),  # as the user has it
        ("10.0.0.9", "0.0.0.0:1", False, "0.0.0.0:1"),
        ("10.0.0.9", "127.0.0.1:9", False, "0.0.0.0:1009"),  # which nobody else reaches
        ("127.0.0.1", "127.0.0.1:9", False, "127.0.0.1:9"),
    ],
)
def test_where_a_node_listens(host: str, listen: str | None, running: bool, found: str) -> None:
    settings = NodeConfig() if listen is None else NodeConfig(listen=listen)
    at = clusterhome.found_listen(
        host, settings, written=listen is not None, running=running,
        free=lambda host, wanted: wanted + 1000,
    )  # fmt: skip
    assert at == found


def test_a_port_that_is_free() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert clusterhome.free_port("127.0.0.1", port) != port
    assert clusterhome.free_port("127.0.0.1", port) == port
    with pytest.raises(OperationError, match="can't listen on"):
        clusterhome.free_port("203.0.113.1", 7070)


@pytest.mark.parametrize(
    ("listens", "wanted", "shared"),
    [
        ("0.0.0.0", "127.0.0.1", True),
        ("127.0.0.1", "0.0.0.0", True),
        ("127.0.0.2", "127.0.0.1", False),
    ],
)
def test_a_port_that_macos_would_let_two_programs_have_is_not_free(
    listens: str, wanted: str, shared: bool
) -> None:
    """There bind(2) refuses neither, so what listens is asked."""
    (port,) = free_ports(1)
    with socket.create_server((listens, port)):
        refused = pytest.raises(OSError, match="Address already in use")
        with refused if shared else contextlib.nullcontext():
            refuse_shared(wanted, port, "darwin")
        refuse_shared(wanted, port, "linux")
        assert (clusterhome.free_port(wanted, port, "darwin") == port) is not shared
    refuse_shared(wanted, port, "darwin")


def test_init_where_a_daemon_has_run_alone(ctl: Ctl, home: Path) -> None:
    """It has made a cluster of its own, which nobody else can reach: that one is made reachable."""
    home.mkdir()
    founding.found(home, NodeId("mac-1"))
    before = papers.read(home)
    code, _, err = ctl("cluster", "init", "--home", home, "--listen", AT, "--node-id", "mac-2")
    assert code == 2 and "'mac-1' already" in err
    code, out, _ = ctl("cluster", "init", "--home", home, "--listen", AT, "--node-id", "mac-1")
    assert code == 0 and f"it listens on {AT}" in out
    assert papers.read(home) == before and config.load(home).listen == AT
    code, _, err = ctl("cluster", "init", "--home", home, "--listen", AT, "--node-id", "mac-1")
    assert code == 2 and "is a member of a cluster already" in err


def test_init_of_a_daemon_that_has_run_alone_keeps_its_port(ctl: Ctl, home: Path) -> None:
    home.mkdir()
    founding.found(home, NodeId("mac-1"))
    (home / "elasticd.toml").write_text('node_id = "mac-1"\nlisten = "127.0.0.1:9123"\n')
    code, out, err = ctl("cluster", "init", "--home", home)
    if "no address but loopback" in err:
        pytest.skip("this machine has no other address")
    where = config.load(home).listen
    assert code == 0 and f"it listens on {where} (elasticd.toml)" in out
    assert where.endswith(":9123") and not clusterhome.is_loopback(where)
