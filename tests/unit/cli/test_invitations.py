"""Whom a host file invites, and what their answers mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.cli import invitations
from elasticd.cli.invitations import Answer, HereAndAlive, Invited, outcome, plan
from elasticd.errors import ConfigError
from elasticd.settings import hostfile
from elasticd.shell.network.wall import BY_HAND
from elasticd.types import is_node_id

HERE = HereAndAlive(
    "mac-1", frozenset({"Studio.local", "Studio", "10.0.0.1"}), {"mac-5": "10.0.0.5:7070"}
)
CLUSTER = "c" * 64
JOINED = {
    "cluster": CLUSTER,
    "node": "mac-2",
    "home": "/home",
    "listen": "10.0.0.2:7070",
    "running": True,
    "already": False,
}


def planned(said: str, here: HereAndAlive = HERE) -> list[Invited]:
    return list(plan(hostfile.parse(said, "h"), here, "h"))


def test_each_host_becomes_a_node() -> None:
    (one, other) = planned('[{"ssh": "a@mac-2", "ips": ["10.0.0.2"]}, {"ssh": "mac-3"}]')
    assert one == Invited("a@mac-2", listen="10.0.0.2:7070")
    assert other == Invited("mac-3")
    assert one.command("elasticctl", "-") == "elasticctl cluster join - --listen 10.0.0.2:7070"
    assert other.command("a b", "T") == "'a b' cluster join T"
    assert other.command("~/a b", "T") == "~/'a b' cluster join T"


@pytest.mark.parametrize(
    "said",
    ["localhost", "127.0.0.1", "STUDIO.local", "me@studio", "studio.lan", "10.0.0.1", "mac-1",
     '[{"ssh": "other", "ips": ["10.0.0.9", "10.0.0.1"]}]'],
)  # fmt: skip
def test_this_machine_is_left_out(said: str) -> None:
    (only,) = planned(said)
    assert (only.state, only.node) == ("this", "mac-1")


@pytest.mark.parametrize(
    "said", ["mac-5", "MAC-5.local", "me@10.0.0.5", '[{"ssh": "x", "ips": ["10.0.0.5"]}]']
)
def test_members_that_live_are_left_out(said: str) -> None:
    (only,) = planned(said)
    assert (only.state, only.node) == ("member", "mac-5")


def test_slots_are_nodes_with_homes_and_ports_of_their_own() -> None:
    here = HereAndAlive("mac-1", frozenset(), {"mac-2-2": "10.0.0.2:7071"})
    one, two, three = planned("me@mac-2.lan:3", here)
    assert [each.state for each in (one, two, three)] == ["invited", "member", "invited"]
    assert three == Invited("me@mac-2.lan", "mac-2-3", ":7072", "~/elasticd-mac-2-3")
    assert three.command("elasticctl", "-") == (
        "elasticctl cluster join - --node-id mac-2-3 --listen :7072 --home ~/elasticd-mac-2-3"
    )
    assert three.label == "me@mac-2.lan (mac-2-3)"
    note = invitations.of_services([one, two, three])
    assert note is not None and "one elasticd of a machine" in note and BY_HAND in note


def test_the_first_slot_of_this_machine_is_this_node() -> None:
    one, two = planned("localhost slots=2")
    assert (one.state, one.node) == ("this", "mac-1")
    assert two == Invited("localhost", "mac-1-2", ":7071", "~/elasticd-mac-1-2")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("a.x:2\nA.y slots=2", 'h:2: a node "A-1" would be on two hosts, that of line 1, too'),
        (
            '[{"ssh": "a",\n"ips": ["127.0.0.1"]}]',
            'h:1: ips: 127.0.0.1 of "a" can be reached from that machine only',
        ),
    ],
)
def test_files_by_which_no_cluster_comes_about(said: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        planned(said)
    assert str(raised.value) == error


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,80}", fullmatch=True), st.integers(2, 64))
def test_nodes_of_slots_have_ids_that_may_be(name: str, slots: int) -> None:
    nodes = planned(f"{name}:{slots}")
    assert len(nodes) == slots
    assert all(each.node is not None and is_node_id(each.node) for each in nodes)


def answered(**changed: object) -> Answer:
    return Answer(0, f"Welcome!\n{json.dumps({**JOINED, **changed})}\n", "")


def test_answers() -> None:
    who = Invited("mac-2")
    joined = outcome(who, answered(), CLUSTER, "elasticctl")
    assert (joined.state, joined.node, joined.running) == ("joined", "mac-2", True)
    already = outcome(who, answered(already=True, running=False), CLUSTER, "elasticctl")
    assert (already.state, already.running) == ("member", False)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(None, "", ""), "no answer in time"),
        (
            Answer(255, "", "motd\nmac-2: Permission denied (publickey).\r\n"),
            "ssh: mac-2: Permission denied (publickey).",
        ),
        (
            Answer(255, "", "ssh: Could not resolve hostname mac-2"),
            "ssh: Could not resolve hostname mac-2",
        ),
        (Answer(255, "", ""), "ssh: it gives no reason"),
        (
            Answer(127, "", "sh: 1: elasticctl: not found"),
            "there is no 'elasticctl' there: say where it is with --elasticctl PATH",
        ),
        (Answer(1, '{"error": "could not: \\u001b", "exit": 1}\n', "x"), "could not: \\x1b"),
        (Answer(1, "", "killed"), "it ended with status 1: killed"),
        (Answer(-9, "", ""), "it ended with status -9: it says nothing"),
        (Answer(0, "", ""), "no elasticctl answers as it should, but: nothing"),
        (Answer(0, "[1]", ""), "no elasticctl answers as it should, but: [1]"),
        (Answer(0, "[" * 60_000, ""), "no elasticctl answers as it should, but: " + "[" * 300),
        (answered(cluster="d" * 64), "it says that it is a member of another cluster"),
    ],
)  # fmt: skip
def test_answers_of_what_has_failed(answer: Answer, error: str) -> None:
    found = outcome(Invited("mac-2"), answer, CLUSTER, "elasticctl")
    assert (found.state, found.error) == ("failed", error)


@pytest.mark.parametrize("wrong", [{"node": "a b"}, {"listen": "x"}, {"node": "mac-3"}])
def test_answers_that_can_not_be(wrong: dict[str, str]) -> None:
    found = outcome(Invited("mac-2", "mac-2"), answered(**wrong), CLUSTER, "elasticctl")
    assert found.state == "failed" and found.error.startswith("no elasticctl answers")


@given(st.text(), st.text(), st.none() | st.integers(-20, 300))
def test_any_answer_is_one_printable_line(out: str, err: str, status: int | None) -> None:
    found = outcome(Invited("mac-2"), Answer(status, out, err), CLUSTER, "elasticctl")
    assert found.state == "failed" and found.error and found.error.isprintable()


def test_what_is_left_to_be_done_is_said_for_each_home() -> None:
    one, two = Invited("mac-2"), Invited("mac-3", "mac-3-2", ":7071", "~/elasticd-mac-3-2")
    there = {"node": "mac-3-2", "home": "/Users/a b/elasticd-mac-3-2", "running": False}
    outcomes = [
        (one, outcome(one, answered(running=False), CLUSTER, "elasticctl")),
        (two, outcome(two, answered(**there), CLUSTER, "elasticctl")),
        (one, outcome(one, answered(), CLUSTER, "elasticctl")),
        (one, outcome(one, Answer(None, "", ""), CLUSTER, "elasticctl")),
    ]
    assert invitations.what_is_left(outcomes) == [
        "start the daemon of mac-2: 'elasticctl service install' there",
        "start mac-3-2 on mac-3: elasticd run --home '/Users/a b/elasticd-mac-3-2'",
    ]


def test_a_home_there_is_no_node_of_a_local_cluster(tmp_path: Path) -> None:
    """As a folder node-1 beside others would be."""
    from elasticd.settings.localhomes import node_homes

    for each in planned("node:2"):
        assert each.home is not None
        (tmp_path / each.home.removeprefix("~/")).mkdir()
    assert node_homes(tmp_path) == []
