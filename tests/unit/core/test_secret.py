"""The secret of a world: who is told it, when there is one, what follows when it isn't shown."""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from elasticd.core.leading.phases.forming import Forming
from elasticd.core.leading.phases.moves import ToForming
from elasticd.core.recall import KINDS
from elasticd.core.words import effects as e
from elasticd.core.words.messages import Message
from elasticd.core.words.records import World
from elasticd.core.words.reducers import ReducerBroken
from elasticd.core.words.ring import FormRing, Go, Listening, ReducerListens, ReducerTaken
from elasticd.core.words.worlds import Fault, Form
from elasticd.types import NO_SECRET, Secret
from tests.unit.core.leading.bench import A, B, Bench, C, fault, holds
from tests.unit.core.taking_part.post import Post, world_of
from tests.unit.core.taking_part.test_member_faults import EMPTY, LEADER, ME

SECRET = Secret(b"s" * 32)


def dataclasses_in(hint: Any, seen: set[type]) -> Iterator[type]:
    """Every dataclass that a value of that type may hold."""
    for inner in typing.get_args(hint):
        yield from dataclasses_in(inner, seen)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in seen:
        seen.add(hint)
        yield hint
        for each in typing.get_type_hints(hint).values():
            yield from dataclasses_in(each, seen)


def with_secret(hint: Any) -> set[type]:
    return {
        kind
        for kind in dataclasses_in(hint, set())
        if Secret in typing.get_type_hints(kind).values()
    }


def test_only_two_words_have_a_secret_and_what_is_kept_or_shown_has_none() -> None:
    assert with_secret(Message) == {Form}
    effects = with_secret(e.Effect)
    assert effects == {Form, FormRing}
    kept = set().union(*(with_secret(kind) for kind in KINDS.values()))
    assert kept == set() and with_secret(e.Emit) == with_secret(e.Log) == set()


@pytest.mark.parametrize("kind", [Form, FormRing, ToForming, Forming])
def test_nothing_that_has_a_secret_shows_it(kind: type) -> None:
    (found,) = [f for f in dataclasses.fields(kind) if f.name == "secret"]
    assert found.repr is False and found.default == NO_SECRET


def bench_with_secrets() -> Bench:
    bench, drawn = Bench(), itertools.count(1)
    bench.ctx.secret = lambda: Secret(bytes([next(drawn)]) * 32)
    return bench


def test_each_world_has_a_secret_of_its_own_which_all_members_are_told() -> None:
    bench = bench_with_secrets()
    bench.say("ready")
    told = []
    for _ in range(2):
        bench.answer(**{node: holds(None, proves=True) for node in bench.members})
        orders = bench.sent(Form)
        assert [node for node, _ in orders] == [A, B, C]
        (secret,) = {form.secret for _, form in orders}
        told.append(secret)
        bench.driver.hear(B, fault(orders[0][1].world, B, "ring_broken", "lost"))
    assert told == [b"\1" * 32, b"\2" * 32]


def test_where_a_member_cannot_show_it_there_is_none() -> None:
    bench = bench_with_secrets()
    bench.say("ready")
    held = {node: holds(None, proves=node != B) for node in bench.members}
    bench.answer(**held)
    assert {form.secret for _, form in bench.sent(Form)} == {NO_SECRET}


def strange(world: World, at: int) -> Fault:
    return dataclasses.replace(fault(world, A, "ring_broken", "no proof"), stranger_at=at)


def test_strangers_are_told_count_against_nobody_and_are_evaded_at_once_then_in_pauses() -> None:
    bench = bench_with_secrets()
    bench.say("ready")
    pauses = []
    for _ in range(12):
        bench.answer(**{node: holds(None, proves=True) for node in bench.members})
        (_, form), *_ = bench.sent(Form)
        bench.driver.hear(A, strange(form.world, 1))
        pause = max(0.0, bench.office.tries.soonest - bench.ctx.now)
        pauses.append(pause)
        bench.pass_time(pause)
    assert pauses == [0, 0, 0, 0, 1, 2, 4, 8, 8, 8, 8, 8]
    bench.answer(**{node: holds(None, proves=True) for node in bench.members})
    told = bench.told("fault_detected")
    assert len(told) == 12 and {event.fields["fault"] for event in told} == {"link_lost"}
    assert {event.fields["sign"] for event in told} == {"stranger"}
    assert {event.fields["culprit"] for event in told} == {B}, "at whose port it is"
    assert bench.office.account.fruitless == 0 and bench.driver.end is None
    bench.form()
    assert bench.phase == "running" and bench.office.tries.strangers == 0


def test_nearer_signs_say_that_it_was_no_stranger() -> None:
    """Who is killed while the ring comes up hangs up, too."""
    bench = Bench()
    bench.say("ready")
    bench.answer(**{node: holds(None) for node in bench.members})
    (_, form), *_ = bench.sent(Form)
    world = form.world
    bench.driver.hear(A, strange(world, 1))
    bench.driver.hear(C, fault(world, C, "reducer_lost", "reducer ended with signal 9"))
    bench.answer(**{node: holds(None) for node in bench.members})
    (event,) = bench.told("fault_detected")
    assert (event.fields["fault"], event.fields["culprit"]) == ("reducer_lost", C)


def in_ring(rank: int) -> tuple[Post, World, int]:
    """A member whose reducer is told the secret once it may form; its number."""
    post = Post()
    members = [LEADER, "z", "y"]
    members.insert(rank, ME)
    world = world_of(*members)  # type: ignore[arg-type]
    child = post.ready()
    reducer = post.warm()
    post.freeze(alone=False)
    post.holds(child, post.freezes()[-1])
    post.member.on_order(Form(world, SECRET), EMPTY.epoch, bound=False)
    return post, world, reducer


def test_a_reducer_is_told_the_secret_and_its_stranger_is_told_of() -> None:
    post, world, reducer = in_ring(1)
    (formed,) = post.done(e.FormReducer)
    assert formed.order.secret == SECRET and "s" * 32 not in repr(formed)
    broken = ReducerBroken(world.generation, "it said something else", 1, wrong=True)
    post.member.part.on_child(e.ChildSaid(reducer, broken))
    (told,) = post.told(Fault)
    assert (told.fault, told.sign, told.stranger_at) == ("ring_broken", "stranger", 1)
    assert told.confidence == "likely"
    where = f"a stranger is on the port of rank 1 ({ME}), where {world.members[0]} belongs: "
    assert told.evidence == f"{where}it said something else"


def test_the_last_rank_that_cannot_connect_says_so_soon() -> None:
    post, world, _ = in_ring(3)
    post.member.on_order(Go(world.job, world.generation), EMPTY.epoch, bound=False)
    assert len(post.done(e.FormReducer)) == 1
    post.ctx.now += post.ctx.timing.greet_seconds
    post.member.part.tick(let_go=False)
    (told,) = post.told(Fault)
    assert (told.sign, told.stranger_at) == ("stranger", 0) and "may be" in told.evidence
    post.ctx.now += 100
    post.member.part.tick(let_go=False)
    assert post.told(Fault) == []


@pytest.mark.parametrize("rank", [1, 3])
def test_who_is_let_in_before_any_rank_was_told_to_connect_is_a_stranger(rank: int) -> None:
    post, world, reducer = in_ring(rank)
    if rank == 3:
        post.member.on_order(Go(world.job, world.generation), EMPTY.epoch, bound=False)
    post.member.part.on_engine(ReducerTaken(reducer))
    (told,) = post.told(Fault)
    assert (told.sign, told.stranger_at, told.confidence) == ("stranger", rank, "likely")
    assert "before any rank was told to" in told.evidence and not post.told(Listening)


def test_the_last_rank_that_listens_has_the_usual_time() -> None:
    post, world, reducer = in_ring(3)
    post.member.on_order(Go(world.job, world.generation), EMPTY.epoch, bound=False)
    post.member.part.on_engine(ReducerListens(reducer))
    assert len(post.told(Listening)) == 1
    post.ctx.now += post.ctx.timing.form_seconds - 0.1
    post.member.part.tick(let_go=False)
    assert post.told(Fault) == []
    post.ctx.now += 0.2
    post.member.part.tick(let_go=False)
    assert [told.sign for told in post.told(Fault)] == ["hang"]
