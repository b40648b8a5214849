"""Whether a world's sums are made along the ring: only where every member's reducer can."""

from __future__ import annotations

import dataclasses

import pytest

from elasticd.core.engines.spares import Warm
from elasticd.core.taking_part.answers import Answers
from elasticd.core.words import effects as e
from elasticd.core.words.ring import FormRing
from elasticd.core.words.worlds import Form, Freeze
from tests.unit.core.leading.bench import A, B, Bench, fault, holds
from tests.unit.core.taking_part.post import EPOCH, Post, world_of
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME


@pytest.mark.parametrize("kind", ["walks", "chains"])
def test_the_leader_says_so_where_all_can_and_asks_anew_for_each_world(kind: str) -> None:
    bench = Bench()
    bench.say("ready")
    told = []
    for able in (bench.members, (A, B), bench.members):
        cannot = holds(None)
        can = dataclasses.replace(cannot, walks=kind == "walks", chains=kind == "chains")
        bench.answer(**{node: can if node in able else cannot for node in bench.members})
        orders = bench.sent(Form)
        told.append({getattr(form.world, kind) for _, form in orders})
        bench.driver.hear(B, fault(orders[0][1].world, B, "ring_broken", "lost"))
    assert told == [{True}, {False}, {True}]


def test_a_world_of_one_has_no_ring() -> None:
    bench = Bench(A)
    bench.say("ready")
    bench.answer(**{A: holds(None, walks=True, chains=True)})
    (form,) = [form for _, form in bench.sent(Form)]
    assert not form.world.walks and not form.world.chains


@pytest.mark.parametrize("warm", [Warm("a:1"), Warm("a:1", walks=True), Warm("a:1", chains=True)])
def test_a_member_says_what_its_reducer_can(warm: Warm) -> None:
    post = Post()
    answers = Answers(post.ctx, EMPTY.job)
    answers.on_freeze(Freeze(EPOCH, EMPTY.job, "s1", alone=False), None)
    holding = answers.ready(warm, None)
    assert holding is not None
    assert (holding.walks, holding.chains) == (warm.walks, warm.chains)


@pytest.mark.parametrize("kind", ["walks", "chains", ""])
def test_a_reducer_is_told_what_the_leader_has_said(kind: str) -> None:
    post = Post()
    child = post.ready()
    post.warm()
    post.freeze(alone=False)
    post.holds(child, post.freezes()[-1])
    world = world_of(ME, LEADER)
    post.form(dataclasses.replace(world, walks=kind == "walks", chains=kind == "chains"))
    (formed,) = post.done(e.FormReducer)
    assert isinstance(formed.order, FormRing)
    assert (formed.order.walks, formed.order.chains) == (kind == "walks", kind == "chains")
