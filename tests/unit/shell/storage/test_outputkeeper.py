"""Main's output folder is copied to other nodes, and found again when main is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import OperationError
from elasticd.outputs import OutputSet
from elasticd.shell.storage.outputs import LastWorld, last_world
from elasticd.types import JobId, NodeId
from tests.unit.shell.storage.outputnet import JOB, LIMIT, A, B, C, Client, Net, Node


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Net]:
    yield Net(tmp_path)


def follow(node: Node) -> None:
    asyncio.run(node.follow())


def follow_while(net: Net, node: Node, served: Callable[[str], object]) -> dict[str, str]:
    """What the node has copied when ``served`` happens to each file that it opens."""
    net.served = served
    follow(node)
    net.served = lambda name: None
    return node.copy()


def test_only_what_has_changed_is_fetched(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one", y="two")
    follow(b)
    assert b.copy() == b.texts() == {"x": "one", "y": "two"}
    assert sorted(net.fetched) == ["x", "y"]
    net.fetched.clear()
    follow(b)
    assert net.fetched == []
    a.write(y="other")
    (a.output / "x").unlink()
    follow(b)
    assert net.fetched == ["y"] and b.copy() == b.texts() == {"y": "other"}


def test_main_copies_nothing(net: Net) -> None:
    net.nodes[B].write(x="another rank's")
    follow(net.nodes[A])
    assert net.fetched == [] and net.nodes[A].copy() == {}


def test_a_file_that_is_always_being_replaced_stays_as_it_was(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one", y="y")
    follow(b)

    def replace(name: str) -> None:
        (a.output / "next").write_text(f"{len(net.fetched)}")
        os.replace(a.output / "next", a.output / "x")

    replace("x")
    assert follow_while(net, b, replace) == {"x": "one", "y": "y"}
    follow(b)
    assert b.copy() == a.texts()


def test_of_a_file_that_grows_the_beginning_is_copied(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one ")

    def append(name: str) -> None:
        with (a.output / "x").open("a") as file:
            file.write("more ")

    assert follow_while(net, b, append) == {"x": "one "}
    follow(b)
    assert b.copy() == a.texts()


def test_a_file_that_is_cut_while_it_comes_is_fetched_again(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="a long text")

    def cut(name: str) -> None:
        if len(net.fetched) == 1:
            a.write(x="short")

    assert follow_while(net, b, cut) == {"x": "short"}


def test_a_copy_that_fails_leaves_the_last_one(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one", y="one")
    follow(b)
    a.write(x="two", y="two")

    def fail(name: str) -> None:
        net.lost.add(A)
        raise OperationError("it went away")

    assert follow_while(net, b, fail) == b.texts() == {"x": "one", "y": "one"}
    net.lost.clear()
    follow(b)
    assert b.copy() == {"x": "two", "y": "two"}


def test_what_is_too_much_is_left_out_and_said_once(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(small="s", big="b" * LIMIT)
    follow(b)
    follow(net.nodes[C])
    assert b.copy() == {"small": "s"}
    ((reason, files),) = net.events
    assert files == ["big"] and "big" in reason


def test_a_folder_that_was_lost_takes_no_copy_with_it(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one")
    follow(b)
    (a.output / "x").unlink()
    follow(b)
    assert b.copy() == b.texts() == {"x": "one"}


def test_who_comes_later_gets_the_newest_copy_before_its_trainer_starts(net: Net) -> None:
    a, b, c = net.nodes[A], net.nodes[B], net.nodes[C]
    a.write(x="old")
    follow(b)
    net.world = (2, (B, A))
    b.write(x="new")
    follow(a)
    (c.files.home).mkdir(exist_ok=True)
    net.lost, c.runs = {B}, False
    c.write(x="older still")
    asyncio.run(c.keeper.prepare(JOB))
    assert c.texts() == {"x": "new"}


def test_who_was_main_keeps_its_own(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one")
    follow(b)
    a.write(x="two, since the checkpoint")
    a.runs = False
    asyncio.run(a.keeper.prepare(JOB))
    assert a.texts() == {"x": "two, since the checkpoint"}


def test_a_node_without_its_disk_gets_its_files_back(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one")
    follow(b)
    (a.output / "x").unlink()
    asyncio.run(a.keeper.prepare(JOB))
    assert a.texts() == {"x": "one"}


def test_mains_files_are_handed_out_from_any_node(net: Net) -> None:
    net.nodes[A].write(x="one", y="two")
    for node in (A, C):
        client = Client(net.nodes[node])
        assert client.files == {"x": "one", "y": "two"}
        assert (client.head["node"], client.head["copy"], client.head["bytes"]) == (A, False, 6)


def test_without_main_the_newest_copy_is_handed_out(net: Net) -> None:
    a, b, c = net.nodes[A], net.nodes[B], net.nodes[C]
    a.write(x="one")
    follow(c)
    a.write(x="later")
    follow(b)
    net.lost = {A}
    for node in (b, c):
        client = Client(node)
        assert client.files == {"x": "later"}
        assert (client.head["node"], client.head["main"], client.head["copy"]) == (B, A, True)


def test_without_any_copy_another_ranks_own_files_are_handed_out(net: Net) -> None:
    net.nodes[C].write(x="c's")
    net.lost = {A}
    client = Client(net.nodes[B])
    assert client.files == {"x": "c's"} and "a is not connected" in client.head["note"]


def test_a_file_that_is_gone_by_then_is_said(net: Net) -> None:
    a = net.nodes[A]
    a.write(x="one", y="two")

    def remove(name: str) -> None:
        (a.output / "y").unlink(missing_ok=True)

    net.served = remove
    assert Client(net.nodes[B]).files == {"x": "one", "y": None}


@pytest.mark.parametrize(
    ("world", "lost", "why"),
    [
        (None, set(), "has not trained"),
        ((1, (A, B)), set(), "has written no file"),
        ((1, (A, B)), {A}, "a is not connected.*start its daemon"),
    ],
)
def test_why_there_is_nothing(
    net: Net, world: LastWorld | None, lost: set[NodeId], why: str
) -> None:
    net.world, net.lost = world, lost
    with pytest.raises(OperationError, match=why):
        Client(net.nodes[B])


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (None, "job has no output: it has not trained"),
        ((1, (A, B)), "job has no output: its script has written no file to run.output_dir"),
    ],
)
def test_an_ended_job_will_have_none(net: Net, world: LastWorld | None, why: str) -> None:
    net.world, net.ended = world, True
    with pytest.raises(OperationError, match=why):
        Client(net.nodes[B])


def test_a_job_that_nobody_knows_has_no_files(net: Net) -> None:
    async def ask(copy: bool) -> OutputSet:
        return await net.nodes[A].outputs.own_set(JobId("../other"), copy)

    for copy in (False, True):
        with pytest.raises(OperationError, match="no job"):
            asyncio.run(ask(copy))


def test_a_copy_is_never_written_in(net: Net) -> None:
    """A file that is linked into the next copy, and then is another: main dies meanwhile."""
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="kept", y="one")
    follow(b)
    a.write(y="two")

    def lose(name: str) -> None:
        if name == "y":
            (a.output / "next").write_text("other")
            (a.output / "next").rename(a.output / "x")
        else:
            net.lost.add(A)
            raise OperationError("it went away")

    net.served = lose
    follow(b)
    assert b.copy() == {"x": "kept", "y": "one"}


def test_a_trainer_starts_whatever_prepare_meets(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    b = net.nodes[B]

    def broken(job: JobId) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(b.outputs.copies, "newest", broken)
    asyncio.run(b.keeper.prepare(JOB))


def test_skipped_files_are_told_once_whoever_asks(net: Net) -> None:
    a = net.nodes[A]
    a.write(big="x" * 600, huge="x" * 900)

    async def ask() -> None:
        for limit in (500, 700, 500, 700):
            await net.nodes[B].outputs.ask_set(A, JOB, False, limit)

    asyncio.run(ask())
    assert [files for _, files in net.events] == [["big", "huge"]]


def test_one_bad_entry_stops_no_other_file(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(**{"x": "one", ".elasticd": "a file"})
    follow(b)
    assert b.copy() == {"x": "one"}
    ((reason, files),) = net.events
    assert files == [".elasticd"] and ".elasticd" in reason


def test_that_nothing_can_be_copied_is_told_and_why_an_older_copy_comes(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(x="one")
    follow(b)

    async def refuses(job: JobId, copy: bool, steps: bool = False) -> OutputSet:
        if copy:
            return await own_set(job, copy, steps)
        raise OperationError("its disk is broken")

    own_set, a.outputs.own_set = a.outputs.own_set, refuses  # type: ignore[method-assign]
    follow(b)
    follow(b)
    ((kind, reason),) = net.told
    assert kind == "output_not_copied" and "its disk is broken" in reason
    client = Client(b)
    assert client.files == {"x": "one"} and "its disk is broken" in client.head["note"]


def test_that_main_is_away_is_no_event(net: Net) -> None:
    net.lost = {A}
    follow(net.nodes[B])
    assert net.told == []


def test_who_finished_a_job_has_its_output_though_another_half_formed_more_worlds() -> None:
    def formed(generation: int, *members: str) -> dict[str, Any]:
        return {"kind": "world_formed", "generation": generation, "members": list(members)}

    told = [formed(7, "a", "b"), formed(8, "b"), formed(10, "a", "c")]
    done = {"kind": "job_finished", "generation": 8, "steps": 300}
    assert last_world(told, None) == (10, ("a", "c"))
    assert last_world([*told, done], None) == (8, ("b",))
    assert last_world([*told, done], (12, (NodeId("c"),))) == (8, ("b",))
    assert last_world([done], (12, (NodeId("c"),))) == (12, ("c",))
    assert last_world([{"kind": "world_formed", "generation": None}], None) is None
