"""Nodes that are gone for good: when they are taken off the list, and what brings them back."""

from __future__ import annotations

from elasticd.core.context import Context
from elasticd.core.jobs.nodes import NodeTable
from elasticd.core.words import effects as e
from elasticd.core.words.codec import to_plain
from elasticd.types import NodeId

ME, OTHER, GONE = NodeId("me"), NodeId("other"), NodeId("gone")


def table() -> NodeTable:
    ctx = Context(ME, lambda: "nonce")
    return NodeTable(ctx, lambda: (ME, OTHER, GONE), lambda: (ME, OTHER), lambda: (ME, OTHER))


def dead(node: NodeId) -> str:
    return "dead"


def replies(nodes: NodeTable) -> list[object]:
    nodes.answer()
    return [to_plain(f.body) for f in nodes.ctx.effects if isinstance(f, e.Reply)]


def test_a_node_that_is_there_is_not_forgotten() -> None:
    nodes = table()
    nodes.dismiss(1, OTHER, there=True)
    assert replies(nodes) == [
        {"error": "other is there; stop its daemon first, or it would only come back", "code": 1}
    ]
    assert not nodes.records


def test_a_forgotten_node_that_returns_is_new() -> None:
    nodes = table()
    nodes.drain(1, GONE, True, dead)
    nodes.dismiss(2, GONE, there=False)
    assert replies(nodes) == []
    nodes.on_kept(OTHER, [GONE])
    assert replies(nodes)[-1] == {"id": GONE, "state": "forgotten"}
    assert nodes.records[GONE].forgotten and not nodes.unwanted()
    nodes.follow((ME, OTHER, GONE), ())
    assert not nodes.records[GONE].forgotten and not nodes.unwanted()


def test_whoever_has_the_name_of_a_node_that_was_put_out_is_not_drained() -> None:
    here, there = table(), table()
    for nodes in (here, there):
        nodes.drain(1, GONE, True, dead)
    assert there.unwanted() == {GONE}
    here.ctx.effects.clear()
    here.drain(0, GONE, False, dead, out=True)
    assert not [each for each in here.ctx.effects if isinstance(each, e.Emit)]
    there.on_nodes(ME, [here.records[GONE]])
    assert not there.unwanted() and there.records == here.records


def test_nodes_that_meet_agree_on_who_is_forgotten() -> None:
    here, there = table(), table()
    here.dismiss(1, GONE, there=False)
    there.drain(1, GONE, True, dead)  # it has not heard of that
    here.on_nodes(OTHER, [there.records[GONE]])
    there.on_nodes(ME, [here.records[GONE]])
    assert here.records == there.records and here.records[GONE].forgotten
