"""A step that kills: to whom a leader gives it, and what a later leader knows of that."""

from __future__ import annotations

from dataclasses import replace

from elasticd.checkpoints.manifest import Stored
from elasticd.core.leading import poison
from elasticd.core.leading.account import FRUITLESS_LIMIT
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Form, Freeze
from elasticd.recovery.poison import ALONE, Dealt
from elasticd.recovery.restore import Resume
from elasticd.types import Tag
from tests.unit.core.leading.bench import (
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    manifest_of,
    point_of,
    started,
    status_of,
    world_of,
)

DEADLY = 11


def killed(bench: Bench, step: int = DEADLY) -> None:
    """The step has ended trainers so often that one node is to compute it."""
    ladder = bench.driver.office.trust.ladder
    samples = {A: ((0, 4),), B: ((4, 8),)}
    for counter in range(ALONE):
        tag = Tag(counter + 1, A, "x")
        ladder.begin(Dealt(tag, step, samples, samples))
        ladder.took(B, "signal 9", step, tag, float(counter), short=False)


def at(step: int) -> Resume:
    return Resume(point_of(step), (A, B), ("keep", "keep"), "")


def test_one_node_has_all_steps_up_to_the_one_that_kills_and_no_later_ones() -> None:
    bench = Bench()
    office = bench.driver.office
    cut = office.relief.cut()
    usual = (((0, 4),), ((4, 8),))
    assert poison.deal(office, cut, at(8), (usual, usual)) == poison.Deal(usual, usual)
    killed(bench)
    everything = ((cut.whole,), ())
    deal = poison.deal(office, cut, at(8), (usual, usual))
    assert (deal.now, deal.later) == (everything, everything)
    assert deal.why.startswith("step 11 has ended")
    assert deal.alone
    deal = poison.deal(office, cut, at(DEADLY - 1), (usual, usual))
    assert (deal.now, deal.later) == (everything, usual)
    assert not deal.alone


def test_a_later_leader_has_all_compute_again() -> None:
    """It knows nothing of the step that kills, and would leave it to one node for ever."""
    bench = Bench()
    whole = ((bench.driver.office.relief.cut().whole,), (), ())
    alone = replace(world_of(A, B, C, step=8), shares_now=whole, shares=whole, alone=True)
    bench.say("active", alone, A, B, C)
    bench.progress(alone, 9)
    assert {to for to, _ in bench.sent(Freeze)} == {A, B, C}


def test_a_usual_world_of_which_one_has_all_grains_is_left_as_it_is() -> None:
    bench = Bench()
    whole = ((bench.driver.office.relief.cut().whole,), (), ())
    world = replace(world_of(A, B, C, step=8), shares_now=whole, shares=whole)
    bench.say("active", world, A, B, C)
    bench.progress(world, 9)
    assert bench.sent(Freeze) == []


def hang_at(bench: Bench, world: World, step: int) -> World:
    """The script of ``b`` sleeps in that step's body; the others go on with what they hold."""
    bench.driver.hear(B, fault(world, B, "hang", f"it was in phase user of step {step}"))
    held = {n: holds(point_of(step - 1), world.generation) for n in (A, C)}
    bench.answer(**held, b=holds(None))
    world = bench.form()
    bench.say("active", world)
    return world


def test_which_step_hangs_again_is_told_from_the_second_time_on() -> None:
    bench = Bench()
    world = started(bench)
    world = hang_at(bench, world, 2)
    assert bench.driver.summary()["reason"] is None
    world = hang_at(bench, world, 2)
    told = "step 2 has ended trainers 2 times: a hang on b"
    assert bench.driver.summary()["reason"] == f"{told}; b: it was in phase user of step 2"
    assert bench.driver.summary()["state"] == "running"
    for kind in ("recovery_started", "world_formed"):
        *_, before, last = bench.told(kind)
        assert last.reason.endswith(f"; {told}") and told not in before.reason, kind
    for _ in range(9):
        bench.driver.hear(B, fault(world, B, "hang", "it was in phase user of step 2"))
        bench.answer(a=holds(point_of(1), world.generation), c=holds(point_of(1)), b=holds(None))
        if bench.phase == "waiting":
            break
        world = bench.form()
        bench.say("active", world)
    said = bench.driver.summary()
    assert said["state"] == "parked"
    assert said["reason"].startswith("step 2 has ended trainers ") and "in a row" in said["reason"]


def test_once_the_step_is_committed_nothing_is_told_of_it() -> None:
    bench = Bench()
    world = hang_at(bench, hang_at(bench, started(bench), 2), 2)
    assert bench.driver.summary()["reason"]
    bench.progress(world, 2)
    assert bench.driver.summary()["reason"] is None


def lose(world: World, *, back: bool = False, said: bool = False) -> World:
    """A new leader finds that ``a`` was lost, and is back as another run, or not; what it makes."""
    bench = Bench() if back else Bench(B, C)
    if said:
        bench.ctx.departures.note(A, 48.0, "its daemon stops", on_purpose=True)
    bench.say("active", world, B, C)
    if back:
        bench.driver.hear(A, replace(status_of("ready", world), ready=False))
    held = holds(point_of(DEADLY - 1), world.generation)
    bench.answer(a=holds(None), b=held, c=held)
    made: World = bench.sent(Form)[0][1].world
    return made


def again(world: World, made: World) -> World:
    """The world that was made takes ``a`` in, too, and comes to that step again."""
    tag = Tag(world.generation.counter + 1, A, "x")
    return replace(
        world, generation=tag, tried=made.tried, fruitless=made.fruitless, furthest=made.furthest
    )


def test_what_was_tried_outlives_the_leader_whose_machine_the_step_takes_down() -> None:
    """Each time another node leads, and knows no more than members tell of their world."""
    world = world_of(A, B, C, step=DEADLY - 1)
    for times in range(1, 4):
        made = lose(world, back=True)
        tried = [(each.step, dict(each.died)) for each in made.tried]
        assert tried == [(DEADLY, {A: False})] * times
        assert (made.fruitless, made.furthest) == (max(0, times - 1), DEADLY - 1)
        told = f"step {DEADLY} has ended trainers {times} times: the loss of the node on a"
        assert (told in made.reason) == (times > 1)
        world = again(world, made)


def test_a_node_that_is_cut_off_again_and_again_says_nothing_of_the_step() -> None:
    world = world_of(A, B, C, step=DEADLY - 1)
    for times in range(1, ALONE + 2):
        made = lose(world)
        assert [dict(each.died) for each in made.tried] == [{A: True}] * times
        assert (made.fruitless, made.alone) == (0, False) and "has ended" not in made.reason
        assert all(made.shares)
        world = again(world, made)


def test_a_node_that_has_said_that_it_goes_has_not_died_of_the_step() -> None:
    world = world_of(A, B, C, step=DEADLY - 1)
    assert lose(world, said=True).tried == ()


def test_progress_that_only_checkpoints_tell_of_ends_a_row_of_fruitless_recoveries() -> None:
    """All machines are shut down each evening, and train all day."""
    world = replace(world_of(A, step=100), fruitless=FRUITLESS_LIMIT + 1, furthest=100)
    bench = Bench(A)
    stored = (Stored(manifest_of(900, A), (0,)),)
    bench.driver.hear(A, replace(status_of("ready", world), stored=stored, ready=False))
    bench.answer(a=holds(None))
    made = bench.form()
    assert (made.step, made.fruitless, made.furthest) == (900, 1, 900)
    assert not bench.told("job_parked")


def test_progress_that_members_tell_of_does_so_too() -> None:
    world = replace(world_of(A, B), fruitless=FRUITLESS_LIMIT + 1, furthest=100)
    bench = Bench(A, B)
    bench.driver.hear(A, status_of("active", world, 120))
    bench.driver.hear(B, replace(status_of("ready", world), ready=False))
    bench.answer(a=holds(point_of(120), world.generation), b=holds(None))
    assert bench.phase == "forming" and bench.office.account.fruitless == 0


def test_where_nobody_is_left_only_what_is_stored_is_progress() -> None:
    """The only machine goes down again and again, some steps behind its newest checkpoint."""
    manifest, world = manifest_of(5, A), world_of(A, step=5)
    for times in range(1, 12):
        bench = Bench(A)
        told = replace(status_of("ready", world), stored=(Stored(manifest, (0,)),), ready=False)
        bench.driver.hear(A, told)
        bench.answer(a=holds(None))
        if times > FRUITLESS_LIMIT + 1:
            assert bench.driver.summary()["state"] == "parked"
            assert f"{times - 1} recoveries in a row" in bench.why
            bench.pass_time(bench.office.tries.rests_until - bench.ctx.now)
            bench.answer(a=holds(None))
        made = bench.form()
        bench.say("active", made)
        bench.progress(made, 7)
        assert bench.office.account.fruitless == made.fruitless == times
        world = made
    later = replace(manifest_of(10, A, lineage=world.lineage), parent=world.parent)
    bench.driver.hear(A, replace(status_of("active", world), stored=(Stored(later, (0,)),)))
    bench.progress(world, 11)
    assert bench.office.account.fruitless == 0
