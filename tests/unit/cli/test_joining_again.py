"""elasticctl cluster join and init, where what makes the node a member is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.client.joining import KEY_NAME
from elasticd.settings.places import MEMBER
from elasticd.shell.storage import founding, papers
from elasticd.trust import tokens
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.unit.shell.control.welcoming import Host

Ctl = Callable[..., tuple[int, str, str]]
AT = "10.1.2.3:7070"


@pytest.fixture
def first(ctl: Ctl, home: Path) -> Path:
    assert ctl("cluster", "init", "--home", home, "--listen", AT, "--node-id", "mac-1")[0] == 0
    return home


def joined(ctl: Ctl, home: Path, host: Host) -> dict[str, bytes]:
    """A member whose certificate is damaged; its files."""
    token = host.token().text()
    assert ctl("cluster", "join", token, "--home", home, "--node-id", "b")[0] == 0
    (papers.folder_of(home) / papers.NODE).write_bytes(b"")
    return {path.name: path.read_bytes() for path in papers.folder_of(home).iterdir()}


def test_a_damaged_member_joins_again_by_its_key_and_what_there_was_is_kept(
    ctl: Ctl, home: Path, host: Host
) -> None:
    files = joined(ctl, home, host)
    _, out, _ = ctl("doctor", "--json", "--home", home)
    (finding,) = json.loads(out)["homes"][0]["findings"]
    assert f"elasticctl cluster join TOKEN --home {home}" in finding["cure"]
    stale = tokens.Token(host.member.cluster_id, b"x" * 16, (host.address,)).text()
    code, _, err = ctl("cluster", "join", stale, "--home", home)
    assert code == 1 and "the join token has expired" in err
    assert {p.name: p.read_bytes() for p in papers.folder_of(home).iterdir()} == files
    again = host.token(letter=b"t").text()
    code, out, _ = ctl("cluster", "join", again, "--home", home, "--json")
    told = json.loads(out.splitlines()[-1])  # the host logs here, too
    assert (code, told["node"], told["already"]) == (0, "b", False)
    assert {p.name: p.read_bytes() for p in Path(told["aside"]).iterdir()} == files
    assert papers.read(home).key == files[papers.KEY]
    assert not (home / KEY_NAME).exists()
    code, out, _ = ctl("doctor", "--home", home)
    assert code == 0 and f"note  {told['aside']}" in out
    assert "already" in ctl("cluster", "join", again, "--home", home)[1]


def test_a_member_that_has_lost_its_key_is_another_node_until_it_is_put_out(
    ctl: Ctl, home: Path, host: Host
) -> None:
    joined(ctl, home, host)
    (papers.folder_of(home) / papers.KEY).write_bytes(b"")
    token = host.token(letter=b"t").text()
    code, _, err = ctl("cluster", "join", token, "--home", home)
    assert code == 1 and "another node of the cluster is called b" in err
    assert "'elasticctl cluster revoke b' on another" in err and papers.is_member(home)
    name = host.member.name_of(NodeId("b"))
    host.credentials.revoked = Revoked({name: host.joined[NodeId("b")].serial})
    assert ctl("cluster", "join", token, "--home", home)[0] == 0
    assert papers.read(home).node == "b"


def test_a_damaged_member_whose_disk_fails_joins_later_with_the_same_key(
    ctl: Ctl, home: Path, host: Host
) -> None:
    files = joined(ctl, home, host)
    (home / ".cluster.new").write_text("no folder")
    token = host.token(letter=b"t").text()
    assert ctl("cluster", "join", token, "--home", home)[0] == 1
    assert not papers.is_member(home) and (home / KEY_NAME).read_bytes() == files[papers.KEY]
    (home / ".cluster.new").unlink()
    assert ctl("cluster", "join", token, "--home", home)[0] == 0
    assert len([*home.glob(f"{papers.ASIDE}*")]) == 1


def test_a_file_in_the_place_of_the_papers_is_put_aside(ctl: Ctl, home: Path, host: Host) -> None:
    home.mkdir()
    papers.folder_of(home).write_text("x")
    assert ctl("cluster", "join", host.token().text(), "--home", home, "--node-id", "b")[0] == 0
    (aside,) = home.glob(f"{papers.ASIDE}*")
    assert aside.read_text() == "x" and papers.read(home).node == "b"


@pytest.mark.parametrize("name", [papers.NODE, papers.KEY])
def test_the_first_node_makes_its_certificate_anew(
    ctl: Ctl, first: Path, host: Host, name: str
) -> None:
    assert ctl("cluster", "token", "--home", first)[0] == 0
    before, open_ones = papers.read(first), papers.read_tokens(first)
    (papers.folder_of(first) / name).write_bytes(b"x")
    code, _, err = ctl("cluster", "join", host.token().text(), "--home", first)
    assert code == 1 and f"'elasticctl cluster init --home {first}'" in err
    other = ctl("cluster", "init", "--home", first, "--node-id", "mac-2")
    assert other[0] == 1 and "is of 'mac-1', and this node is 'mac-2'" in other[2]
    code, out, _ = ctl("cluster", "init", "--home", first)
    assert code == 0 and "mac-1 has a new certificate" in out
    after = papers.read(first)
    assert (after.node, after.cluster_id, after.secret) == (
        "mac-1", before.cluster_id, before.secret,
    )  # fmt: skip
    assert papers.read_tokens(first) == open_ones and founding.founder_of(first) is not None


def test_the_first_node_needs_what_its_new_certificate_is_made_of(ctl: Ctl, first: Path) -> None:
    folder = papers.folder_of(first)
    (folder / papers.NODE).write_bytes(b"")
    for name, said in (
        (MEMBER, "member.json: damaged; copy another node's there"),
        (papers.AUTHORITY, "copy the first from another node"),
        (papers.AUTHORITY_KEY, "make a new cluster"),
    ):
        sound = (folder / name).read_bytes()
        (folder / name).write_bytes(b"")
        code, _, err = ctl("cluster", "init", "--home", first)
        assert code == 1 and said in err and err.count("\n") == 1
        (folder / name).write_bytes(sound)
    assert ctl("cluster", "init", "--home", first)[0] == 0
