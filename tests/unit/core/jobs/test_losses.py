"""One loss for each step, however often it is done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticd.core.jobs.losses import LossCurve


def curve(*told: tuple[int, float, int | None], most: int = 1000) -> LossCurve:
    made = LossCurve(most)
    for step, loss, lost in told:
        made.take(step, loss, lost)
    return made


def test_steps_that_are_done_again_have_their_new_loss() -> None:
    made = curve((1, 9.0, 0), (5, 5.0, 0), (8, 4.0, 0), (6, 4.5, 4))
    assert made.points == [(1, 9.0), (6, 4.5)], "it went back to step 4"
    assert curve((5, 5.0, 0), (8, 4.0, 0), (9, 3.0, 2)).points == [(5, 5.0), (9, 3.0)]


def test_a_new_leader_that_knows_of_an_older_step_changes_nothing() -> None:
    made = curve((5, 5.0, 0), (8, 4.0, 0), (6, 4.9, 0), (8, 4.1, 0), (0, 1.0, 0))
    assert made.points == [(5, 5.0), (8, 4.0)]


def test_where_nobody_says_what_was_lost_the_newest_word_counts() -> None:
    assert curve((5, 5.0, None), (8, 4.0, None), (6, 4.5, None)).points == [(5, 5.0), (6, 4.5)]


def test_it_is_thinned_and_keeps_its_ends() -> None:
    made = curve(*((step, float(step), 0) for step in range(1, 5001)), most=100)
    assert 50 < len(made.points) <= 101
    assert made.points[0] == (1, 1.0) and made.points[-1] == (5000, 5000.0)


point = st.tuples(st.integers(-2, 50), st.floats(allow_nan=False), st.none() | st.integers(0, 90))


@given(st.lists(point, max_size=60))
def test_steps_only_go_up(told: list[tuple[int, float, int | None]]) -> None:
    made = curve(*told, most=8)
    steps = [step for step, _ in made.points]
    assert steps == sorted(set(steps)) and len(steps) <= 9
    assert all(step >= 1 for step in steps)
