"""What a script has asked for holds as long as the state behind which it asked is in place."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from elasticd.train.steps.ending import StopWish
from elasticd.train.world import TrainerWorld
from elasticd.types import Lineage, Point, Stamp


class _World:
    def __init__(self, last: int) -> None:
        self.last = last


HERE = Point(Lineage("1"), 2, Stamp("aa"))
OPEN, DECIDED = cast(TrainerWorld, _World(-1)), cast(TrainerWorld, _World(2))


@pytest.fixture
def wish() -> StopWish:
    wish = StopWish()
    wish.want("it is enough")
    wish.body_ends(HERE, counts=True)
    return wish


def test_nobody_is_asked_where_it_is_decided(wish: StopWish) -> None:
    assert wish.asks(HERE, OPEN) == "it is enough"
    assert not wish.asks(HERE, DECIDED) and not wish.asks(HERE, None)


def test_it_is_asked_again_in_a_world_that_knows_nothing_of_it(wish: StopWish) -> None:
    """Simulator, seed 1795537989726: a leader from the other side of a cut made the next world."""
    assert not wish.asks(HERE, DECIDED)
    wish.body_ends(HERE, counts=True)
    assert wish.asks(replace(HERE, lineage=Lineage("2")), OPEN) == "it is enough"


@pytest.mark.parametrize(
    "other", [replace(HERE, step=3), replace(HERE, stamp=Stamp("bb"))], ids=["later", "other"]
)
def test_behind_another_state_it_is_not(wish: StopWish, other: Point) -> None:
    assert not wish.asks(other, OPEN)
    wish.body_ends(other, counts=True)
    assert not wish.asks(HERE, OPEN)


def test_a_body_that_was_nobody_s_has_asked_for_nothing(wish: StopWish) -> None:
    wish.body_ends(HERE, counts=False)
    assert not wish.asks(HERE, OPEN)
