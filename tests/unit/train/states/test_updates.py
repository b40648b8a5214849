"""Updates that others can apply, and what a trainer keeps of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_map

from elasticd.errors import StateError
from elasticd.train.protocol.lending import Lending, Request, UpdateLog
from elasticd.train.states.exports import contents
from elasticd.train.states.state import Own, Snapshot
from elasticd.train.states.updates import Reduced, Update, check_follow, packed, unpacked
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag, first_stamp

LINEAGE = Lineage("L")
WORLD, OTHER = Tag(3, NodeId("a"), "x"), Tag(4, NodeId("a"), "y")
START = Point(LINEAGE, 0, first_stamp(JobId("job"), LINEAGE))


def update(before: Point, size: int = 4) -> Update:
    gradients = {"layers": [{"weight": mx.full((size,), float(before.step))}]}
    reduced = Reduced(0.5, 1.0, {"hits": 1.0}, {"norm.mean": mx.zeros((2,))}, gradients)
    made = Update.of(before, WORLD, False, reduced, gradients)
    assert made is not None
    nothing, at = Own({}, None), Point(LINEAGE, made.step, made.stamp)
    return made.with_body(nothing, nothing, snapshot(at))


def chain(length: int, size: int = 4) -> list[Update]:
    made: list[Update] = []
    point = START
    for _ in range(length):
        made.append(update(point, size))
        point = Point(LINEAGE, made[-1].step, made[-1].stamp)
    return made


def snapshot(point: Point) -> Snapshot:
    tensors = {"model/a": mx.zeros((8,)), "model/b": mx.ones((4,))}
    return Snapshot(point, 0, 0, tensors, {"tracked": {}}, ("a", "b"), ("a", "b"))


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
        weights = (u.gradient["layers"][0]["weight"] for u in (mine, theirs))
        assert mx.array_equal(*weights)
        assert list(theirs.state) == ["norm.mean"]
        assert theirs.row() == mine.row()


def test_what_the_script_changed_comes_back_from_a_file() -> None:
    """Gradients in their order, which a norm's sum depends on, whatever their names are."""
    raw = {"b": mx.ones((2,)), "a": [mx.zeros((1,))]}
    clipped = tree_map(lambda g: g * 0.5, raw)
    update = Update.of(START, WORLD, False, Reduced(1.0, 1.0, {}, {}, raw), clipped, 0.5)
    assert update is not None and not update.complete
    point = Point(LINEAGE, 1, update.stamp)
    tracked = {"user/ema/w": mx.ones((3,))}
    plain = {"tracked": {"ema": {"dict": [["w", {"array": "user/ema/w"}]]}}}
    left = Snapshot(point, 0, 0, tracked, plain, (), ())
    before = Own({"optimizer/learning_rate": mx.array(0.5)}, {"kind": 1})
    update = update.with_body(before, Own({"model/a": mx.ones((2,))}, {}), left)
    (found,) = unpacked(*packed([update])) or []
    assert found.row() == update.row() and found.complete and found.clip_norm == 0.5
    assert list(found.gradient) == list(found.as_reduced().gradients) == ["b", "a"]
    assert found.gradient["b"].tolist() == [0.5, 0.5]
    assert found.as_reduced().gradients["b"].tolist() == [1, 1]
    assert found.body is not None
    assert found.body.before.tensors["optimizer/learning_rate"].item() == 0.5
    assert found.body.after.tensors.keys() == {"model/a"}
    assert found.body.tracked.keys() == tracked.keys()


def test_what_the_script_changed_may_be_untold() -> None:
    """It made arrays come or go: then the whole state is given."""
    (first,) = chain(1)
    same, other = Own({"model/a": mx.ones((1,))}, {}), Own({"model/b": mx.ones((1,))}, {})
    assert same.changed_to(other) is None
    assert not replace(first, body=None).with_body(None, same, snapshot(at(first))).complete


@pytest.mark.parametrize(
    "gradients",
    [
        {"0": {"weight": mx.ones((2,))}},
        {"blocks": {"10": [{}, {"w": mx.ones((1,))}], "a": {"-1": mx.zeros((3,))}}},
    ],
)
def test_keys_of_digits_stay_keys(gradients: Any) -> None:
    made = Update.of(START, WORLD, False, Reduced(1.0, 1.0, {}, {}, gradients), gradients)
    assert made is not None
    found = unpacked(*packed([made]))
    assert found is not None
    assert str(found[0].gradient) == str(gradients)


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
    for gradients in ({"a.b": mx.zeros((1,))}, {"a": (mx.zeros((1,)),)}):
        reduced = Reduced(0.0, 1.0, {}, {}, gradients)
        assert Update.of(START, WORLD, False, reduced, gradients) is None


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


def test_a_state_is_not_lent_that_is_over() -> None:
    lending = Lending[Snapshot, Update]()
    lending.order(WORLD, 5, True)
    assert not lending.refuses(4)
    assert "step 5 is applied" in lending.refuses(5)
