"""Updates that others can apply, and what a trainer keeps of them."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from elasticd.errors import StateError
from elasticd.train.protocol.lending import Lending, Request, UpdateLog
from elasticd.train.states.exports import contents
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update, check_follow, packed, unpacked
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag, first_stamp

LINEAGE = Lineage("L")
WORLD, OTHER = Tag(3, NodeId("a"), "x"), Tag(4, NodeId("a"), "y")
START = Point(LINEAGE, 0, first_stamp(JobId("job"), LINEAGE))


def update(before: Point, size: int = 4) -> Update:
    gradients = {"layers": [{"weight": mx.full((size,), float(before.step))}]}
    made = Update.of(before, WORLD, False, {"norm.mean": mx.zeros((2,))}, gradients)
    assert made is not None
    return made


def chain(length: int, size: int = 4) -> list[Update]:
    made: list[Update] = []
    point = START
    for _ in range(length):
        made.append(update(point, size))
        point = Point(LINEAGE, made[-1].step, made[-1].stamp)
    return made


def snapshot(point: Point) -> Snapshot:
    tensors = {"model/a": mx.zeros((8,)), "model/b": mx.ones((4,))}
    return Snapshot(point, 0, 0, tensors, {}, ("a", "b"), ("a", "b"))


def request(point: Point, since: Stamp | None = None, part: int = 0, parts: int = 1) -> Request:
    return Request(1, point.step, point.stamp, since, part, parts)


def at(update: Update) -> Point:
    return Point(LINEAGE, update.step, update.stamp)


def test_updates_come_back_from_a_file_as_they_were() -> None:
    updates = chain(3)
    found = unpacked(*packed(updates))
    assert found is not None
    check_follow(found, START)
    for mine, theirs in zip(updates, found, strict=True):
        assert (mine.before, mine.step, mine.stamp) == (theirs.before, theirs.step, theirs.stamp)
        assert mx.array_equal(
            mine.gradients["layers"][0]["weight"], theirs.gradients["layers"][0]["weight"]
        )
        assert list(theirs.state) == ["norm.mean"]


@pytest.mark.parametrize(
    "gradients",
    [
        {"0": {"weight": mx.ones((2,))}},
        {"blocks": {"10": [{}, {"w": mx.ones((1,))}], "a": {"-1": mx.zeros((3,))}}},
    ],
)
def test_keys_of_digits_stay_keys(gradients: Any) -> None:
    made = Update.of(START, WORLD, False, {}, gradients)
    assert made is not None
    found = unpacked(*packed([made]))
    assert found is not None
    assert str(found[0].gradients) == str(gradients)


def test_a_whole_state_is_no_update() -> None:
    state = snapshot(START)
    assert unpacked(state.tensors, state.metadata()) is None


def test_updates_must_lead_on_from_what_is_held() -> None:
    updates = chain(3)
    for wrong in (updates[1:], [updates[0], updates[2]], updates[::-1]):
        with pytest.raises(StateError, match="doesn't follow"):
            check_follow(wrong, START)
    with pytest.raises(StateError, match="doesn't follow"):
        check_follow(updates, None)


def test_a_gradient_whose_paths_are_ambiguous_is_given_to_nobody() -> None:
    assert Update.of(START, WORLD, False, {}, {"a.b": mx.zeros((1,))}) is None
    assert Update.of(START, WORLD, False, {}, {"a": (mx.zeros((1,)),)}) is None


def test_the_log_keeps_one_update_or_as_many_as_fit() -> None:
    updates = chain(4)
    log = UpdateLog[Update]()
    assert all([log.add(u, 3 * u.bytes) for u in updates[:3]])
    assert log.since(START.stamp) == updates[:3]
    assert not log.add(updates[3], 3 * updates[3].bytes)
    assert log.starts == [updates[3].before]
    assert log.since(START.stamp) == []


def test_the_log_never_has_a_gap() -> None:
    first, _, third = chain(3)
    log = UpdateLog[Update]()
    log.add(first, 1 << 20)
    log.add(third, 1 << 20)
    assert log.starts == [third.before]


def test_the_newest_update_is_kept_until_all_have_applied_it() -> None:
    lending, (first, second) = Lending[Snapshot, Update](), chain(2)
    lending.applied(first, WORLD)
    assert lending.starts == [first.before]
    lending.committed(WORLD)
    assert lending.starts == []
    lending.applied(second, None)
    assert lending.starts == [second.before], "the world ended while it was applied"


def test_what_is_lent_is_a_state_and_all_updates_behind_it() -> None:
    lending, updates = Lending[Snapshot, Update](), chain(3)
    lending.order(WORLD, 1, True)
    lending.applied(updates[0], WORLD)
    assert lending.holds(snapshot(at(updates[0])), WORLD)
    lending.committed(WORLD)
    for each in updates[1:]:
        lending.applied(each, WORLD)
        lending.committed(WORLD)
    given = lending.answer(request(at(updates[0])), None)
    assert given is not None and set(contents(given)[0]) == {"model/a", "model/b"}
    followed = lending.answer(request(at(updates[1]), updates[0].stamp), None)
    assert followed is not None and followed.step == 3
    parts = [lending.answer(request(at(updates[0]), None, part, 2), None) for part in range(2)]
    assert [list(contents(part)[0]) for part in parts if part is not None] == [
        ["model/a"],
        ["model/b"],
    ]


def test_what_was_lent_goes_with_its_generation() -> None:
    lending, updates = Lending[Snapshot, Update](), chain(2)
    lending.order(WORLD, 1, True)
    lending.applied(updates[0], WORLD)
    assert lending.holds(snapshot(at(updates[0])), WORLD)
    lending.committed(OTHER)
    assert lending.answer(request(at(updates[0])), None) is None


def test_a_state_is_not_lent_that_is_over_or_that_updates_do_not_make() -> None:
    lending = Lending[Snapshot, Update]()
    lending.order(WORLD, 5, True)
    assert not lending.refuses(4)
    assert "step 5 is applied" in lending.refuses(5)
    lending.gives = False
    assert "script" in lending.refuses(4)


def test_where_the_script_changes_the_state_updates_are_given_to_nobody() -> None:
    lending, (first,) = Lending[Snapshot, Update](), chain(1)
    lending.applied(first, WORLD)
    lending.gives = False
    assert lending.starts == []
    assert lending.answer(request(at(first), first.before), None) is None
