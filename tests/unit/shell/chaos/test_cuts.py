"""Cuts of links: what they concern, and that they end."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.bulk import WANTS, CutHere
from elasticd.core.words.records import World
from elasticd.core.words.requests.every import REQUESTS
from elasticd.errors import OperationError, ProtocolError, UsageError
from elasticd.ipc.foreign import shut_down
from elasticd.shell.chaos import firewall as firewalls
from elasticd.shell.chaos import inject as chaos
from elasticd.shell.chaos.cuts import Cutter
from elasticd.shell.chaos.firewall import Flow, Iptables, PacketFilter, cut_prefix, firewall
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.hello import Identity
from elasticd.shell.network.peers import Peers
from elasticd.types import NodeId
from tests.members import credentials
from tests.ports import free_address
from tests.unit.core.saving.desk import world_of

Run = Callable[[Coroutine[Any, Any, None]], None]
A, B, C, D = (NodeId(name) for name in "abcd")
CUT_SECONDS = 3.0
"""Enough to look at a cut before it ends, on a busy machine too."""


class FakeFirewall:
    """Remembers what it drops, in order; refuses when told."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.open_cuts: dict[str, list[Flow]] = {}
        self.ended: list[str] = []

    def open(self, home: Path, seconds: float) -> str:
        if self.refuses:
            raise OperationError(self.refuses)
        name = f"{cut_prefix(home)}{len(self.open_cuts) + len(self.ended)}"
        self.open_cuts[name] = []
        return name

    def drop(self, cut: str, flows: Iterable[Flow]) -> None:
        self.open_cuts[cut].extend(flows)

    def close(self, cut: str) -> None:
        del self.open_cuts[cut]
        self.ended.append(cut)

    def left(self, home: Path) -> list[str]:
        return []

    def clean(self, home: Path) -> list[str]:
        return []


class Side:
    """A daemon's peers and its cutter."""

    def __init__(self, node: NodeId, home: Path, *addresses: str) -> None:
        self.address = free_address()
        self.news = asyncio.Event()
        me = Identity(node, "boot", self.address)
        calls = Callbacks(self._news, self._news, self._news, self._serve)
        self.peers = Peers(me, self.address, addresses, calls, credentials(node))
        self.firewall = FakeFirewall()
        self.cutter = Cutter(home, self.peers, self.rings, self.firewall)

    def _news(self, *told: object) -> None:
        self.news.set()

    async def _serve(self, request: dict[str, Any]) -> int:
        raise OperationError("nothing is here")

    def rings(self) -> Sequence[tuple[int, World, int]]:
        return []

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            self.news.clear()
            await self.news.wait()


def test_drop_names_both_connections_and_ends(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        b = Side(B, tmp_path)
        a = Side(A, tmp_path, b.address)
        await a.peers.start()
        await b.peers.start()
        await a.until(lambda: a.peers.connected() == [B])
        await b.until(lambda: b.peers.connected() == [A])
        cut = await a.cutter.prepare(B, "drop", CUT_SECONDS)
        with pytest.raises(OperationError, match="cut already"):
            await a.cutter.prepare(B, "drop", CUT_SECONDS)
        holding = asyncio.create_task(a.cutter.hold(cut, CUT_SECONDS))
        while not any(a.firewall.open_cuts.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        flows = list(a.firewall.open_cuts.values())
        ends = a.peers.ends_of(B)
        assert {f"{h}:{p}" for pair in ends for h, p in pair} >= {a.address, b.address}
        assert sorted(flows[0], key=str) == sorted((Flow(t, o) for o, t in ends), key=str)
        with pytest.raises(OperationError, match="cut on purpose"):
            await a.peers.fetch(b.address, {"what": "x"}, 0)
        await holding
        assert a.firewall.ended and not a.firewall.open_cuts
        assert a.peers.connected() == [B]  # the packet filter was a fake
        await a.peers.close()
        await b.peers.close()

    run(main())


def test_close_hangs_up_and_lets_nobody_in_until_it_ends(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        b = Side(B, tmp_path)
        a = Side(A, tmp_path, b.address)
        await a.peers.start()
        await b.peers.start()
        await a.until(lambda: a.peers.connected() == [B])
        cut = await a.cutter.prepare(B, "close", CUT_SECONDS)
        holding = asyncio.create_task(a.cutter.hold(cut, CUT_SECONDS))
        await a.until(lambda: a.peers.connected() == [])
        await b.until(lambda: b.peers.connected() == [])
        assert not holding.done()
        await holding
        await a.until(lambda: a.peers.connected() == [B])
        assert not a.firewall.ended
        await a.peers.close()
        await b.peers.close()

    run(main())


def test_what_the_system_refuses_leaves_nothing(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        side = Side(A, tmp_path)
        side.firewall.refuses = "not allowed"
        with pytest.raises(OperationError, match="not allowed"):
            await side.cutter.prepare(B, "drop", 1.0)
        await side.cutter.prepare(B, "close", 1.0)

    run(main())


@pytest.mark.parametrize(
    ("system", "members", "refused"),
    [
        ("darwin", [A, B], True),
        ("darwin", [A, C, D, B], True),
        ("darwin", [A, C, B, D], False),
        ("darwin", [A, C], False),
        ("linux", [A, B], False),
    ],
)
def test_a_mac_refuses_to_close_a_link_that_a_ring_needs(
    run: Run, tmp_path: Path, system: str, members: list[NodeId], refused: bool
) -> None:
    """Its connections would stay, and the command would say that the link is cut."""

    async def main() -> None:
        side = Side(A, tmp_path)
        cutter = Cutter(
            tmp_path, side.peers, lambda: [(1, world_of(*members), 0)], side.firewall, system
        )
        if refused:
            with pytest.raises(OperationError, match=r"ring with b would stay whole.*--how drop"):
                await cutter.prepare(B, "close", 1.0)
            assert (await cutter.prepare(B, "drop", 1.0)).name  # nothing is left of the other
        else:
            await cutter.prepare(B, "close", 1.0)

    run(main())


def groups_of(given: Any) -> chaos.Groups:
    asked: Any = REQUESTS.decode({"do": "chaos", "what": "link", "groups": given, "seconds": 1.0})
    chaos._require_apart(asked.groups)
    groups: chaos.Groups = asked.groups
    return groups


def test_orders_of_a_partition() -> None:
    groups = groups_of([["a", "b"], ["c"]])
    both = chaos._orders(groups, "drop", 3.0)
    assert [(o.node, o.from_) for o in both] == [(A, (C,)), (B, (C,)), (C, (A, B))]
    one_way = chaos._orders(groups, "one-way", 3.0)
    assert [(o.node, o.from_) for o in one_way] == [(C, (A, B))]
    three = chaos._orders(groups_of([["a"], ["b"], ["c", "d"]]), "close", 3.0)
    assert [(o.node, o.from_) for o in three] == [
        (A, (B, C, D)), (B, (A, C, D)), (C, (A, B)), (D, (A, B)),
    ]  # fmt: skip


@pytest.mark.parametrize("given", [None, 7, [], [["a"]], [["a"], []], [["a"], ["a"]]])
def test_groups_that_are_none(given: Any) -> None:
    with pytest.raises((UsageError, ProtocolError), match="groups"):
        groups_of(given)


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"node": "a", "from_": 7, "how": "drop", "seconds": 1},
        {"node": "a", "from_": ["b"], "how": "melt", "seconds": 1},
        {"node": "a", "from_": ["b"], "how": "drop", "seconds": -1},
        {"node": "a", "from_": ["b"], "how": "drop", "seconds": "x"},
    ],
)
def test_orders_that_are_none(order: dict[str, Any]) -> None:
    with pytest.raises((OperationError, ProtocolError), match=r"bad order|CutHere\.order"):
        wanted = WANTS.decode({"what": "chaos", "order": order})
        assert isinstance(wanted, CutHere)
        chaos._require_sense(wanted.order)


def test_each_system_has_its_packet_filter() -> None:
    assert isinstance(firewall("linux"), Iptables) and isinstance(firewall("darwin"), PacketFilter)


@pytest.mark.parametrize("filter_", [Iptables(root=False), PacketFilter(root=False)])
def test_missing_rights_are_said_with_what_this_system_can_do(
    filter_: Iptables | PacketFilter, tmp_path: Path
) -> None:
    with pytest.raises(OperationError, match="is for root") as caught:
        filter_.open(tmp_path, 1.0)
    assert ("--how close" in str(caught.value)) == isinstance(filter_, Iptables)
    assert "needs no rights" in str(caught.value) and filter_.clean(tmp_path) == []


def test_missing_programs_are_said(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="not installed"):
        Iptables("no-such-filter", root=True).open(tmp_path, 1.0)
    assert Iptables("no-such-filter", root=True).clean(tmp_path) == []


PFCTL = """#!/bin/sh
# Keeps the tokens and anchors that pf would have, each as a file. Follows pfctl(8) of Darwin.
cd "{state}"
case "$1 $3 $4" in
"-E  ") n=$(ls given | wc -l); : > "given/$n"; : > "tokens/1234$n"
        echo "No ALTQ support in kernel" >&2; echo "pf enabled" >&2; echo "Token : 1234$n" >&2;;
"-X  ") rm "tokens/$2";;
"-a -f -") cat > "anchors/${{2##*/}}";;
"-a -F rules") rm -f "anchors/${{2##*/}}";;
"-a -s Anchors") for each in anchors/*; do echo "  com.apple/${{each##*/}}"; done;;
*) exit 1;;
esac
"""
FLOW = Flow(("10.0.0.1", 1), ("10.0.0.2", 2))


class FakePf:
    """macOS's packet filter; another program has enabled it, too."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "pfctl"
        self.folders = [folder / name for name in ("tokens", "anchors", "given")]
        for each in self.folders:
            each.mkdir()
        (folder / "tokens/another-program").touch()
        self.program.write_text(PFCTL.format(state=folder))
        self.program.chmod(0o700)

    def filter(self) -> PacketFilter:
        return PacketFilter(str(self.program), root=True)

    def left(self) -> list[int]:
        """How many enable it, and how many anchors there are."""
        return [len(list(each.iterdir())) for each in self.folders[:2]]


def test_a_mac_has_its_packet_filter_off_again(tmp_path: Path) -> None:
    pf = FakePf(tmp_path)
    filter_ = pf.filter()
    for _ in range(2):
        cut = filter_.open(tmp_path, 60.0)
        assert len(cut) < 64  # PF_ANCHOR_NAME_SIZE
        filter_.drop(cut, [FLOW])
        assert pf.left() == [2, 1]
        filter_.close(cut)
        assert pf.left() == [1, 0]


def test_so_does_the_daemon_that_comes_after_one_that_was_killed(tmp_path: Path) -> None:
    pf = FakePf(tmp_path)
    killed = pf.filter()
    cut = killed.open(tmp_path, 60.0)
    killed.drop(cut, [FLOW])
    assert pf.filter().clean(tmp_path / "another home") == []
    assert pf.left() == [2, 1]
    assert pf.filter().clean(tmp_path) == [cut]
    killed._guards._running[cut].wait()
    assert pf.left() == [1, 0]


def test_so_does_the_guard_of_a_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firewalls, "GUARD_SLACK_SECONDS", 0.0)
    pf = FakePf(tmp_path)
    filter_ = pf.filter()
    cut = filter_.open(tmp_path, 0.0)
    filter_._guards._running[cut].wait()
    assert pf.left() == [1, 0]


def test_names_fit_a_chain(tmp_path: Path) -> None:
    assert len(cut_prefix(tmp_path) + "123456") <= 28


def test_a_socket_is_ended_from_outside() -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux can")
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        with one, other:
            assert not shut_down(os.getpid(), ("127.0.0.1", 1), ("127.0.0.1", 2))
            assert shut_down(os.getpid(), one.getsockname(), one.getpeername())
            assert other.recv(1) == b""
