"""How a world gets on: what is committed, what counts as moving, and what a new world forgets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.context import Context
from elasticd.core.leading.calls import ResultRelay
from elasticd.core.leading.course import Course
from elasticd.core.leading.patience import Patience
from elasticd.core.words.records import World
from elasticd.core.words.worlds import Progress
from elasticd.types import Lineage, Point, Tag, WorkPhase
from tests.unit.core.leading.bench import JOB, ME, STAMP, A, B, C, world_of

WORLD = world_of(A, B)


@pytest.fixture
def course() -> Course:
    return new()


def new() -> Course:
    ctx = Context(ME, lambda: "0000", now=50.0)
    made = Course(Patience(60.0), ResultRelay(ctx, JOB, 60.0))
    made.take(WORLD)
    return made


def at(step: int, committed: int, phase: WorkPhase = "compute", **more: object) -> Progress:
    said = Progress(JOB, WORLD.generation, step, STAMP, committed, 0.5, phase, 1.0, 0, {})
    return replace(said, **more)  # type: ignore[arg-type]


def test_a_step_is_committed_as_soon_as_one_member_says_so(course: Course) -> None:
    assert course.saw(A, at(3, 2), 51.0)
    assert course.committed == 2


def test_a_member_that_is_behind_takes_nothing_back(course: Course) -> None:
    course.saw(A, at(3, 3), 51.0)
    assert not course.saw(B, at(2, 2), 52.0)
    course.heard_of(1)
    assert course.committed == 3


def values(course: Course) -> dict[str, tuple[int, float]]:
    return {name: (told.step, told.value) for name, told in course.named.items()}


def test_of_a_name_the_newest_committed_value_counts_and_of_those_the_lowest_ranks(
    course: Course,
) -> None:
    course.saw(B, at(3, 3, named={"acc": (3, 0.3), "own": (2, 7.0)}), 51.0)
    course.saw(A, at(3, 3, named={"acc": (3, 0.1)}), 52.0)
    course.saw(B, at(3, 3, named={"acc": (3, 0.4), "own": (2, 7.0)}), 53.0)
    assert values(course) == {"acc": (3, 0.1), "own": (2, 7.0)}
    course.saw(A, at(3, 3, named={"acc": (4, 0.2)}), 54.0)
    assert values(course)["acc"] == (3, 0.1), "step 4 is not committed"
    course.saw(A, at(4, 4, named={"acc": (4, 0.2)}), 55.0)
    assert values(course)["acc"] == (4, 0.2)


def test_who_goes_back_forgets_what_was_told_behind_that(course: Course) -> None:
    course.saw(A, at(9, 9, named={"acc": (9, 0.3), "own": (2, 7.0)}), 51.0)
    course.begin(replace(WORLD, step=4, rung="restore"))
    course.formed(52.0)
    assert values(course) == {"own": (2, 7.0)}


def test_names_of_any_length_and_number_take_no_room(course: Course) -> None:
    many = {f"n{n}": (1, 0.0) for n in range(1000)} | {"x" * 65: (1, 1.0)}
    course.saw(A, at(3, 3, named=many), 51.0)
    assert len(course.named) == 33 and all(len(name) < 65 for name in course.named)


def test_the_same_word_again_is_no_move(course: Course) -> None:
    course.saw(A, at(3, 2), 51.0)
    course.saw(A, at(3, 2, memory_bytes=9), 60.0)
    assert course.moved_at == 51.0
    course.saw(A, at(3, 2, "reduce"), 61.0)
    assert course.moved_at == 61.0
    course.saw(A, at(4, 2, "reduce"), 62.0)
    course.saw(A, at(4, 3, "reduce"), 63.0)
    assert course.moved_at == 63.0


def test_the_last_known_loss_stays_while_a_step_has_none(course: Course) -> None:
    course.saw(A, at(3, 2), 51.0)
    course.saw(A, at(4, 3, loss=None), 52.0)
    assert course.loss == 0.5


@given(steps=st.permutations(range(1, 6)))
def test_the_loss_is_that_of_the_furthest_step_in_whatever_order_members_tell(
    steps: list[int],
) -> None:
    course = new()
    for step in steps:
        course.saw(B if step % 2 else A, at(step, 1, loss=step / 10), 51.0)
    assert course.loss == 0.5


def test_the_loss_of_steps_that_are_made_again_is_shown_again(course: Course) -> None:
    course.saw(A, at(8, 7, loss=0.8), 51.0)
    course.begin(replace(world_of(A, B, generation=Tag(3, A, "n"), step=5), rung="restore"))
    course.formed(60.0)
    assert course.loss is None
    course.saw(A, at(6, 6, loss=0.6), 61.0)
    assert course.loss == 0.6


def test_the_loss_of_another_line_is_not_that_of_the_one_that_is_met(course: Course) -> None:
    def world(parent: Point | None) -> World:
        made = world_of(A, B, generation=Tag(3, A, "n"), step=9)
        return replace(made, lineage=Lineage("other"), parent=parent)

    for parent in (None, Point(Lineage("third"), 8, STAMP), Point(WORLD.lineage, 5, STAMP)):
        other = new()
        other.saw(A, at(8, 7, loss=0.8), 51.0)
        other.begin(world(parent))
        other.heard_of(9)
        assert (other.loss, other.loss_step) == (None, 9)
    course.saw(A, at(8, 7, loss=0.8), 51.0)
    course.begin(world(Point(WORLD.lineage, 8, STAMP)))
    assert course.loss == 0.8, "that line opens behind the step whose loss it is"


def test_a_world_that_goes_on_keeps_what_is_committed(course: Course) -> None:
    course.saw(A, at(8, 7), 51.0)
    course.begin(world_of(A, B, generation=Tag(3, A, "n"), step=6))
    course.formed(60.0)
    assert (course.committed, course.moved_at, course.progress) == (7, 60.0, {})


def test_a_world_that_goes_back_takes_back_what_was_committed(course: Course) -> None:
    course.saw(A, at(8, 7), 51.0)
    back = replace(world_of(A, B, generation=Tag(3, A, "n"), step=5), rung="restore")
    course.begin(back)
    course.formed(60.0)
    assert course.committed == 5


def test_what_was_told_before_the_world_was_known_counts_if_it_is_of_that_world(
    course: Course,
) -> None:
    stale = replace(at(9, 9), generation=Tag(1, A, "old"))
    course.early(A, at(4, 3))
    course.early(B, stale)
    assert course.found(2, 55.0) == [(A, at(4, 3))]
    assert (course.committed, course.moved_at) == (2, 55.0)
    assert course.progress == {}


def test_where_members_have_their_state_from(course: Course) -> None:
    course.take(replace(WORLD, sources=("keep", "peer:a")))
    assert [course.source_of(node) for node in (A, B, C)] == ["keep", "peer:a", None]


def test_who_was_let_go_is_so_within_a_view_and_a_world(course: Course) -> None:
    course.release(A)
    assert course.released == {A}
    course.follow()
    assert (course.released, course.leaving) == (set(), {A}), "it is told again, and may be gone"
    course.release(A)
    course.begin(world_of(A, B, generation=Tag(3, A, "n")))
    assert course.released == course.leaving == set()


def test_the_last_step_that_a_script_has_named_is_for_the_next_world(course: Course) -> None:
    course.stop(7)
    assert course.last == 7
    course.begin(world_of(A, B, generation=Tag(3, A, "n")))
    assert course.last == -1, "that world says it itself"


def test_who_was_started_again_tells_anew(course: Course) -> None:
    course.saw(A, at(3, 2), 51.0)
    course.forget(A)
    assert A not in course.progress and course.committed == 2


def test_only_the_last_world_runs(course: Course) -> None:
    assert course.runs(WORLD.generation) and not course.runs(Tag(1, A, "old"))
