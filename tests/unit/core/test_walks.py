"""Whether a world's exact sums are made along the ring: only where every member's reducer can."""

from __future__ import annotations

import dataclasses

import pytest

from elasticd.core.engines.spares import Warm
from elasticd.core.taking_part.answers import Answers
from elasticd.core.words import effects as e
from elasticd.core.words.worlds import Form, Freeze
from tests.unit.core.leading.bench import A, B, Bench, fault, holds
from tests.unit.core.taking_part.post import EPOCH, Post, world_of
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME


def test_the_leader_says_so_where_all_can_and_asks_anew_for_each_world() -> None:
    bench = Bench()
    bench.say("ready")
    told = []
    for able in (bench.members, (A, B), bench.members):
        bench.answer(**{node: holds(None, walks=node in able) for node in bench.members})
        orders = bench.sent(Form)
        told.append({form.world.walks for _, form in orders})
        bench.driver.hear(B, fault(orders[0][1].world, B, "ring_broken", "lost"))
    assert told == [{True}, {False}, {True}]


def test_a_world_of_one_has_no_ring() -> None:
    bench = Bench(A)
    bench.say("ready")
    bench.answer(**{A: holds(None, walks=True)})
    assert [form.world.walks for _, form in bench.sent(Form)] == [False]


@pytest.mark.parametrize("warm", [Warm("a:1"), Warm("a:1", walks=True)])
def test_a_member_says_what_its_reducer_can(warm: Warm) -> None:
    post = Post()
    answers = Answers(post.ctx, EMPTY.job)
    answers.on_freeze(Freeze(EPOCH, EMPTY.job, "s1", alone=False), None)
    holding = answers.ready(warm, None)
    assert holding is not None and holding.walks is warm.walks


@pytest.mark.parametrize("walks", [True, False])
def test_a_reducer_is_told_what_the_leader_has_said(walks: bool) -> None:
    post = Post()
    child = post.ready()
    post.warm()
    post.freeze(alone=False)
    post.holds(child, post.freezes()[-1])
    post.form(dataclasses.replace(world_of(ME, LEADER), walks=walks))
    (formed,) = post.done(e.FormReducer)
    assert formed.order.walks is walks
