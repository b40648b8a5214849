"""Beginnings of ids, for every request that names a job or nodes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from elasticd.core.words.requests.chaos import CutLinks
from elasticd.core.words.requests.jobs import CancelJob, ForgetJob
from elasticd.core.words.requests.logs import ReadLogs
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.core.words.requests.nodes import (
    DrainNode,
    ForgetNode,
    PutOutNode,
    ShutDown,
    UndrainNode,
)
from elasticd.core.words.requests.preflight import RunPreflight
from elasticd.errors import OperationError, UsageError
from elasticd.preflight.needs import JobNeeds
from elasticd.shell.control.names import Names, in_full
from elasticd.shell.control.server import Stream
from elasticd.types import JobId, NodeId

JOBS = ("byte-lm-1-aaaa", "byte-lm-2-bbbb", "digits-3-cccc", "digits-3-cccc-4-dddd", "lm-12-77aa")
NODES = ("mac", "mac-2", "pc-1", "mini-90-b", "mini12")
NAMES = Names(lambda: JOBS, lambda: ["gone-1-aaaa"], lambda: NODES, lambda: ("mini-9",))


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("byte-lm-1-aaaa", "byte-lm-1-aaaa"),
        ("byte-lm-1", "byte-lm-1-aaaa"),
        ("digits-3-cccc", "digits-3-cccc"),
        ("digits-3-cccc-", "digits-3-cccc-4-dddd"),
        ("gone-1-aaaa", "gone-1-aaaa"),
        ("gone", "gone"),
        ("lm-1", "lm-1"),
        ("lm-12-7", "lm-12-77aa"),
        ("", ""),
    ],
)
def test_a_beginning_that_fits_one_job(given: str, full: str) -> None:
    assert NAMES.complete(CancelJob(JobId(given))) == CancelJob(JobId(full))


def test_of_several_none_is_taken() -> None:
    with pytest.raises(OperationError, match="several jobs begin with byte: byte-lm-1-aaaa, byte"):
        NAMES.complete(ForgetJob(JobId("byte")))
    many = [f"n-{number}" for number in range(9)]
    with pytest.raises(OperationError, match=r"n-0, n-1, n-2, n-3, n-4 and 4 more$"):
        in_full("n", "node", many)


def test_nodes_and_groups_of_nodes() -> None:
    assert NAMES.complete(DrainNode(NodeId("pc"))).node == "pc-1"
    assert NAMES.complete(DrainNode(NodeId("mac"))).node == "mac"
    groups = ((NodeId("mac"), NodeId("p")), (NodeId("mac-"),))
    assert NAMES.complete(CutLinks("partition", groups, 1.0)).groups == (
        ("mac", "pc-1"),
        ("mac-2",),
    )


@pytest.mark.parametrize(("given", "full"), [("mini-9", "mini-9"), ("mini1", "mini1")])
def test_no_other_node_is_taken_for_one_that_is_gone(given: str, full: str) -> None:
    assert NAMES.complete(DrainNode(NodeId(given))).node == full


@pytest.mark.parametrize(
    "request_",
    [
        DrainNode(NodeId("")), UndrainNode(NodeId("")), ForgetNode(NodeId("")),
        PutOutNode(NodeId("")), CutLinks("link", ((NodeId("mac"),), (NodeId(""),)), 1.0),
        ReadLogs(JobId("lm-1"), node=NodeId("")),
    ],
)  # fmt: skip
def test_no_request_names_a_node_by_nothing(request_: Any) -> None:
    with pytest.raises(UsageError, match=r"'' is no node's id: 1 to 63 letters"):
        NAMES.complete(request_)


def test_who_is_put_out_is_named_in_full() -> None:
    assert NAMES.complete(PutOutNode(NodeId("pc"))).node == "pc"


def test_what_names_nothing_stays() -> None:
    # What a job needs is no id.
    needs = RunPreflight(job=JobNeeds("byte"))
    for request in (ShowStatus(), ShutDown(), ReadEvents(), needs):
        assert NAMES.complete(request) is request


def test_handlers_are_given_ids_in_full() -> None:
    seen: list[Any] = []

    async def handle(request: Any, stream: Any) -> None:
        seen.append(request)

    wrapped = NAMES.completing({ReadLogs: handle})
    stream: Any = None
    asyncio.run(_await(wrapped[ReadLogs](ReadLogs(JobId("byte-lm-2"), 1), stream)))
    assert seen == [ReadLogs(JobId("byte-lm-2-bbbb"), 1)]


async def _await(awaitable: Any) -> None:
    await awaitable


def test_what_is_asked_of_a_job_waits_until_its_preflight_is_over() -> None:
    order, over = list[str](), asyncio.Event()

    async def known(job: JobId) -> None:
        await over.wait()
        order.append(f"known {job}")

    async def handle(request: Any, stream: Stream) -> None:
        order.append(type(request).__name__)

    names = Names(lambda: JOBS, tuple, lambda: NODES, known=known)
    kinds = ShowStatus, CancelJob
    handlers = names.completing({kind: handle for kind in kinds})
    stream = cast(Stream, None)

    async def main() -> None:
        cancelled = asyncio.ensure_future(
            handlers[CancelJob](CancelJob(JobId("digits-3-cccc-4")), stream)
        )
        await handlers[ShowStatus](ShowStatus(job=JobId("byte-lm-1")), stream)
        assert order == ["ShowStatus"]
        over.set()
        await cancelled
        assert order[1:] == ["known digits-3-cccc-4-dddd", "CancelJob"]

    asyncio.run(main())
