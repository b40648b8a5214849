"""What a trainer says again to a daemon that was restarted."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.words import trainers as w
from elasticd.recovery.samples import Samples
from elasticd.types import Lineage, Point, Stamp

from .worlds import (
    FIGURES,
    START,
    Protocol,
    State,
    after,
    ask,
    enter,
    make_step,
    said,
    tag,
    world,
)

# --- freeze and update ----------------------------------------------------------------------------


def test_a_restarted_daemon_asks_anew() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.begin_update()
    protocol.hear(w.FreezeTrainer(1))
    ask(protocol, START)
    (here,) = protocol.introduce(FIGURES)
    assert isinstance(here, w.TrainerHere) and (here.serial, here.generation) == (1, None)
    protocol.end_update(*after(START, tag(1)))
    protocol.hold(State(START))
    assert said(protocol) == []


def test_a_restarted_daemon_hears_what_the_old_one_may_have_missed() -> None:
    protocol = Protocol()
    samples = Samples(1, {"data/sample 0": "x"})
    protocol.say(w.TrainerAtRun({"w": "float32"}, samples))
    enter(protocol, world(1))
    point = make_step(protocol)
    probe = w.TrainerProbed(True, "g", "u", "l", point.stamp)
    protocol.probe(probe)
    digest = w.TrainerDigest(tag(1), 1, point.stamp, "d")
    protocol.say(digest)
    protocol.finish(point)
    here, came, progress, *rest = protocol.introduce(FIGURES)
    assert isinstance(here, w.TrainerHere) and came == w.TrainerCame(tag(1))
    assert (here.fingerprint, here.entered, here.used) == ({"w": "float32"}, tag(1), True)
    assert here.samples == samples
    assert isinstance(progress, w.TrainerProgress) and progress.committed == 1
    assert rest == [
        replace(probe, generation=tag(1)), digest, w.TrainerFinished(tag(1), 1, point.stamp),
    ]  # fmt: skip
    protocol.hear(w.TellVerdict(tag(1), True, ""))
    protocol.lose_reducer("why")
    here, _, *rest = protocol.introduce(FIGURES)
    assert isinstance(here, w.TrainerHere) and here.judged
    assert rest == [
        digest, w.TrainerFinished(tag(1), 1, point.stamp), w.TrainerLostReducer(tag(1), "why"),
    ]  # fmt: skip


def test_a_grain_of_a_world_before_is_not_told_again_in_another() -> None:
    """Nobody compares it: it is computed anew there."""
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.probe(w.TrainerProbed(True, "g", "u", "l", START.stamp))
    protocol.hear(w.FreezeTrainer(1))
    enter(protocol, world(2, state="keep"))
    assert not [word for word in protocol.introduce(FIGURES) if isinstance(word, w.TrainerProbed)]


def test_what_the_script_asks_for_is_told_again_until_there_is_another_world() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    point = make_step(protocol)
    asked = w.TrainerStops(tag(1), point.step, "enough")
    protocol.say(asked)
    assert protocol.introduce(FIGURES)[-1] == asked
    enter(protocol, world(2))
    assert asked not in protocol.introduce(FIGURES)


def test_only_a_state_that_is_in_place_counts_as_entered() -> None:
    protocol = Protocol()
    enter(protocol, world(1, Point(Lineage("l"), 3, Stamp("s")), "load"))
    here, _ = protocol.introduce(FIGURES)
    assert isinstance(here, w.TrainerHere) and (here.generation, here.entered) == (tag(1), None)
    protocol.begin_update()
    protocol.end_load(Point(Lineage("l"), 3, Stamp("s")), complete=True)
    protocol.hold(State(Point(Lineage("l"), 3, Stamp("s"))), loaded=True)
    here, *_ = protocol.introduce(FIGURES)
    assert isinstance(here, w.TrainerHere) and here.entered == tag(1)


def test_a_restarted_daemon_hears_of_a_state_that_was_brought_until_a_world_is_entered() -> None:
    protocol = Protocol()
    point = Point(Lineage("l"), 3, Stamp("s"))
    protocol.held.point = point
    protocol.prepared(1, "")
    protocol.prepared(2, "a holder died")
    (here,) = protocol.introduce(FIGURES)
    assert isinstance(here, w.TrainerHere) and here.prepared == point
    enter(protocol, world(1))
    here, *_ = protocol.introduce(FIGURES)
    assert isinstance(here, w.TrainerHere) and here.prepared is None


def test_of_shards_the_last_four_reports_are_told_again() -> None:
    protocol = Protocol()
    reports = [
        w.TrainerWrote(tag(1), START.lineage, step, Stamp(""), 1, (), "", "", 0.0, 0.0)
        for step in range(6)
    ]
    for report in reports:
        protocol.say(report)
    assert protocol.introduce(FIGURES)[1:] == reports[2:]


def test_shards_that_were_not_written_are_told_of_again_until_they_are() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    named = (tag(1), START.lineage, 5, Stamp("s"), 1)
    other = w.TrainerSkipped(tag(1), START.lineage, 4, Stamp("r"), 1, "late", False)
    full = w.TrainerSkipped(*named, "no room", True)
    wrote = w.TrainerWrote(*named, (), "", "", 0.0, 0.0)
    protocol.say(other)
    protocol.say(full)
    assert protocol.introduce(FIGURES)[3:] == [other, full]
    protocol.say(wrote)
    assert protocol.introduce(FIGURES)[3:] == [other, wrote]
    enter(protocol, world(2))
    assert other not in protocol.introduce(FIGURES)
