"""Members say what they hold: whom the leader asks, believes, and does without."""

from __future__ import annotations

from elasticd.core.leading.phases.freezing import Freezing
from elasticd.core.words.records import View
from elasticd.core.words.worlds import (
    Form,
    Freeze,
)
from elasticd.types import Tag
from tests.unit.core.leading.bench import (
    ME,
    A,
    B,
    Bench,
    C,
    fault,
    holds,
    started,
)


def test_only_answers_to_the_last_question_count() -> None:
    bench = Bench()
    bench.say("ready")
    for node in bench.members:
        bench.driver.hear(node, holds(None, serial="of before"))
    assert bench.phase == "freezing"
    bench.answer(a=holds(None), b=holds(None), c=holds(None))
    assert bench.phase == "forming"


def test_who_says_nothing_is_blamed_and_done_without() -> None:
    bench = Bench()
    bench.say("ready")
    asked = bench.sent(Freeze)
    for node, freeze in asked[:2]:
        bench.driver.hear(node, holds(None, serial=freeze.serial))
    bench.pass_time(3 * bench.ctx.timing.holding_seconds)
    assert bench.phase == "forming"
    assert [node for node, _ in bench.sent(Form)] == [A, B]
    (event,) = bench.told("fault_detected")
    assert (event.fields["culprit"], event.fields["fault"]) == (C, "hang")


def test_whose_trainer_has_ended_is_not_waited_for() -> None:
    bench = Bench()
    world = bench.adopt()
    bench.driver.hear(A, fault(world, A))
    bench.sent(Freeze)
    bench.say("active", world, B, C)
    bench.driver.hear(A, fault(world, B))
    freezing = bench.driver.stage.phase
    assert isinstance(freezing, Freezing)
    assert freezing.asked == {C}


def test_a_view_voids_what_was_asked() -> None:
    bench = Bench()
    bench.say("ready")
    (_, before), *_ = bench.sent(Freeze)
    bench.driver.on_view(View(Tag(2, ME, "w"), bench.members), ())
    assert (bench.phase, bench.why) == ("waiting", "waiting to hear from a, b, c")
    bench.driver.hear(A, holds(None, serial=before.serial))
    assert bench.phase == "waiting"


def test_a_ring_that_breaks_as_its_world_is_left_on_purpose_is_no_fault() -> None:
    bench = Bench()
    world = started(bench)
    bench.driver.want(bench.record, frozenset({C}), frozenset())
    bench.progress(world, 2)
    assert bench.phase == "freezing"
    bench.driver.hear(B, fault(world, B, "ring_broken", "its neighbour has gone"))
    assert bench.office.account.recovery is None
