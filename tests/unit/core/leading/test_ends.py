"""What is known of how scripts come to their ends when one world takes another's place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.leading.ends import Ends
from elasticd.core.words.records import World
from elasticd.types import Lineage, Point
from tests.unit.core.leading.bench import A, B, C, point_of, world_of

OTHER, THIRD = Lineage("22"), Lineage("33")


def line(name: Lineage, parent: Point | None) -> World:
    return replace(world_of(A, B, C), lineage=name, parent=parent)


@pytest.mark.parametrize(
    ("after", "owed"),
    [
        (world_of(A, B, C), True),
        (line(OTHER, point_of(7)), True),
        (line(OTHER, point_of(6)), False),
        (line(OTHER, point_of(7, THIRD)), False),
        (line(OTHER, None), False),
    ],
    ids=["the same line", "from there", "from before", "from another", "from nothing"],
)
def test_what_was_killed_is_owed_while_the_line_goes_on_from_there(
    after: World, owed: bool
) -> None:
    ends = Ends()
    ends.take(None, world_of(A, B, C))
    ends.killed(B, 7)
    ends.take(world_of(A, B, C), after)
    assert ends.owing(7) == ({B} if owed else set())
    assert not ends.owing(8), "another step was the last"


def test_lines_that_came_from_the_same_checkpoint_share_what_led_to_it() -> None:
    ends = Ends()
    one, other = line(OTHER, point_of(7)), line(THIRD, point_of(7))
    ends.killed(B, 7)
    ends.take(one, other)
    assert ends.owing(7) == {B}
    ends.killed(C, 8)
    ends.take(one, other)
    assert not ends.owing(8)


def test_who_has_come_to_its_end_owes_and_lacks_nothing() -> None:
    ends = Ends()
    ends.killed(B, 7)
    ends.end(A)
    ends.end(B)
    assert not ends.owing(7) and ends.lacking((A, B, C), ends.owing(7)) == [C]
    ends.begin((A,))
    assert ends.lacking((A, B), ()) == [A]
