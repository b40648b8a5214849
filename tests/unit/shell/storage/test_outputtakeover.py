"""Who becomes main has the newest that any node of its world knows of main's files before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.core.words.bulk import CopyOutput
from elasticd.errors import OperationError
from elasticd.outputsigns import (
    ask_for_files,
    await_coming,
    have_come,
    note_given,
    want_copies,
)
from elasticd.shell.storage import outputkeeper, outputlooking
from elasticd.shell.storage.outputs import LastWorld
from elasticd.types import JobId
from tests.unit.shell.storage.outputnet import JOB, A, B, C, Net, Node

FIRST: LastWorld = (1, (A, B, C))


@pytest.fixture
def net(tmp_path: Path) -> Net:
    """A has written more since C has copied it; B has that, too."""
    net = Net(tmp_path)
    net.nodes[A].write(step1="one", log="1\n")
    asyncio.run(net.nodes[C].follow())
    net.nodes[A].write(step2="two", log="1\n2\n")
    asyncio.run(net.nodes[B].follow())
    return net


async def entered(net: Net, node: Node, world: LastWorld) -> None:
    """The node enters a world after the first one, and its trainer may go on."""
    net.was, net.world = net.world, world
    await node.keeper.enters(JOB, *world)
    waited = await asyncio.to_thread(await_coming, node.output, 20.0, lambda: True)
    assert waited, "the sign goes at last"


def enter(net: Net, node: Node, world: LastWorld) -> dict[str, str]:
    asyncio.run(entered(net, node, world))
    return node.texts()


NEWEST = {"step1": "one", "step2": "two", "log": "1\n2\n"}


def test_the_newest_copy_comes_from_the_only_node_that_has_it(net: Net) -> None:
    net.lost = {A}
    net.fetched.clear()
    assert enter(net, net.nodes[C], (2, (C, B))) == NEWEST
    assert sorted(net.fetched) == ["log", "step2"], "what it has already is not fetched"
    assert net.told == []


def test_who_has_it_fetches_nothing(net: Net) -> None:
    net.lost = {A}
    net.fetched.clear()
    assert enter(net, net.nodes[B], (2, (B, C))) == NEWEST
    assert net.fetched == []


def test_a_main_that_lives_gives_what_it_has_written_since(net: Net) -> None:
    net.nodes[A].write(step3="three")
    assert enter(net, net.nodes[C], (2, (C, A))) == {**NEWEST, "step3": "three"}
    made = net.nodes[C].outputs.copies.newest(JOB)
    assert made is not None and (made.made.source, made.made.generation) == (A, 1)


def test_who_stays_main_fetches_nothing(net: Net) -> None:
    a = net.nodes[A]
    asyncio.run(a.keeper.enters(JOB, 1, (A, B, C)))
    a.write(step3="three")
    net.fetched.clear()
    assert enter(net, a, (2, (A, C))) == {**NEWEST, "step3": "three"}
    assert net.fetched == []


@pytest.mark.parametrize("text", ["thre3", "th"])
def test_a_damaged_copy_is_passed_over(net: Net, text: str) -> None:
    """What is here stays, and that is said."""
    b, c = net.nodes[B], net.nodes[C]
    net.nodes[A].write(step3="three")
    asyncio.run(c.follow())
    copy = c.outputs.copies.newest(JOB)
    assert copy is not None
    (copy.files / "step3").write_text(text)
    net.lost = {A}
    assert enter(net, b, (2, (B, C))) == NEWEST
    ((kind, reason),) = net.told
    assert kind == "output_not_copied" and "step3 in the copy on c is damaged" in reason
    assert reason.startswith("b, which is main now, goes on without the newest that a, which was")


def test_whoever_does_not_give_it_keeps_the_script_no_longer(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bounds are none in this test: the node that has the files hangs."""
    monkeypatch.setattr(outputkeeper, "TAKE_OVER_SECONDS", 0.05)
    c, net.lost = net.nodes[C], {A}

    async def hangs(*given: object) -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(c.outputs, "fetch", hangs)
    assert enter(net, c, (2, (C, B))) == {"step1": "one", "log": "1\n"}
    ((_, reason),) = net.told
    assert reason.endswith("it takes longer than 0.05 s")


def test_a_copy_that_still_waits_for_the_lost_main_holds_up_nothing(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    c, fetch = net.nodes[C], net.nodes[C].outputs.fetch
    net.nodes[A].write(step3="three")

    async def scene() -> None:
        begun = asyncio.Event()

        async def hangs(node: str, *given: object) -> bool:
            if node != A:
                return await fetch(node, *given)  # type: ignore[arg-type]
            begun.set()
            await asyncio.Event().wait()
            raise OperationError("it never answers")

        monkeypatch.setattr(c.outputs, "fetch", hangs)
        c.keeper.follow(JOB)
        await begun.wait()
        net.lost = {A}
        await entered(net, c, (2, (C, B)))

    asyncio.run(scene())
    assert c.texts() == NEWEST and net.told == []


@pytest.mark.parametrize("broken", ["file", "link"])
def test_where_the_script_can_not_be_kept_waiting_it_is_not(net: Net, broken: str) -> None:
    c, net.lost = net.nodes[C], {A}
    own: dict[str, Callable[[Path], object]] = {
        "file": lambda path: path.write_text("a script's"),
        "link": lambda path: path.symlink_to(c.output),
    }
    own[broken](c.output / ".elasticd")
    assert {**enter(net, c, (2, (C, B)))}.items() >= {"step1": "one"}.items()


def test_what_a_script_keeps_is_copied_at_once(net: Net) -> None:
    """By who is main and has its script, to all that answer."""
    a, b, c = (net.nodes[name] for name in (A, B, C))
    a.write(step3="three")

    async def scene() -> None:
        for node in (a, b):
            await node.keeper.enters(JOB, *FIRST)
        told, follow = asyncio.Event(), b.outputs.follow

        def follows(job: JobId) -> None:
            follow(job)
            told.set()

        b.outputs.follow, net.lost = follows, {C}
        rounds = [asyncio.ensure_future(node.keeper.rounds()) for node in (a, b)]
        want_copies(b.output)  # it isn't main
        want_copies(a.output)
        await asyncio.wait_for(told.wait(), 20.0)
        for task in rounds:
            task.cancel()
        await b.keeper._tasks.ended()

    asyncio.run(scene())
    assert b.copy() == {**NEWEST, "step3": "three"} and "step2" not in c.copy()


async def seen(node: Node, rounds: Callable[[], object]) -> None:
    """The node looks what its script shows, and does what follows."""
    looking = asyncio.ensure_future(node.keeper.rounds())
    rounds()
    await asyncio.sleep(3 * outputlooking.LOOK_SECONDS)
    looking.cancel()
    await node.keeper._tasks.ended()


def test_who_is_given_the_jobs_state_takes_mains_files_at_once_over_its_older_ones(
    net: Net,
) -> None:
    """So whoever is main next has the best model that belongs to the state."""
    a, b, c = (net.nodes[name] for name in (A, B, C))
    for node in (a, b):
        node.write(best="step 12")

    async def scene() -> None:
        net.world = (3, (C, A, B))  # after one in which c was alone
        for node in (a, b):
            await node.keeper.enters(JOB, *net.world)
        c.write(best="step 18")
        await seen(a, lambda: None)
        now, net.world = net.world, FIRST
        await seen(b, lambda: note_given(b.output))
        assert b.texts()["best"] == "step 12", "who is main is not known there yet"
        net.world = now
        await seen(b, lambda: None)
        assert (a.texts()["best"], b.texts()["best"]) == ("step 12", "step 18")
        note_given(a.output)  # and c's trainer is lost before a has looked
        await entered(net, a, (4, (A, B)))

    asyncio.run(scene())
    assert a.texts()["best"] == "step 18"


@pytest.mark.parametrize("what", ["main answers", "main is lost", "nothing is copied"])
def test_who_asks_for_mains_files_hears_when_they_are_there(net: Net, what: str) -> None:
    """As beside a script of another rank that begins anew; or that they can't be had."""
    a, c = net.nodes[A], net.nodes[C]
    if what == "main is lost":
        net.lost = {A}
    if what == "nothing is copied":
        c.keeper.limit_bytes = 0

    async def scene() -> None:
        for node in (a, c):
            await node.keeper.enters(JOB, *FIRST)
        a.write(step3="three")
        asked = ask_for_files(c.output)
        assert not have_come(c.output, asked)
        await asked_for(c, asked)
        assert ask_for_files(a.output) > 0
        await seen(a, lambda: None)

    asyncio.run(scene())
    older = {"step1": "one", "log": "1\n"}
    assert c.texts() == ({**NEWEST, "step3": "three"} if what == "main answers" else older)
    assert a.texts() == {**NEWEST, "step3": "three"}


async def asked_for(node: Node, asked: int) -> None:
    """It looks until what was asked for then is there."""
    looking = asyncio.ensure_future(node.keeper.rounds())
    async with asyncio.timeout(20.0):
        while not have_come(node.output, asked):  # noqa: ASYNC110  a trainer looks there, too
            await asyncio.sleep(0.01)
    looking.cancel()


def test_who_was_away_and_becomes_main_takes_the_files_of_main_before(net: Net) -> None:
    """Before its script is given the state; and nobody takes its older ones meanwhile."""
    a, b, c = (net.nodes[name] for name in (A, B, C))
    for node in (a, b):
        node.write(best="step 12")

    async def scene() -> None:
        for node in (a, b):
            await node.keeper.enters(JOB, *FIRST)
        net.world = (2, (C,))
        await c.keeper.enters(JOB, *net.world)
        c.write(best="step 18")
        net.was, net.world = net.world, (3, (A, B, C))
        for node in (b, c):
            await node.keeper.enters(JOB, *net.world)
            note_given(node.output)
        a.outputs.settled[JOB] = 1  # it has not heard of that world
        for node in (b, c):
            await seen(node, lambda: None)
        assert (b.texts()["best"], c.texts()["best"]) == ("step 12", "step 18")
        await a.keeper.enters(JOB, *net.world)
        await asyncio.to_thread(await_coming, a.output, 20.0, lambda: True)
        assert a.texts()["best"] == "step 18"
        for node in (a, b):  # it says that its files are right now
            await node.keeper._tasks.ended()

    asyncio.run(scene())
    assert b.texts()["best"] == "step 18"


def test_a_copy_from_before_a_node_was_away_replaces_nothing_of_it(net: Net) -> None:
    a, b, c = (net.nodes[name] for name in (A, B, C))
    a.write(best="step 6")
    asyncio.run(b.follow())
    a.write(best="step 12")

    async def scene() -> None:
        await a.keeper.enters(JOB, *FIRST)
        net.lost, net.world = {C}, (2, (C,))
        await entered(net, a, (3, (A, B)))

    asyncio.run(scene())
    assert a.texts()["best"] == "step 12" and c.texts() != {}


def test_of_a_job_that_nobody_knows_no_copy_is_made(net: Net) -> None:
    with pytest.raises(OperationError, match="no job"):
        asyncio.run(net.nodes[B].outputs.serve(CopyOutput(JobId("other"))))
