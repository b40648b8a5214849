"""Where updates are made: decided before the first one, and kept for all that comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.leading.exactness import agree_on_cpu, verdict
from elasticd.core.leading.oncpu import OnCpu
from elasticd.core.leading.phases.moves import Outcome
from elasticd.core.leading.planning import Start
from elasticd.core.words.records import JobRecord, ProbeDigests, World
from elasticd.core.words.worlds import Form, MemberStatus, Verdict
from elasticd.recovery.restore import Resume
from elasticd.types import Lineage, NodeId, Tag
from tests.unit.core.leading.bench import (
    GENERATION,
    LINE,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    point_of,
    status_of,
    world_of,
)

OTHER = Lineage("22")
LATER = Tag(3, B, "y")


def probe(**changes: Any) -> ProbeDigests:
    return replace(ProbeDigests(True, "g", "u", "l", "s", "c"), **changes)


def test_updates_that_differ_and_agree_on_the_cpu_are_made_there() -> None:
    why = agree_on_cpu([(A, probe()), (B, probe(update="v")), (C, probe())])
    assert why.startswith("updates differ between a and b, and have the same bits on the CPU")


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"update": "v", "cpu_update": "d"},
        {"update": "v", "cpu_update": ""},
        {"update": "v", "gradient": "h"},
        {"update": "v", "layout": "m"},
        {"update": "v", "repeats": False},
        {"update": "v", "state": "t"},
    ],
)
def test_else_they_are_made_as_usual(odd: dict[str, Any]) -> None:
    """Nothing differs, something else does, or it isn't known of each."""
    assert agree_on_cpu([(A, probe()), (B, probe(**odd))]) == ""
    assert agree_on_cpu([(A, probe()), (B, probe(update="v")), (C, probe(**odd))]) == "" or not odd


def test_where_updates_are_made_on_the_cpu_those_are_compared() -> None:
    one, other = (A, probe()), (B, probe(update="v"))
    assert verdict([one, other], on_cpu=True) == (True, "")
    odd = (B, probe(cpu_update="d"))
    assert verdict([one, odd], on_cpu=True) == (False, "updates differ between a and b")
    exact, why = verdict([(B, probe(cpu_update=""))], on_cpu=True)
    assert not exact and why.startswith("updates differ between b, which makes none on the CPU")


def tell(bench: Bench, world: World, *judged: NodeId, **odd: Any) -> None:
    """Fresh members tell their probes, ``b`` another; those that are ``judged`` are not fresh."""
    for node in world.members:
        bench.driver.hear(node, told_by(world, node, judged, None))
    for node in world.members:
        found = probe(**(odd if node == B else {}))
        bench.driver.hear(node, told_by(world, node, judged, found))


def told_by(
    world: World, node: NodeId, judged: tuple[NodeId, ...], found: ProbeDigests | None
) -> MemberStatus:
    told = status_of("active", world)
    assert told.trainer is not None
    trainer = replace(told.trainer, probe=found, judged=node in judged)
    return replace(told, trainer=trainer)


def answered(bench: Bench, world: World, *old: NodeId, step: int = 0) -> World:
    """All hold the state of ``step``, and the next world is formed."""
    held = {
        node: holds(point_of(step), world.generation, on_cpu=node not in old)
        for node in world.members
    }
    bench.answer(**held)
    return bench.form()


def moved(bench: Bench) -> World:
    """The members' updates have moved to the CPU."""
    world = bench.adopt()
    tell(bench, world, update="v")
    return answered(bench, world)


def test_the_world_is_left_for_one_that_makes_them_on_the_cpu() -> None:
    bench = Bench()
    world = moved(bench)
    assert world.on_cpu and world.exact and world.step == 0
    (event,) = bench.told("updates_on_cpu")
    assert event.reason in world.reason and not bench.told("exact_lost")
    assert not bench.told("recovery_started"), "nothing has broken"
    bench.sent(Verdict)
    tell(bench, world, update="v")
    assert [(v.exact, v.reason) for _, v in bench.sent(Verdict)] == [(True, "")] * 3
    shown = bench.driver.summary()
    assert (shown["exact"], shown["updates_on_cpu"]) == (True, True)
    assert bench.driver.historied(bench.record).on_cpu == ((LINE, world.generation, True),)


@pytest.mark.parametrize(
    "change",
    [
        {"judged": (A,)},
        {"step": 5},
        {"inexact": "grains were halved"},
        {"cpu_update": "d"},
    ],
)
def test_a_job_that_has_begun_on_gpus_stays_there(change: dict[str, Any]) -> None:
    """Or that is not exact anyhow; or whose CPUs differ, too: then it isn't exact."""
    inexact = change.pop("inexact", "")
    bench = Bench(**({"inexact": inexact} if inexact else {}))
    world = bench.adopt(step=change.pop("step", 0))
    judged = change.pop("judged", ())
    tell(bench, world, *judged, update="v", **change)
    assert not bench.told("updates_on_cpu")
    assert bench.phase == "running" and bench.driver.summary()["updates_on_cpu"] is False


def test_a_later_leader_goes_on_so_as_worlds_and_records_tell() -> None:
    """What the record says is of a lineage, and of those that come of it."""
    records: list[dict[str, Any]] = [{}, {"on_cpu": ((LINE, GENERATION, True),)}]
    for record in records:
        bench = Bench(**record)
        before = replace(world_of(A, B, C, step=3), on_cpu=not record)
        before = replace(before, generation=GENERATION)
        for node in before.members:
            bench.driver.hear(node, status_of("active", before, 3))
        bench.driver.hear(A, fault(before, A, "ring_broken"))
        bench.say("active", before)
        bench.answer(**{n: holds(point_of(3), GENERATION, on_cpu=True) for n in (A, B, C)})
        orders = bench.sent(Form)
        assert orders and all(order.world.on_cpu for _, order in orders)
        assert not bench.told("exact_lost")


def start(step: int, lineage: Lineage, origin: Lineage | None = None) -> Start:
    resume = Resume(point_of(step, lineage), (A,), ("keep",), "")
    point = None if origin is None else point_of(step, origin)
    return Start(resume, "regroup", origin=point)


def test_it_holds_for_a_lineage_and_those_that_open_from_it() -> None:
    known = OnCpu.of(((LINE, GENERATION, True),))
    assert known.holds_for(start(3, LINE)) and known.holds_for(start(3, OTHER, LINE))
    assert not known.holds_for(start(3, OTHER))
    chosen = OnCpu()
    chosen.choose(LINE)
    assert chosen.holds_for(start(0, LINE)) and chosen.holds_for(start(0, OTHER, LINE))
    assert not chosen.holds_for(start(0, OTHER)), "another beginning decides anew"
    assert not chosen.holds_for(start(1, LINE)), "somebody has made updates meanwhile"


def test_a_leader_of_an_older_version_makes_them_on_gpus_which_is_told() -> None:
    bench = Bench(on_cpu=((LINE, GENERATION, True),))
    newer = world_of(A, B, C, generation=LATER, step=5)
    bench.driver.hear(A, status_of("active", newer))
    (event,) = bench.told("exact_lost")
    assert event.reason.startswith("updates were made on GPUs again in generation 3")
    assert bench.office.exactness.apart, "states may differ, and nobody is to blame"
    assert bench.driver.historied(bench.record).on_cpu == ((LINE, LATER, False),)
    older = Bench(on_cpu=((LINE, LATER, True),))
    older.driver.hear(A, status_of("active", world_of(A, B, C)))
    assert not older.told("exact_lost"), "it was decided since"


def test_a_world_that_began_anew_without_knowing_is_no_loss() -> None:
    """Of the one before it no update was made."""
    bench = Bench(on_cpu=((LINE, GENERATION, True),))
    bench.driver.hear(A, status_of("active", world_of(A, B, C, generation=LATER)))
    assert not bench.told("exact_lost")
    assert bench.driver.historied(bench.record).on_cpu == ((LINE, LATER, False),)


@pytest.mark.parametrize("by_record", [False, True])
def test_a_world_of_which_nobody_knew_has_made_no_update(by_record: bool) -> None:
    """A leader was cut off with it; the others have begun on their GPUs, and stay there."""
    bench = Bench()
    ours = replace(world_of(A, B, generation=LATER), step=3)
    for node in ours.members:
        bench.driver.hear(node, status_of("active", ours, 3))
    bench.driver.hear(C, status_of("ready"))
    assert bench.office.world is not None
    if by_record:
        bench.driver.recall(replace(bench.record, on_cpu=((LINE, GENERATION, True),)))
    else:
        cut_off = replace(world_of(A, B, C), on_cpu=True)
        bench.driver.hear(C, status_of("ready", cut_off))
    assert not bench.told("exact_lost") and not bench.office.exactness.on_cpu.anywhere
    assert bench.driver.historied(bench.record).on_cpu == ((LINE, LATER, False),)


def test_a_member_of_an_older_version_costs_the_promise_and_blames_nobody() -> None:
    bench = Bench()
    world = moved(bench)
    bench.say("active", world)
    bench.driver.hear(A, fault(world, A, "ring_broken"))
    after = answered(bench, world, C)
    assert not after.on_cpu and not after.exact, "all make them at the same place"
    (event,) = bench.told("exact_lost")
    assert event.reason.startswith("updates differ between c and a, b: they were made on the CPU")
    assert bench.office.are_apart({A: "1", C: "2"}, 7)


def test_where_the_same_bits_are_required_it_is_left_out() -> None:
    bench = Bench()
    bench.office.exactness.required = True
    world = moved(bench)
    bench.say("active", world)
    bench.driver.hear(A, fault(world, A, "ring_broken"))
    after = answered(bench, world, C)
    assert not isinstance(bench.driver.end, Outcome)
    assert (after.members, after.on_cpu, after.exact) == ((A, B), True, True)
    (event,) = bench.told("node_unfit")
    assert "upgrade it" in event.reason


def test_records_join_what_either_side_knows() -> None:
    one = Bench(on_cpu=((LINE, GENERATION, True),)).record
    other = replace(one, on_cpu=((LINE, LATER, False), (OTHER, GENERATION, True)))
    both: JobRecord = one.merged(other)
    assert both == other.merged(one)
    assert both.on_cpu == ((LINE, LATER, False), (OTHER, GENERATION, True))
