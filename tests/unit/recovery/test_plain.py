"""What becomes of a plain job's script."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.recovery.plain import (
    GRACE_ROUNDS,
    SAME_FAILURES,
    SETTLE_SECONDS,
    Again,
    Begin,
    Finish,
    GiveUp,
    GoOn,
    LeaveOut,
    Limits,
    NotYet,
    ScriptHistory,
    ScriptWord,
    decide,
)

LIMITS = Limits(restarts=8, steady_seconds=600.0)
FIRST, SECOND = (1, "a", "x"), (2, "a", "y")
MEMBERS = ("a", "b", "c")
RUNS = ScriptHistory(begun=1, ring=FIRST, members=MEMBERS)


def words(
    world: Any = FIRST, members: tuple[str, ...] = MEMBERS, **all_say: Any
) -> list[ScriptWord]:
    all_say = {"by_node": True, **all_say}
    return [
        ScriptWord(world, rank, members, 20_000 + rank, entered_seconds=0.0, **all_say)
        for rank in range(len(members))
    ]


def running(world: Any = FIRST) -> list[ScriptWord]:
    return words(world, ring=FIRST, state="running")


def failed(word: ScriptWord, text: str = "ValueError: no", **more: Any) -> ScriptWord:
    fields = {"state": "failed", "failed_in": FIRST, "status": 1, "text": text, **more}
    return replace(word, **fields)


def test_it_begins_when_all_are_there() -> None:
    told = words()
    assert decide(told[:2], ScriptHistory(), LIMITS)[0] == NotYet()
    order, history = decide(told, ScriptHistory(), LIMITS)
    assert order == Begin(FIRST, (20_000, 20_001, 20_002), restarts=0)
    assert history == RUNS


def test_it_does_not_begin_where_a_rank_has_no_port() -> None:
    told = words()
    assert decide([replace(told[0], port=0), *told[1:]], ScriptHistory(), LIMITS)[0] == NotYet()
    (alone,) = words(members=("a",))
    order, _ = decide([replace(alone, port=0)], ScriptHistory(), LIMITS)
    assert isinstance(order, Begin), "there is no ring of one"


def test_words_of_an_older_world_count_for_nothing() -> None:
    old = words(FIRST, ("a", "b", "c", "d"))[3]
    told = running(SECOND)
    assert decide([*told[:2], running()[2]], RUNS, LIMITS)[0] == NotYet()
    assert decide([old, *told], RUNS, LIMITS)[0] == GoOn(SECOND), "a lost rank's"


def test_it_goes_on_in_a_new_world_of_the_same_members() -> None:
    assert decide(running(SECOND), RUNS, LIMITS) == (GoOn(SECOND), RUNS)


def test_it_begins_anew_where_members_changed() -> None:
    grown = words(SECOND, (*MEMBERS, "d"))
    told = [replace(word, ring=FIRST, state="running") for word in grown[:3]] + grown[3:]
    order, history = decide(told, RUNS, LIMITS)
    assert isinstance(order, Begin) and order.restarts == 1
    assert (history.begun, history.ring, history.members) == (2, SECOND, (*MEMBERS, "d"))
    assert history.failures == 0


def test_a_world_that_shrank_waits_for_a_moment() -> None:
    told = words(SECOND, MEMBERS[:2])
    assert decide(told, RUNS, LIMITS)[0] == NotYet()
    later = [replace(word, entered_seconds=SETTLE_SECONDS) for word in told]
    assert isinstance(decide(later, RUNS, LIMITS)[0], Begin)


def test_it_has_ended_everywhere() -> None:
    done = [replace(word, state="done") for word in running()]
    assert decide([*done[:2], running()[2]], RUNS, LIMITS)[0] == GoOn(FIRST)
    assert decide(done, RUNS, LIMITS)[0] == Finish()


def test_who_comes_when_it_has_ended_everywhere_does_not_begin_it_anew() -> None:
    grown = words(SECOND, (*MEMBERS, "d"))
    done = [replace(word, ring=FIRST, state="done") for word in grown[:3]]
    for newcomer in (grown[3], replace(grown[3], ring=(0, "a", "w"), state="failed")):
        assert decide([*done, newcomer], RUNS, LIMITS)[0] == Finish()
    order, _ = decide([*done[:2], replace(done[2], state="running"), grown[3]], RUNS, LIMITS)
    assert isinstance(order, Begin), "one of them had not ended"
    shrunk = [replace(word, members=MEMBERS[:2], entered_seconds=9.0) for word in done[:2]]
    assert isinstance(decide(shrunk, RUNS, LIMITS)[0], Begin), "nobody knows how the third ended"


def test_what_fails_on_every_rank_alike_ends_the_job() -> None:
    told = [failed(word, "Traceback …\nValueError: no data") for word in running()]
    order, _ = decide(told, RUNS, LIMITS)
    assert isinstance(order, GiveUp)
    assert order.reason == (
        "the script ended with exit status 1 on every rank of 3 (rank 0, a):\n"
        "Traceback …\nValueError: no data"
    )


@pytest.mark.parametrize("follows", [False, True])
def test_a_rank_that_fails_alone_has_all_begin_anew(follows: bool) -> None:
    """Others that only lost it have failed of nothing."""
    first, second, third = running()
    told = [failed(first, "lost", follows=True), failed(second), third]
    if follows:
        told[1] = failed(second, "lost", follows=True)
    history = RUNS
    for _ in range(GRACE_ROUNDS - 1):
        order, history = decide(told, history, LIMITS)
        assert order == NotYet()
    assert decide(told, history, LIMITS)[0] == Again(FIRST, rank=0 if follows else 1)
    ended = [told[0], told[1], failed(third, "lost", follows=True)]
    assert isinstance(decide(ended, RUNS, LIMITS)[0], Again), "all have ended: nothing to wait for"


def after(history: ScriptHistory, world: Any, text: str, **more: Any) -> tuple[Any, ScriptHistory]:
    """Rank 1 had failed in the ring before ``world``."""
    assert history.ring is not None
    told = [replace(w, ring=history.ring, state="running") for w in words(world)]
    told[1] = failed(told[1], text, failed_in=history.ring, **more)
    return decide(told, history, LIMITS)


def test_who_sees_a_failure_of_the_world_before_in_this_one() -> None:
    """That one has ended because of it: nobody ends this one, too."""
    first, second, third = running(SECOND)
    told = [failed(first, "lost", follows=True, failed_in=SECOND), failed(second), third]
    assert isinstance(decide(told, RUNS, LIMITS)[0], Begin)


def fails_on(
    node: str,
    history: ScriptHistory,
    text: str = "ValueError: no",
    count: int = SAME_FAILURES,
    **more: Any,
) -> tuple[Any, ScriptHistory]:
    """So often in a row there, alike; the last order."""
    order: Any = None
    for _ in range(count):
        assert history.ring is not None
        world, before = (history.ring[0] + 1, "a", ""), history
        told = words(world, history.members, ring=history.ring, state="running")
        at = history.members.index(node)
        told[at] = failed(told[at], text, failed_in=history.ring, **more)
        order, history = decide(told, before, LIMITS)
        if order == NotYet():
            order, again = decide(told, history, LIMITS)
            assert again == history, "what is kept of it was kept in the round before"
    return order, history


def without(node: str, history: ScriptHistory) -> ScriptHistory:
    """It begins anew on the others."""
    members = tuple(each for each in history.members if each != node)
    told = words((90, "a", node), members, ring=history.ring, state="running")
    order, history = decide([replace(w, entered_seconds=9.0) for w in told], history, LIMITS)
    assert isinstance(order, Begin) and history.members == members
    return history


def rejoined(node: str, history: ScriptHistory) -> ScriptHistory:
    members = tuple(sorted((*history.members, node)))
    order, history = decide(words((99, "a", node), members), history, LIMITS)
    assert isinstance(order, Begin) and history.members == members
    return history


def test_a_node_on_which_alone_it_fails_again_and_again_is_left_out() -> None:
    order, history = fails_on("b", RUNS, count=SAME_FAILURES - 1)
    assert isinstance(order, Begin) and history.failures == SAME_FAILURES - 1
    order, history = fails_on("b", history, count=1)
    assert isinstance(order, LeaveOut) and order.rank == 1
    assert "exit status 1 3 times in a row (rank 1, b)" in order.reason
    history = without("b", history)
    assert history.failures == history.same == 0, "the others begin with a budget of their own"
    order, _ = decide(words((90, "a", "b"), history.members, ring=history.ring, state="running"),
                      history, LIMITS)  # fmt: skip
    assert isinstance(order, GoOn)


def test_in_the_world_in_which_it_failed_too() -> None:
    """Who lost it has waited for it, and no new world was formed."""
    _, history = fails_on("b", RUNS, count=SAME_FAILURES - 1)
    assert history.ring is not None
    told = words(history.ring, ring=history.ring, state="failed", failed_in=history.ring,
                 status=1, follows=True, text="lost")  # fmt: skip
    told[1] = replace(told[1], follows=False, text="ValueError: no")
    order, history = decide(told, history, LIMITS)
    assert order == NotYet() and history.left
    order, _ = decide(told, history, LIMITS)
    assert isinstance(order, LeaveOut) and order.rank == 1


def test_what_rank_0_alone_fails_of_ends_the_job_on_the_next_one() -> None:
    """It can't save, say: that is the script's doing, and removes no node after node."""
    order, history = fails_on("a", RUNS, "OSError: no room")
    assert isinstance(order, LeaveOut) and order.rank == 0
    order, _ = fails_on("b", without("a", history), "OSError: no room")
    assert isinstance(order, GiveUp)
    assert "3 times in a row, as before on a (rank 0, b)" in order.reason


def test_another_node_that_fails_otherwise_is_left_out_too() -> None:
    _, history = fails_on("a", RUNS)
    order, history = fails_on("b", without("a", history), "KeyError: 3")
    assert isinstance(order, LeaveOut)
    order, _ = fails_on("c", without("b", history), "TypeError: no")
    assert isinstance(order, GiveUp), "nobody else is left"


def test_who_is_tried_again_and_fails_as_before_is_left_out_at_once() -> None:
    _, history = fails_on("b", RUNS)
    history = rejoined("b", without("b", history))
    assert isinstance(fails_on("b", history, count=1)[0], LeaveOut)
    assert isinstance(fails_on("b", history, "KeyError: no", count=1)[0], Begin)
    assert isinstance(fails_on("c", history, count=SAME_FAILURES - 1)[0], Begin)


def test_two_nodes_that_fail_each_time_end_the_job() -> None:
    history, order = RUNS, None
    for count in range(SAME_FAILURES):
        told = words((count + 2, "a", ""), ring=history.ring, state="running")
        for rank in (0, 2):
            told[rank] = failed(told[rank], failed_in=history.ring)
        order, history = decide(told, history, LIMITS)
    assert isinstance(order, GiveUp)


def test_a_node_on_which_it_is_killed_too_often_is_left_out() -> None:
    order, history = fails_on("c", RUNS, "step 3", LIMITS.restarts, status=-9)
    assert isinstance(order, Begin)
    order, _ = fails_on("c", history, "step 3", 1, status=-9)
    assert isinstance(order, LeaveOut) and "9 times in a row, at last (rank 2, c)" in order.reason


def test_who_was_left_out_is_forgotten_once_it_ran_for_long() -> None:
    _, history = fails_on("b", RUNS)
    history = without("b", history)
    _, history = fails_on("c", history, count=1, ran_seconds=LIMITS.steady_seconds)
    assert history.left == ()


def test_the_budget_of_failures_that_differ() -> None:
    history, world = RUNS, 1
    for count in range(1, LIMITS.restarts + 1):
        world += 1
        order, history = after(history, (world, "a", ""), f"{'E' * count}rror: no")
        assert isinstance(order, Begin), count
    order, _ = after(history, (world + 1, "a", ""), "error: at last")
    assert isinstance(order, GiveUp) and "9 times in a row, at last" in order.reason


def test_a_kill_from_outside_is_not_held_against_the_script_so_soon() -> None:
    history = RUNS
    for count in range(1, LIMITS.restarts + 1):
        order, history = after(history, (count + 1, "a", ""), "step 3", status=-9)
        assert isinstance(order, Begin), count


def test_a_script_that_ran_for_long_is_counted_anew() -> None:
    history = RUNS
    for count in range(2 * LIMITS.restarts):
        ran = {"ran_seconds": LIMITS.steady_seconds}
        order, history = after(history, (count + 2, "a", ""), "ValueError: no", **ran)
        assert isinstance(order, Begin) and history.failures == 1


def test_a_lost_member_is_nobodys_failure() -> None:
    told = [
        failed(word, "lost", follows=True, ring=FIRST, entered_seconds=9.0)
        for word in words(SECOND, MEMBERS[:2])
    ]
    order, history = decide(told, RUNS, LIMITS)
    assert isinstance(order, Begin) and history.failures == 0


def test_a_failure_is_counted_once_while_all_wait() -> None:
    """The world has lost a member besides, and waits for another in its place."""
    told = [replace(word, ring=FIRST, state="running") for word in words(SECOND, MEMBERS[:2])]
    told[0] = failed(told[0])
    order, history = decide(told, RUNS, LIMITS)
    assert order == NotYet() and history.failures == 1
    assert decide(told, history, LIMITS) == (order, history)


def test_a_failure_on_every_rank_may_tell_of_its_rank() -> None:
    told = [failed(w, f"RuntimeError: rank {w.rank}, pid {90 + w.rank}") for w in running()]
    assert isinstance(decide(told, RUNS, LIMITS)[0], GiveUp)
    told = [failed(w, f"No room on rank {w.rank}") for w in running()]
    assert isinstance(decide(told, RUNS, LIMITS)[0], GiveUp)
    told[1] = replace(told[1], status=2)
    assert isinstance(decide(told, RUNS, LIMITS)[0], Again)


@pytest.mark.parametrize("status", [1, -11])
def test_what_fails_alike_may_differ_in_numbers_and_in_who_else_fails(status: int) -> None:
    history, order = RUNS, None
    others: tuple[tuple[int, ...], ...] = ((), (0,), (0, 2))
    for count, also in enumerate(others, start=1):
        assert history.ring is not None
        told = [
            failed(w, "[ring] connection to a peer was lost", follows=True, failed_in=history.ring)
            for w in words((count + 1, "a", ""), ring=history.ring)
        ]
        for rank in (1, *also):
            text = f"ValueError: rank {rank}, try {count}" if rank == 1 else f"OSError: {count}"
            told[rank] = failed(
                told[rank], text, failed_in=history.ring, follows=False, status=status
            )
        order, history = decide(told, history, LIMITS)
        assert isinstance(order, NotYet if count == SAME_FAILURES else Begin), count
    order, _ = decide(told, history, LIMITS)
    assert isinstance(order, LeaveOut) and "3 times in a row (rank 1, b)" in order.reason


def test_what_fails_alike_may_say_more_than_a_line() -> None:
    raised = 'Traceback …\n  File "a.py", line 1\n    f()\nValueError: a row:\n'
    _, history = fails_on("b", RUNS, f"{raised}Monday: no", count=1)
    _, history = fails_on("b", history, f"{raised}Tuesday: no", count=1)
    order, _ = fails_on("b", history, f"{raised}no", count=1)
    assert isinstance(order, LeaveOut) and "3 times in a row (rank 1, b)" in order.reason


def test_another_rank_or_another_way_is_not_the_same() -> None:
    history = RUNS
    for count in range(1, LIMITS.restarts + 1):
        order, history = after(history, (count + 1, "a", ""), "no", status=1 + count % 2)
        assert isinstance(order, Begin) and history.same == 1, count


def lost(history: ScriptHistory, world: Any) -> list[ScriptWord]:
    """Rank 1 has left with 0, which the others have noticed."""
    assert history.ring is not None
    return [
        replace(w, state="done", status=0) if w.rank == 1 else
        failed(w, "[ring] connection to a peer was lost", follows=True, failed_in=history.ring)
        for w in words(world, ring=history.ring)
    ]  # fmt: skip


def test_who_leaves_with_0_before_the_others_is_the_cause() -> None:
    why = "rank 1 had exited with status 0 before the others were done"
    history = RUNS
    for count in range(1, SAME_FAILURES):
        assert history.ring is not None
        order, _ = decide(lost(history, history.ring), history, LIMITS)
        assert order == Again(history.ring, rank=0, why=why)
        order, history = decide(lost(history, (count + 1, "a", "")), history, LIMITS)
        assert isinstance(order, Begin)
    assert history.ring is not None
    order, _ = decide(lost(history, history.ring), history, LIMITS)
    assert isinstance(order, GiveUp), "in the world in which it failed: no other is formed"
    assert order.reason.startswith(f"{why}: the script ended with exit status 1 3 times in a row")


def test_who_has_lost_a_killed_trainer_has_the_new_world_begin_at_once() -> None:
    """It is seen only there that the others' scripts ended: that is not its failure."""
    told = [
        failed(w, "[ring] connection to a peer was lost", follows=True, failed_in=SECOND)
        for w in words(SECOND, ring=FIRST)
    ]
    told[1] = replace(words(SECOND)[1], state="none")
    order, history = decide(told, RUNS, LIMITS)
    assert isinstance(order, Begin) and history.failures == 0


RAISED = 'Traceback …\n  File "a.py", line 1\n    f()\nValueError: a row:\nMonday 3: no'
BY_RANK = "1 ended with exit status 1 Monday #"
BY_NODE = "b ended with exit status 1 ValueError"


def mixed(told: list[ScriptWord]) -> list[ScriptWord]:
    """Rank 0 is of the release before."""
    return [replace(told[0], by_node=False), *told[1:]]


def test_while_a_rank_is_of_the_release_before_all_decide_as_it_does() -> None:
    """What that one makes of these words. It compares its state with the others'."""
    history, order = replace(RUNS, last=BY_NODE, same=2, failures=2, left=(BY_NODE,)), None
    for count in range(1, SAME_FAILURES + 1):
        assert history.ring is not None
        told = words((count + 1, "a", ""), ring=history.ring, state="running")
        told[1] = failed(told[1], RAISED, failed_in=history.ring)
        order, history = decide(mixed(told), history, LIMITS)
        assert (history.last, history.same, history.failures) == (BY_RANK, count, count + 2)
        assert history.left == (BY_NODE,), "it doesn't know it, and keeps it as it is"
        assert isinstance(order, GiveUp if count == SAME_FAILURES else Begin)


def test_once_all_are_of_this_release_nodes_are_blamed() -> None:
    ran = replace(RUNS, last=BY_RANK, same=2, failures=2)
    order, history = fails_on("b", ran, RAISED, count=1)
    assert isinstance(order, Begin) and (history.last, history.same) == (BY_NODE, 1)


def test_the_release_before_begins_anew_with_who_comes_when_it_has_ended() -> None:
    grown = words(SECOND, (*MEMBERS, "d"))
    done = [replace(word, ring=FIRST, state="done") for word in grown[:3]]
    assert isinstance(decide(mixed([*done, grown[3]]), RUNS, LIMITS)[0], Begin)
    done = [replace(word, state="done") for word in running()]
    assert decide(mixed(done), RUNS, LIMITS) == (Finish(), RUNS)
