"""One node: what it hears from whom, what it passes on, when it wakes, and what it never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticd.core.node import InvariantError, Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words.records import Heard, JobRecord, World
from elasticd.core.words.requests.nodes import NodeChanged
from elasticd.core.words.stable import Found, Stable
from elasticd.core.words.tables import Departing, NodesKept
from elasticd.core.words.views import Obituary, Probe
from elasticd.core.words.worlds import Noted, Notice
from elasticd.types import JobId, NodeId, Tag
from tests.unit.core.leading.bench import JOB, A, B, C, spec_of, status_of, world_of
from tests.unit.core.membership.wires import Wires

RECORD = JobRecord(JOB, 1, spec_of().to_dict(), "digest", "running")

HALVES = (((0, 4),), ((4, 8),))
SOUND = replace(world_of(A, B), shares=HALVES, shares_now=HALVES)


def alone(**stable: Any) -> Node:
    """A node that expects nobody else."""
    return Node(Who(A, "a1", lambda: "0000", 0), Found(Stable(**stable)))


def told(effects: list[e.Effect], kind: type[Any]) -> list[tuple[NodeId, Any]]:
    """Messages of a kind, to whom."""
    sends = [effect for effect in effects if isinstance(effect, e.Send)]
    return [(send.to, send.message) for send in sends if isinstance(send.message, kind)]


def inherit(world: World) -> None:
    """A new leader hears of a world that one before it has made."""
    wires = Wires(A, B)
    wires.connect(A, B)
    node = wires.nodes[A]
    node.step(wires.now, e.Submit(1, RECORD))
    status = replace(status_of("active", world), epoch=node.views.epoch)
    node.step(wires.now, e.Received(B, status))


def led(*members: NodeId) -> Wires:
    """Nodes with a view and a job, which the first one leads."""
    wires = Wires(*members)
    wires.connect(*members)
    wires.post(members[0], e.Submit(1, RECORD))
    wires.settle()
    assert wires.nodes[members[0]].views.leading
    return wires


def test_a_daemon_that_begins_tells_how_far_its_jobs_have_come() -> None:
    world = replace(SOUND, step=40, recoveries=3, lost_steps=2)
    stale = e.Reached(JOB, Tag(world.generation.counter - 1, A, "old"), 90)
    for reached, step in (((), 40), ((e.Reached(JOB, world.generation, 58),), 58), ((stale,), 40)):
        node = alone(records=(RECORD,), worlds=(world,), reached=reached)
        shown = node.job_status(JOB)
        assert (shown["step"], shown["recoveries"], shown["lost_steps"]) == (step, 3, 2)
        assert shown["generation"] == world.generation.counter
        assert shown["ranks"] == []


# --- the contract ---------------------------------------------------------------------------------


def test_what_a_node_says_to_itself_it_hears_before_it_rests() -> None:
    node = alone()
    node.step(100.0, e.Tick())
    assert node.views.view is not None and node.views.leading
    assert node.followed == node.views.epoch
    assert not node.ctx.inbox


def test_a_node_is_woken_later_than_now_and_at_least_each_second() -> None:
    node = alone()
    node.step(100.0, e.Tick())
    assert 100.0 < node.next_deadline() <= 101.0
    assert node.due == node.next_deadline()


def test_a_node_that_starts_again_counts_on_from_what_it_has_kept() -> None:
    """An epoch of before is never given again."""
    kept = Tag(41, B, "older")
    node = alone(counter=41, promised=kept)
    node.step(100.0, e.Tick())
    assert node.followed is not None and node.followed > kept


def test_jobs_that_it_has_kept_are_driven_again() -> None:
    node = alone(records=(RECORD,))
    node.step(100.0, e.Tick())
    assert list(node.drivers.by_job) == [JOB]


def test_children_of_the_daemon_before_are_not_given_up_for_a_time_it_did_not_run() -> None:
    left = e.Leftover(7, "trainer", JOB, False, 107)
    node = Node(
        Who(A, "a1", lambda: "0000", 0), Found(Stable(records=(RECORD,)), leftovers=(left,))
    )
    node.step(100.0, e.Tick())
    patience, now = node.ctx.timing.adopt_seconds, node.next_deadline() + 10.0
    ends = now + patience - 1.0  # for it was to run within a second
    while not any(isinstance(effect, e.KillChild) for effect in node.step(now, e.Tick())):
        assert now < ends + 1.0
        now = node.next_deadline()
    assert now >= ends


# --- messages -------------------------------------------------------------------------------------


def test_only_the_leader_gives_orders() -> None:
    wires = led(A, B, C)
    node = wires.nodes[B]
    order = Notice(node.views.epoch, Heard(JOB, Tag(9, A, "w")))
    assert told(node.step(wires.now, e.Received(C, order)), Noted) == []
    assert told(node.step(wires.now, e.Received(A, order)), Noted) == [
        (A, Noted(JOB, Tag(9, A, "w")))
    ]


def test_what_only_endpoints_say_to_each_other_never_comes_as_far() -> None:
    wires = led(A, B)
    with pytest.raises(InvariantError, match="Probe is the endpoint's"):
        wires.nodes[A].step(wires.now, e.Received(B, Probe(C)))


# --- views ----------------------------------------------------------------------------------------


def test_a_leader_that_stays_goes_on_with_what_it_knows_of_its_jobs() -> None:
    wires = led(A, B, C)
    before = wires.nodes[A].drivers.by_job[JOB]
    wires.kill(C)
    wires.wait(3.0)
    assert wires.views() == {A: (A, B), B: (A, B)}
    assert wires.nodes[A].drivers.by_job[JOB] is before


def test_a_new_leader_begins_with_the_jobs_of_the_one_before() -> None:
    wires = led(A, B, C)
    assert not wires.nodes[B].drivers.by_job
    wires.kill(A)
    wires.wait(3.0)
    assert list(wires.nodes[B].drivers.by_job) == [JOB]
    assert not wires.nodes[C].drivers.by_job


def test_a_node_without_a_view_drives_nothing() -> None:
    wires = led(A, B)
    wires.post(A, e.Leave("it is stopped"))
    assert wires.nodes[A].followed is None
    assert not wires.nodes[A].drivers.by_job


def test_a_suspect_whose_ring_broke_too_is_dead_and_the_others_are_told() -> None:
    wires = led(A, B, C)
    node = wires.nodes[A]
    world = world_of(A, C, generation=Tag(1, A, "w"))
    node.members.attend(RECORD, node.views.view, unwanted=False, short=False)
    member = node.members.by_job[JOB]
    member.reports.world, member.reports.broken_at = world, wires.now
    effects = node.step(wires.now, e.PeerDown(B, "b1", "closed"))
    assert told(effects, Obituary) == [], "b is in no world with us"
    effects = node.step(wires.now, e.PeerDown(C, "c1", "closed"))
    assert told(effects, Obituary) == [(B, Obituary(C, "its ring broke too"))]


# --- nodes that go --------------------------------------------------------------------------------


def test_a_node_that_departs_tells_the_others() -> None:
    wires = led(A, B, C)
    effects = wires.nodes[B].step(wires.now, e.Depart())
    assert [to for to, _ in told(effects, Departing)] == [A, C]


def test_a_drained_node_is_shown_so_only_while_it_lives() -> None:
    wires = led(A, B)
    node = wires.nodes[A]
    assert node.state_of(B) == "alive"
    wires.post(A, e.Drain(2, B, True))
    assert (node.state_of(A), node.state_of(B)) == ("alive", "draining")
    wires.kill(B)
    wires.wait(3.0)
    assert node.state_of(B) == "dead"


def test_who_drains_a_node_is_told_how_it_is() -> None:
    wires = led(A, B)
    node = wires.nodes[A]

    def answers(draining: bool, *, lives: bool = True) -> list[object]:
        effects = node.step(wires.now, e.Drain(4, B, draining))
        effects += node.step(wires.now, e.Received(B, NodesKept((B,)))) if lives else []
        return [f.body for f in effects if isinstance(f, e.Reply)]

    assert answers(True) == [NodeChanged(B, "draining")]
    assert answers(False) == [NodeChanged(B, "alive")]
    wires.kill(B)
    wires.wait(3.0)
    for draining in (True, False):
        assert answers(draining, lives=False) == [NodeChanged(B, "dead")]


def test_a_node_that_is_there_is_not_dismissed() -> None:
    wires = led(A, B)
    node = wires.nodes[A]

    def answer(name: NodeId) -> str:
        effects = node.step(wires.now, e.Dismiss(3, name))
        return " ".join(str(f.body) for f in effects if isinstance(f, e.Reply))

    assert "b is there" in answer(B)
    wires.kill(B)
    wires.wait(3.0)
    assert "forgotten" in answer(B)


# --- what people see ------------------------------------------------------------------------------


def test_jobs_that_wait_are_numbered_in_the_order_of_the_queue() -> None:
    first, second, over = (JobId(f"job-{name}-abcd") for name in ("first", "second", "over"))
    waiting = replace(RECORD, id=first, number=2, state="queued")
    records = (
        replace(waiting, id=second, number=3),
        waiting,
        RECORD,
        replace(RECORD, id=over, number=0, state="finished"),
    )
    node = alone(records=records)
    node.step(100.0, e.Tick())
    found = {job: node.job_status(job)["queue_position"] for job in node.records}
    assert found == {second: 2, first: 1, JOB: None, over: None}


# --- what it never does ---------------------------------------------------------------------------


def test_samples_that_nobody_computes_or_two_do_stop_the_daemon() -> None:
    inherit(SOUND)
    gap = replace(SOUND, shares_now=(((0, 3),), ((4, 8),)))
    twice = replace(SOUND, shares=(((0, 5),), ((4, 8),)))
    for bad in (gap, twice):
        with pytest.raises(ValueError, match="owned"):
            inherit(bad)


def test_a_node_is_no_member_twice() -> None:
    with pytest.raises(InvariantError, match="a node is twice in the world"):
        inherit(replace(SOUND, members=(B, B)))


def test_a_world_is_never_newer_than_the_counter() -> None:
    """Else the next one could have its number."""
    node = alone(records=(RECORD,), counter=9)
    node.step(100.0, e.Tick())
    node.members.attend(RECORD, node.views.view, unwanted=False, short=False)
    counter = node.ctx.counter
    reports_of = node.members.by_job[JOB].reports
    reports_of.world = world_of(A, generation=Tag(counter, A, "w"))
    node.check()
    reports_of.world = world_of(A, generation=Tag(counter + 1, A, "w"))
    with pytest.raises(InvariantError, match="is above the counter"):
        node.check()
