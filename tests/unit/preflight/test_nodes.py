"""Every check of nodes passes where all is well, and has a case in which it fails and says its
cure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.preflight.nodes import NODE_CHECKS, CheckResult, answers, judged
from elasticd.preflight.seen import NodeFacts, NodeSeen, NodeUnseen
from elasticd.types import NodeId

MAC = NodeFacts(
    elasticd="0.2.0",
    python="3.12.4",
    mlx="0.32.4",
    system="macOS",
    release="15.1",
    machine="arm64",
    chip="Apple M3 Max, 40 GPU cores",
    memory_bytes=64 << 30,
    free_bytes=100 << 30,
    battery=80.0,
    power={"sleep": "0", "autorestart": "1"},
    firewall="Firewall is disabled. (State = 0)",
    thermal="nominal",
    program="/opt/python",
    addresses=("10.0.0.5/24",),
)
LINUX = replace(
    MAC,
    system="Linux",
    release="6.1.0",
    machine="x86_64",
    chip="x86_64",
    power={},
    firewall="",
    thermal="",
)
WALLED = "10.0.0.2:7070: this Mac lets nothing out to it: run it as a service"


def seen(*facts: NodeFacts, skews: tuple[float, ...] = (0.0, 0.0, 0.0)) -> list[NodeSeen]:
    return [
        NodeSeen(NodeId(f"mac-{at}"), each, skew)
        for at, (each, skew) in enumerate(zip(facts, skews, strict=True))
    ]


def of(check: str, nodes: list[NodeSeen], where: str) -> CheckResult:
    (found,) = [each for each in judged(nodes) if (each.check, each.where) == (check, where)]
    return found


@pytest.mark.parametrize("facts", [MAC, LINUX])
def test_where_all_is_well_every_check_passes(facts: NodeFacts) -> None:
    found = [*judged(seen(facts, facts, facts))]
    assert [each for each in found if each.verdict != "pass" or each.cure] == []
    assert {each.check for each in found} == {check.name for check in NODE_CHECKS}
    assert len(found) == 3 * len(NODE_CHECKS)


ODD: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("elasticd", {"elasticd": "0.1.9"}, "warn", "0.1.9, where most have 0.2.0", "elasticd 0.2.0"),
    ("elasticd", {"elasticd": "0.2.0+1e28935c"}, "warn", "0.2.0+1e28935c, where", "same build of"),
    ("python", {"python": "3.11.9"}, "warn", "where most have 3.12", "Python 3.12"),
    ("mlx", {"mlx": ""}, "fail", "not installed", "pip install"),
    ("mlx", {"mlx": "0.31.2"}, "fail", "0.31.2", "MLX 0.32.4 or newer"),
    ("mlx", {"mlx": "0.33.0"}, "fail", "where most have 0.32.4", "pip install mlx==0.32.4"),
    ("system", {"release": "14.7"}, "warn", "where most have macOS 15", "drain that node"),
    ("chip", {"chip": "Apple M1, 8 GPU cores"}, "warn", "most have Apple M3", "require_exact"),
    ("memory", {"memory_low": "pressure 4 of 4"}, "fail", "4 of 4", "End what else"),
    ("memory", {"memory_warned": "pressure 2 of 4"}, "warn", "2 of 4", "If it stays so"),
    ("disk", {"free_bytes": 5 << 30}, "warn", "5.0 GiB free", "elasticctl disk"),
    ("disk", {"free_bytes": 1 << 29}, "fail", "0.5 GiB free", "elasticctl disk"),
    ("disk", {"free_files": 12}, "fail", "no more files, or few (12), though 100.0 GiB",
     "on the disk of its home"),
    ("disk", {"free_files": 0, "free_bytes": 0, "home": "/data"}, "fail", "few (0), though 0.0",
     "small files on the disk of /data"),
    ("power", {"plugged": False}, "warn", "on battery, 80 %", "Plug it in"),
    ("power", {"plugged": False, "battery": 9.0}, "fail", "9 %", "Plug it in"),
    ("sleep", {"power": {"sleep": "1"}}, "warn", "sleep 1", "sudo pmset -a sleep 0"),
    ("sleep", {"power": {}}, "warn", "nothing", "pmset -g"),
    ("sleep", {"power": {"sleep": "0", "powernap": "1"}}, "warn", "sleep 0, powernap 1",
     "On it: sudo pmset -a powernap 0. Drain a laptop before you close it"),
    ("sleep", {"power": {"autorestart": "0", "SleepDisabled": "1"}}, "warn", "autorestart 0",
     "sudo pmset -a autorestart 1"),
    ("sleep", {"locked": "screen"}, "warn", "autorestart 1, FileVault is on: after a restart it",
     "On it: Remote Login (System"),
    ("sleep", {"locked": "screen", "power": {"sleep": "1"}}, "warn", "sleep 1, FileVault is on",
     "On it: sudo pmset -a sleep 0. Remote Login (System"),
    ("energy", {"power": {"lowpowermode": "1"}}, "warn", "Low Power", "-a lowpowermode 0"),
    ("energy", {"power": {"powermode": "1"}}, "warn", "Low Power", "sudo pmset -a powermode 0"),
    ("heat", {"thermal": "heavy"}, "warn", "heavy: it is hot", "Give it air"),
    ("heat", {"thermal": ""}, "warn", "macOS doesn't say", "notifyutil -g com.apple"),
    ("firewall", {"walled": (WALLED,)}, "fail", "10.0.0.2:7070", "Run it as a service"),
    ("firewall", {"firewall": "it is enabled. (State = 1)"}, "warn", "enabled", "/opt/python"),
    ("firewall", {"firewall": "enabled. (State = 2)"}, "warn", "2", "--setblockall off. Then let"),
    ("firewall", {"firewall": "(State = 1)", "program": "/a b/P.app"}, "warn", "1",
     "--add '/a b/P.app' && sudo /usr/libexec/ApplicationFirewall/socketfilterfw --unblockapp '/a"),
    ("firewall", {"firewall": ""}, "warn", "nothing", "System Settings"),
    ("subnet", {"addresses": ("10.1.0.3/24",)}, "warn", "most are in 10.0.0.0/24", "in 10.0"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "odd", "verdict", "value", "cure"), ODD)
def test_what_is_wrong_with_a_node_is_said_with_the_cure(
    check: str, odd: dict[str, Any], verdict: str, value: str, cure: str
) -> None:
    nodes = seen(MAC, replace(MAC, **odd), MAC)
    found = of(check, nodes, "mac-1")
    assert (found.verdict, value in found.value, cure in found.cure) == (verdict, True, True), found
    assert of(check, nodes, "mac-0").verdict == "pass"


@pytest.mark.parametrize(
    ("battery", "power", "value"),
    [
        (None, {"sleep": "0", "powernap": "1"}, "sleep 0"),
        (80.0, {"sleep": "0", "powernap": "0"}, "sleep 0, powernap 0"),
        (80.0, {"sleep": "1", "powernap": "1", "SleepDisabled": "1"}, "SleepDisabled 1"),
        (80.0, {"sleep": "0", "SleepDisabled": "0"}, "sleep 0"),
    ],
)
def test_a_mac_that_never_sleeps_and_one_without_a_battery_take_no_naps(
    battery: float | None, power: dict[str, str], value: str
) -> None:
    found = of("sleep", seen(MAC, replace(MAC, battery=battery, power=power), MAC), "mac-1")
    assert (found.verdict, found.value) == ("pass", value)


@pytest.mark.parametrize("locked", ["", "ssh", "of a later version"])
def test_a_mac_that_can_be_unlocked_by_ssh_is_well(locked: str) -> None:
    found = of("sleep", seen(MAC, replace(MAC, locked=locked), MAC), "mac-1")
    assert found.verdict == "pass" and ("ssh unlocks it" in found.value) == (locked == "ssh")


def test_one_tool_that_says_nothing_is_one_warning() -> None:
    mute = seen(MAC, replace(MAC, power={}), MAC)
    assert {each.check for each in judged(mute) if each.verdict != "pass"} == {"sleep"}
    assert of("energy", mute, "mac-1").value == "pmset tells nothing"


def test_every_check_has_such_a_case() -> None:
    assert {check for check, *_ in ODD} | {"clock"} == {check.name for check in NODE_CHECKS}


@pytest.mark.parametrize(("skew", "verdict"), [(0.5, "pass"), (-9.0, "warn"), (300.0, "fail")])
def test_a_clock_is_compared_with_those_of_most(skew: float, verdict: str) -> None:
    found = of("clock", seen(MAC, MAC, MAC, skews=(0.1, skew, 0.0)), "mac-1")
    assert found.verdict == verdict and ("its clock by the network" in found.cure) is bool(
        found.cure
    )


def test_if_it_is_the_askers_clock_that_is_wrong_the_others_are_not_blamed() -> None:
    nodes = seen(MAC, MAC, MAC, skews=(0.0, 100.0, 100.1))
    assert [of("clock", nodes, f"mac-{at}").verdict for at in range(3)] == ["fail", "pass", "pass"]
    assert of("clock", nodes, "mac-0").value == "100.0 s behind the others"


def test_of_as_many_releases_the_newest_is_usual_whatever_the_names_of_builds() -> None:
    builds = ("0.2.10+0a", "0.2.9+ff", "0.2.9+00")
    nodes = seen(*(replace(MAC, elasticd=each) for each in builds))
    assert of("elasticd", nodes, "mac-0").verdict == "pass"
    assert "0.2.10+0a" in of("elasticd", nodes, "mac-1").cure


def test_patches_of_python_and_kernels_of_linux_are_no_matter() -> None:
    nodes = seen(LINUX, replace(LINUX, python="3.12.9", release="5.10.0"), LINUX)
    assert {each.verdict for each in judged(nodes)} == {"pass"}


def test_nodes_that_tell_nothing_are_named() -> None:
    unseen = [
        NodeUnseen(NodeId("old"), older=True, reason="unknown message 'facts'"),
        NodeUnseen(NodeId("away"), away=True),
        NodeUnseen(NodeId("mute"), reason="nothing came for 20 s"),
    ]
    nodes = seen(MAC, MAC, MAC)
    found = {each.where: each for each in answers(nodes, unseen)}
    assert [found[each.node].verdict for each in unseen] == ["warn", "warn", "fail"]
    assert {found[each.node].verdict for each in nodes} == {"pass"}
    assert "is of an earlier version" in found["old"].value and "Upgrade" in found["old"].cure
    assert "elasticctl nodes forget away" in found["away"].cure
    assert "nothing came for 20 s" in found["mute"].value and "doctor" in found["mute"].cure


def test_nodes_that_tell_no_addresses_are_left_alone() -> None:
    older = replace(MAC, addresses=())
    assert of("subnet", seen(older, MAC, older), "mac-0").value == "not told"
    assert of("subnet", seen(older, older, older), "mac-1").verdict == "pass"
