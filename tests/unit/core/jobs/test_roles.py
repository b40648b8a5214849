"""What nodes do less than others: who says so, who believes it, and what jobs make of it."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.context import Context, Station
from elasticd.core.jobs.nodes import NodeTable
from elasticd.core.words import effects as e
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.records import NodeRecord
from elasticd.core.words.tables import Nodes
from elasticd.recovery.unknown import Unknown
from elasticd.types import NodeId, NodeRole

ME, OTHER = NodeId("me"), NodeId("other")


def table(role: NodeRole = "train") -> NodeTable:
    ctx = Context(ME, lambda: "nonce", station=Station(role=role))
    nodes = NodeTable(ctx, lambda: (ME, OTHER), lambda: (ME, OTHER), lambda: (ME, OTHER))
    nodes.begins()
    return nodes


def told(nodes: NodeTable) -> list[NodeRecord]:
    sent = [f.message for f in nodes.ctx.effects if isinstance(f, e.Send)]
    return [record for message in sent if isinstance(message, Nodes) for record in message.records]


def test_a_node_says_what_it_does_before_anybody_asks() -> None:
    nodes = table("store")
    assert told(nodes) == [NodeRecord(ME, duty="000000001 store")]
    assert nodes.standing().stores == {ME} == nodes.unwanted()
    assert not nodes.standing().leaving
    assert not table().records, "it trains, as nodes do of which nothing is known"


def test_who_knows_an_earlier_run_of_a_node_is_corrected() -> None:
    nodes = table("witness")
    nodes.update(NodeRecord(ME, intent=1, duty="000000007 store"))
    assert nodes.records[ME] == NodeRecord(ME, intent=1, duty="000000008 witness")
    assert told(nodes)[-1] == nodes.records[ME]


def test_what_operators_want_and_what_a_node_does_are_merged_apart() -> None:
    drained = NodeRecord(OTHER, intent=3)
    store = NodeRecord(OTHER, duty="000000002 store")
    both = NodeRecord(OTHER, intent=3, duty="000000002 store")
    assert drained.merged(store) == both == store.merged(drained)
    trains = replace(store, duty="000000003 train")
    assert both.merged(trains) == replace(trains, intent=3) == trains.merged(both)


def test_a_node_that_is_drained_or_taken_off_the_list_keeps_its_role() -> None:
    nodes = table()
    nodes.update(NodeRecord(OTHER, duty="000000001 store"))
    nodes.drain(1, OTHER, True, lambda _: "draining")
    assert nodes.standing().leaving == {OTHER} == nodes.standing().stores
    nodes.dismiss(2, OTHER, there=False)
    nodes.follow((ME, OTHER), ())
    assert nodes.role_of(OTHER) == "store"


def test_who_never_trains_is_not_waited_for() -> None:
    nodes = table()
    nodes.members = lambda: (ME,)
    nodes.update(NodeRecord(OTHER, duty="000000001 witness"))
    assert nodes.away((OTHER, NodeId("third"))) == {"third"}


def test_nodes_of_before_train() -> None:
    assert from_plain(NodeRecord, {"node": "other", "intent": 1}).role == "train"
    assert NodeRecord(OTHER).doing("store").doing("train").role == "train"


def test_a_node_of_before_passes_on_a_role_that_it_does_not_know() -> None:
    spoken = [NodeRecord(OTHER).doing("witness"), NodeRecord(OTHER).doing("witness").doing("train")]
    first, second = (
        NodeRecord(OTHER, unknown=Unknown.of({"duty": record.duty})) for record in spoken
    )
    kept = to_plain(first.merged(second))
    assert from_plain(NodeRecord, kept).role == "train"
