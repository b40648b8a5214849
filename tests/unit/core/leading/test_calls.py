"""Results of run.on_main on their way, who gives them, and calls that nobody answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.calling import arranged
from elasticd.core.leading.calls import ResultRelay
from elasticd.core.words.effects import Send
from elasticd.core.words.records import Called, World
from elasticd.core.words.worlds import Agreed, CallResult, Counted, Progress, Returned
from elasticd.recovery.restore import Resume
from elasticd.types import NodeId, Tag, WorkPhase

from .bench import GENERATION, JOB, ME, STAMP, A, B, C, holds, point_of, world_of

SECONDS = 60.0


def returned(index: int, body: int = 1, generation: Tag = GENERATION) -> Returned:
    return Returned(JOB, generation, body, index, b"x%d" % index)


def counted(has: int, wants: int = 0, body: int = 1, step: int = 1) -> Counted:
    return Counted(JOB, GENERATION, body, has, wants, step)


def at(step: int, phase: WorkPhase) -> Progress:
    begun = phase == "compute"
    return Progress(
        JOB, GENERATION, step, STAMP, step, 0.5, phase, 1.0, 0, {}, begun=begun
    )  # fmt: skip


def calls_in(world: World) -> ResultRelay:
    calls = ResultRelay(Context(ME, lambda: "0000", now=50.0), JOB, SECONDS)
    calls.enter(world)
    return calls


def sent(calls: ResultRelay) -> list[tuple[NodeId, object]]:
    """To whom what was sent."""
    found: list[tuple[NodeId, object]] = [
        (e.to, e.message) for e in calls.ctx.effects if isinstance(e, Send)
    ]
    calls.ctx.effects.clear()
    return found


def test_a_result_counts_once_all_have_it() -> None:
    calls = calls_in(world_of(A, B, C))
    calls.hear(A, returned(0))
    result = CallResult(JOB, GENERATION, 1, 0, b"x0")
    assert sent(calls) == [(B, result), (C, result)]
    calls.hear(B, counted(1))
    assert sent(calls) == []
    calls.hear(C, counted(1))
    agreed = Agreed(JOB, GENERATION, 1, 1)
    assert sent(calls) == [(node, agreed) for node in (A, B, C)]


def test_only_the_caller_gives_results() -> None:
    calls = calls_in(replace(world_of(A, B, C), caller=B))
    calls.hear(A, returned(0))
    calls.hear(B, returned(0, generation=Tag(1, A, "old")))
    assert sent(calls) == []
    calls.hear(B, returned(0))
    assert [to for to, _ in sent(calls)] == [A, C]


def test_what_is_told_of_a_world_too_early_is_kept() -> None:
    calls = ResultRelay(Context(ME, lambda: "0000", now=50.0), JOB, SECONDS)
    calls.hear(A, returned(0))
    calls.hear(B, counted(1))
    assert sent(calls) == []
    calls.enter(world_of(A, B))
    assert [type(message) for _, message in sent(calls)] == [CallResult, Agreed, Agreed]


def test_it_is_said_again_in_a_new_view() -> None:
    calls = calls_in(world_of(A, B))
    calls.hear(A, returned(0))
    calls.hear(B, counted(1))
    sent(calls)
    calls.follow()
    calls.hear(B, counted(1))
    assert [message for _, message in sent(calls)] == [Agreed(JOB, GENERATION, 1, 1)] * 2


def test_who_waits_for_what_main_has_passed_is_named() -> None:
    calls = calls_in(world_of(A, B))
    calls.hear(B, counted(0, wants=1))
    assert calls.watches
    assert calls.bodies() == {B: 1}
    assert calls.stuck({A: at(1, "user")}) == ""
    found = calls.stuck({A: at(1, "compute")})
    assert "rank 1 (b) waits in the body of step 1" in found
    assert "rank 0 (a) has made 0" in found
    calls.hear(A, returned(0))
    assert calls.stuck({A: at(1, "compute")}) == ""


def test_who_waits_for_too_long_is_named() -> None:
    calls = calls_in(world_of(A, B))
    calls.hear(B, counted(0, wants=1, body=0, step=0))
    (deadline,) = calls.deadlines()
    assert deadline == calls.ctx.now + SECONDS
    calls.ctx.now = deadline
    assert calls.stuck({A: at(0, "user")}) == ""  # its own deadline holds
    assert "above the loop" in calls.stuck({A: at(0, "reduce")})


# --- the next world -------------------------------------------------------------------------------

POINT = point_of(4)
OLDER = Tag(1, A, "old")


def resume(*sources: str, step: int = 4) -> Resume:
    return Resume(point_of(step), (A, B, C)[: len(sources)], sources, "")


def test_main_is_the_caller() -> None:
    holdings = {n: holds(POINT, GENERATION, calls=(Called(4, 2),)) for n in (A, B)}
    caller, counts, found = arranged(resume("keep", "keep"), holdings)
    assert (caller, counts) == (A, ((4, 2),))
    assert found.sources == ("keep", "keep")


def test_who_knows_the_most_is_the_caller() -> None:
    holdings = {
        A: holds(POINT, GENERATION, calls=(Called(4, 2), Called(5, 1))),
        B: holds(POINT, GENERATION, calls=(Called(4, 2), Called(5, 2))),
        C: holds(POINT, Tag(1, A, "old"), calls=(Called(4, 2), Called(5, 3))),
    }
    assert arranged(resume("keep", "keep", "keep"), holdings)[0] == B


def test_who_takes_the_state_is_no_caller() -> None:
    holdings = {A: holds(point_of(3), GENERATION), B: holds(POINT, GENERATION)}
    assert arranged(resume("updates:b", "keep"), holdings)[0] == B
    assert arranged(resume("checkpoint", "checkpoint"), holdings)[0] == A


def test_who_has_used_other_results_takes_the_state() -> None:
    ours = Called(4, 2, ("same", "ours"))
    theirs = Called(4, 2, ("same", "theirs"))
    short = Called(4, 1, ("same",))
    holdings = {
        n: holds(POINT, GENERATION, calls=(each,))
        for n, each in zip((A, B, C), (ours, theirs, short), strict=True)
    }
    found = arranged(resume("keep", "keep", "keep"), holdings)[2]
    assert found.sources == ("keep", "peer:a", "keep")
    assert found.reason == "; b takes it from a, as results of run.on_main() differ"


def test_who_has_used_other_results_gives_nobody_a_state() -> None:
    holdings = {
        A: holds(POINT, GENERATION, calls=(Called(4, 1, ("ours",)),)),
        B: holds(POINT, OLDER, calls=(Called(4, 1, ("theirs",)),)),
        C: holds(None),
    }
    for source in ("peer:b", "updates:b"):
        found = arranged(resume("keep", "keep", source), holdings)[2]
        assert found.sources == ("keep", "peer:a", "peer:a")


def test_who_has_used_what_the_caller_never_had_takes_the_state() -> None:
    holdings = {
        A: holds(POINT, GENERATION, calls=(Called(4, 1, ("one",)),)),
        B: holds(POINT, OLDER, calls=(Called(4, 2, ("one", "two")),)),
        C: holds(POINT, OLDER, calls=(Called(5, 1, ("other",)),)),
    }
    found = arranged(resume("keep", "keep", "keep"), holdings)[2]
    assert found.sources == ("keep", "peer:a", "peer:a")
    # In one world the caller has it, though it may not know yet that all others do.
    holdings = {n: replace(each, entered=GENERATION) for n, each in holdings.items()}
    assert arranged(resume("keep", "keep", "keep"), holdings)[2].sources == ("keep",) * 3


def test_who_has_begun_the_body_runs_its_calls() -> None:
    # C waits at the door of its first body until B, which waits in a call of that one, comes.
    start = point_of(0)
    for said in (False, None):
        holdings = {
            A: holds(start, GENERATION, given=True, ended=said),
            B: holds(start, OLDER, body=0, calls=(Called(0, 1),), ended=said),
        }
        caller, _, found = arranged(resume("keep", "keep", step=0), holdings)
        assert (caller, found.sources) == (B, ("keep", "keep"))


@pytest.mark.parametrize(("step", "said"), [(0, True), (4, True), (4, None)])
def test_who_is_in_a_body_that_the_caller_never_ran_takes_the_state(
    step: int, said: bool | None
) -> None:
    past = holds(point_of(step), GENERATION, given=True, ended=said)
    inside = None if said is None else False
    holdings = {A: holds(point_of(step), OLDER, body=step, ended=inside), B: past}
    caller, _, found = arranged(resume("keep", "keep", step=step), holdings)
    assert (caller, found.sources) == (B, ("peer:b", "keep"))
    # Not who has ended it, nor who would know of calls that were made in it.
    ended: dict[str, Any] = {"ended": True}
    later: dict[str, Any] = {"body": step + 1, "ended": None}
    along: dict[str, Any] = {"entered": GENERATION}
    for more in (ended, later, along):
        holdings[A] = replace(holds(point_of(step), OLDER, body=step, ended=False), **more)
        sources = arranged(resume("keep", "keep", step=step), holdings)[2].sources
        assert sources == ("keep", "keep"), more
    # With calls that B never had A would make those that are left, with others' results.
    holdings[A] = holds(
        point_of(step), GENERATION, body=step, ended=False, calls=(Called(step, 1),)
    )
    assert arranged(resume("keep", "keep", step=step), holdings)[2].sources == ("peer:b", "keep")


def test_updates_do_not_mend_a_body_that_went_another_way() -> None:
    for body in (3, 4):
        calls = (Called(body, 1, ("theirs",)),)
        holdings = {
            A: holds(POINT, GENERATION, calls=(Called(4, 1, ("ours",)),)),
            B: holds(point_of(3), OLDER, calls=calls),
        }
        assert arranged(resume("keep", "updates:a"), holdings)[2].sources == ("keep", "peer:a")
        holdings[B] = holds(point_of(3), GENERATION, calls=calls)
        assert arranged(resume("keep", "updates:a"), holdings)[2].sources == ("keep", "updates:a")
