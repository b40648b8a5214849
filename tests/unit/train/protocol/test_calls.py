"""What a trainer knows of calls of run.on_main, from world to world."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from elasticd.core.words import trainers as w
from elasticd.types import NodeId, Point

from .worlds import FIGURES, NODE, START, Protocol, enter, make_step, said, tag, world

OTHER = NodeId("o")


def of_two(
    counter: int,
    rank: int,
    point: Point = START,
    state: Literal["keep", "load", "init"] = "keep",
    caller: int = 0,
    calls: tuple[tuple[int, int], ...] = (),
) -> w.GiveWorld:
    one = world(counter, point, state)
    shares = (*one.shares, ())
    return replace(
        one, rank=rank, size=2, members=(NODE, OTHER), shares=shares, shares_now=shares,
        caller=caller, calls=calls,
    )  # fmt: skip


def result(counter: int, index: int, data: bytes, body: int = 0) -> w.TellResult:
    return w.TellResult(tag(counter), body, index, data)


def holds(protocol: Protocol, serial: int) -> w.TrainerHolds:
    protocol.hear(w.FreezeTrainer(serial))
    (word,) = (each for each in said(protocol) if isinstance(each, w.TrainerHolds))
    return word


def second() -> Protocol:
    """Rank 1, above its loop."""
    protocol = Protocol()
    enter(protocol, of_two(1, 1, state="init"))
    protocol.calls.begins(0)
    return protocol


def test_main_runs_it_and_uses_what_all_have() -> None:
    protocol = Protocol()
    enter(protocol, of_two(1, 0, state="init"))
    assert protocol.calls.called(0, 0) == "run"
    protocol.calls.returned(0, 0, b"x")
    assert said(protocol) == [w.TrainerReturned(tag(1), 0, 0, b"x")]
    assert protocol.calls.called(0, 0) is None
    protocol.hear(w.TellAgreed(tag(1), 0, 1))
    assert protocol.calls.called(0, 0) == b"x"
    assert protocol.calls.called(0, 1) == "run"


def test_a_world_of_one_needs_nobody() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.calls.returned(0, 0, b"x")
    assert said(protocol) == []
    assert protocol.calls.called(0, 0) == b"x"


def test_another_rank_waits_and_says_so_once() -> None:
    protocol = second()
    assert not protocol.calls.has_asked(0, 0, 0)
    protocol.calls.asks(0, 0, 0)
    protocol.calls.asks(0, 0, 0)
    assert said(protocol) == [w.TrainerCounts(tag(1), 0, 0, 1, 0)]
    protocol.hear(result(1, 0, b"x"))
    assert said(protocol) == [w.TrainerCounts(tag(1), 0, 1, 1, 0)]
    assert protocol.calls.called(0, 0) is None
    protocol.hear(w.TellAgreed(tag(1), 0, 1))
    assert protocol.calls.called(0, 0) == b"x"
    protocol.calls.ends(0, 1)
    assert said(protocol) == [w.TrainerCounts(tag(1), 0, 1)]


def test_results_of_another_world_and_out_of_turn_do_not_count() -> None:
    protocol = second()
    protocol.hear(result(2, 0, b"x"))
    assert said(protocol) == []
    protocol.hear(result(1, 1, b"y"))
    assert said(protocol) == [w.TrainerCounts(tag(1), 0, 0)]


def test_the_next_caller_gives_again_what_it_has() -> None:
    protocol = second()
    protocol.hear(result(1, 0, b"x"))
    protocol.hear(w.TellAgreed(tag(1), 0, 1))
    protocol.hear(result(1, 1, b"y"))
    said(protocol)
    held = holds(protocol, 1)
    ((called),) = held.calls
    assert (called.body, called.count, len(called.used), held.body) == (0, 2, 1, 0)
    assert protocol.calls.called(0, 1) is None  # between two worlds
    protocol.hear(of_two(2, 0, calls=((0, 2),)))
    assert said(protocol) == [
        w.TrainerReturned(tag(2), 0, 0, b"x"),
        w.TrainerReturned(tag(2), 0, 1, b"y"),
    ]
    assert protocol.calls.called(0, 0) == b"x"
    assert protocol.calls.called(0, 1) is None
    protocol.hear(w.TellAgreed(tag(2), 0, 2))
    assert protocol.calls.called(0, 2) == "run"


def test_what_nobody_has_used_gives_way_to_what_the_next_caller_has() -> None:
    protocol = second()
    protocol.hear(result(1, 0, b"x"))
    protocol.hear(w.TellAgreed(tag(1), 0, 1))
    protocol.hear(result(1, 1, b"old"))
    holds(protocol, 1)
    protocol.hear(of_two(2, 1, calls=((0, 1),)))
    protocol.hear(result(2, 0, b"x"))
    protocol.hear(result(2, 1, b"new"))
    protocol.hear(w.TellAgreed(tag(2), 0, 2))
    assert [protocol.calls.called(0, n) for n in (0, 1)] == [b"x", b"new"]


def test_what_has_run_in_a_world_that_ended_is_not_given() -> None:
    protocol = Protocol()
    enter(protocol, of_two(1, 0, state="init"))
    holds(protocol, 1)
    protocol.calls.returned(0, 0, b"x")
    protocol.hear(of_two(2, 0, caller=1))
    protocol.calls.returned(0, 0, b"x")
    assert said(protocol) == []
    assert protocol.calls.called(0, 0) is None


def test_what_has_run_in_a_state_that_another_replaces_is_not_given() -> None:
    """Else a job that goes back would use, when it comes to that body again, what its function has
    returned in the state that was given up."""
    protocol = Protocol()
    enter(protocol, of_two(1, 0, replace(START, step=10), "load"))
    protocol.calls.begins(11)
    assert protocol.calls.called(11, 0) == "run"
    holds(protocol, 1)
    protocol.hear(of_two(2, 0, START, "load"))
    protocol.calls.returned(11, 0, b"x")
    assert said(protocol) == []
    assert protocol.calls.called(11, 0) == "void"
    assert holds(protocol, 2).calls == ()


def test_a_body_that_another_state_replaces_is_alone() -> None:
    protocol = second()
    holds(protocol, 1)
    protocol.hear(of_two(2, 1, replace(START, step=7), "load", calls=((7, 1), (0, 1))))
    assert protocol.calls.called(0, 0) is None  # it is given again
    assert protocol.calls.called(0, 1) == "void"
    protocol.held.disown()
    assert holds(protocol, 2).point is None


def test_a_body_behind_the_last_step_is_alone() -> None:
    """The others may be at the end already, and call nothing more."""
    protocol = second()
    protocol.calls.begins(1)
    assert protocol.calls.called(1, 0) is None
    holds(protocol, 1)
    protocol.hear(replace(of_two(2, 1), last=1))
    assert protocol.calls.called(1, 0) is None, "its step is the last"
    holds(protocol, 2)
    protocol.hear(replace(of_two(3, 1), last=0))
    assert protocol.calls.called(1, 0) == "void"


def test_who_takes_a_state_knows_nothing_of_before() -> None:
    protocol = second()
    protocol.hear(result(1, 0, b"x"))
    protocol.hear(w.TellAgreed(tag(1), 0, 1))
    holds(protocol, 1)
    later = replace(START, step=7)
    enter(protocol, of_two(2, 1, later, "load"))
    protocol.begin_update()
    protocol.end_load(later, complete=True)
    assert holds(protocol, 2).calls == ()


def test_it_is_told_whether_the_body_of_the_state_s_step_has_ended() -> None:
    protocol = second()
    assert holds(protocol, 1).ended is False
    protocol.calls.begins(0)
    assert (holds(protocol, 2).ended, holds(protocol, 3).body) == (False, 0)
    protocol.calls.ends(0, 0)
    assert holds(protocol, 4).ended is True
    # Of a state that was brought, what it was where it came from.
    for serial, complete in ((5, False), (6, True)):
        enter(protocol, of_two(serial, 1, START, "load"))
        protocol.begin_update()
        protocol.end_load(START, complete=complete)
        said = holds(protocol, serial)
        assert (said.ended, said.body) == (complete, -1)
    # A step of its own, whose body goes on behind the update.
    enter(protocol, of_two(7, 1, START))
    protocol.calls.begins(1)
    assert holds(protocol, 7).ended is True
    enter(protocol, of_two(8, 1, START))
    protocol.begin_update()
    protocol.end_update(replace(START, step=1), None)
    assert holds(protocol, 8).ended is False


def test_a_state_that_never_came_leaves_what_led_to_ours() -> None:
    """The world ended first, so what we tell is of the state that we still hold."""
    protocol = second()
    protocol.hear(result(1, 0, b"x"))
    protocol.hear(w.TellAgreed(tag(1), 0, 1))
    before = holds(protocol, 1).calls
    protocol.hear(of_two(2, 1, START, "load", calls=((0, 2),)))
    protocol.hear(result(2, 0, b"other"))
    assert protocol.calls.called(0, 0) == b"x"
    assert holds(protocol, 2).calls == before
    assert protocol.calls.called(0, 0) == b"x"


def test_what_was_used_of_a_state_that_never_came_is_told() -> None:
    protocol = second()
    protocol.hear(result(1, 0, b"x"))
    protocol.hear(w.TellAgreed(tag(1), 0, 1))
    (before,) = holds(protocol, 1).calls
    protocol.hear(of_two(2, 1, START, "load", calls=((0, 2),)))
    protocol.hear(result(2, 0, b"other"))
    protocol.hear(result(2, 1, b"next"))
    protocol.hear(w.TellAgreed(tag(2), 0, 2))
    assert [protocol.calls.called(0, n) for n in (0, 1)] == [b"x", b"next"]
    (told,) = holds(protocol, 2).calls
    assert (told.used[:1], len(told.used), told.agreed) == (before.used, 2, tag(2))


def test_what_was_called_before_the_state_is_forgotten() -> None:
    protocol = Protocol()
    enter(protocol, world(1))
    protocol.calls.returned(0, 0, b"x")
    make_step(protocol)
    protocol.calls.returned(1, 0, b"y")
    said(protocol)
    assert [called.body for called in holds(protocol, 1).calls] == [1]


def test_too_few_calls_are_refused() -> None:
    protocol = second()
    protocol.hear(result(1, 0, b"x"))
    said(protocol)
    protocol.calls.ends(0, 0)
    (word,) = said(protocol)
    assert isinstance(word, w.TrainerRefused)
    assert word.reason.startswith("rank 1 (o) called run.on_main() 0 times above the loop, rank 0")


def test_too_few_calls_are_refused_also_when_the_result_comes_late() -> None:
    protocol = second()
    protocol.calls.ends(0, 0)
    protocol.hear(result(1, 0, b"x"))
    assert [type(word) for word in said(protocol)] == [w.TrainerCounts, w.TrainerRefused]


def test_a_restarted_daemon_is_told_results_before_how_far_we_are() -> None:
    protocol = Protocol()
    enter(protocol, of_two(1, 0, state="init"))
    protocol.calls.returned(0, 0, b"x")
    kinds = [type(word) for word in protocol.introduce(FIGURES)]
    assert kinds.index(w.TrainerReturned) < kinds.index(w.TrainerProgress)
    protocol = second()
    protocol.calls.asks(0, 0, 0)
    assert w.TrainerCounts(tag(1), 0, 0, 1, 0) in protocol.introduce(FIGURES)


def test_the_job_s_end_ends_a_wait() -> None:
    protocol = second()
    protocol.hear(w.ReleaseTrainer())
    assert protocol.calls.called(0, 0) == "over"
