"""A file that a disk has changed in a copy is never handed on as main's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.types import NodeId
from tests.unit.shell.storage.outputnet import JOB, A, B, C, Client, Net, Node

LOST = "a disk has changed x since it was copied, and no node that answers has it as it was"


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    """Main has written ``x`` and ``y``, which both others have copied."""
    net = Net(tmp_path)
    net.nodes[A].write(x="right", y="other")
    for name in (B, C):
        asyncio.run(net.nodes[name].follow())
    yield net


def rot(node: Node, name: str = "x") -> None:
    """Its size and times stay."""
    found = node.outputs.copies.newest(JOB)
    assert found is not None
    path = found.files / name
    times = path.stat()
    path.write_text("wrong")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def without_own(*nodes: Node) -> None:
    for node in nodes:
        (node.output / "x").unlink()


@pytest.mark.parametrize("asked", [B, C])
def test_another_nodes_copy_is_handed_out_for_one_that_is_damaged(net: Net, asked: str) -> None:
    b, c = net.nodes[B], net.nodes[C]
    net.lost = {A}
    rot(c)  # the newest
    without_own(b, c)
    client = Client(net.nodes[B] if asked == B else c)
    assert client.head["node"] == C
    assert client.files == {"x": "right", "y": "other"} and client.why == {}


def test_the_scripts_own_file_is_handed_out_for_a_copy_that_is_damaged(net: Net) -> None:
    net.lost = {A, C}
    rot(net.nodes[B])
    assert Client(net.nodes[B]).files == {"x": "right", "y": "other"}


@pytest.mark.parametrize("asked", [B, C])
def test_a_file_that_nobody_has_as_it_was_is_named(net: Net, asked: str) -> None:
    b, c = net.nodes[B], net.nodes[C]
    net.lost = {A}
    rot(b)
    rot(c)
    for node in (b, c):
        node.write(x="later")
    client = Client(b if asked == B else c)
    assert client.files == {"x": None, "y": "other"} and client.why == {"x": LOST}


@pytest.mark.parametrize("lost", [{A}, {A, C}])
def test_a_copy_that_lacks_a_file_is_damaged_too(net: Net, lost: set[NodeId]) -> None:
    net.lost = lost
    for name in (B, C):
        found = net.nodes[name].outputs.copies.newest(JOB)
        assert found is not None
        (found.files / "x").unlink()
    assert Client(net.nodes[B]).files == {"x": "right", "y": "other"}


def test_a_copy_that_is_made_anew_meanwhile_is_not_damaged(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]

    class Slow(Client):
        async def receive(self, seconds: float | None) -> dict[str, Any]:
            net.lost = set()
            a.write(y="later")
            await b.follow()
            return {}

    net.lost = {A, C}
    client = Slow(b)
    assert client.files == {"x": "right", "y": None} and client.why == {}


def test_what_is_damaged_is_not_linked_into_the_next_copy(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    rot(b)
    net.fetched.clear()
    a.write(y="later")
    asyncio.run(b.follow())
    assert b.copy() == {"x": "right", "y": "later"} and sorted(net.fetched) == ["x", "y"]


def test_what_is_damaged_does_not_come_in_place(net: Net) -> None:
    b = net.nodes[B]
    rot(b)
    without_own(b)
    net.lost, b.runs = {A, C}, False
    asyncio.run(b.keeper.prepare(JOB))
    assert b.texts() == {"y": "other"}
    assert not list(b.output.glob(".partial-*"))


def test_what_is_damaged_is_mended_before_it_comes_in_place(net: Net) -> None:
    b, c = net.nodes[B], net.nodes[C]
    rot(b)
    without_own(b, c)
    net.lost, b.runs = {A}, False
    asyncio.run(b.keeper.prepare(JOB))
    assert b.texts() == b.copy() == {"x": "right", "y": "other"}


def test_main_mends_a_copy_to_which_nothing_has_come(net: Net) -> None:
    b = net.nodes[B]
    rot(b)
    without_own(b, net.nodes[C])
    asyncio.run(b.follow())
    assert b.texts() == b.copy() == {"x": "right", "y": "other"}
