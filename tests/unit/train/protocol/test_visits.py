"""What a trainer knows of the world that it is in."""

from __future__ import annotations

import pytest

from elasticd.core.words import trainers as w
from elasticd.errors import GenerationLost
from elasticd.train.protocol.visits import Visits
from elasticd.train.world import TrainerWorld
from tests.unit.train.protocol.worlds import tag, world


def entered(counter: int = 1) -> Visits:
    visits = Visits()
    visits.enter(TrainerWorld.as_given(world(counter)))
    return visits


def test_nothing_is_waited_for_outside_of_a_world() -> None:
    visits = entered()
    assert not visits.is_judged and not visits.is_proven("grain")
    left = visits.leave()
    assert left is not None and left.generation == tag(1)
    assert visits.is_judged and visits.is_proven("grain") and not visits.is_halted(-1)
    assert visits.leave() is None
    with pytest.raises(GenerationLost):
        visits.current()


@pytest.mark.parametrize(
    "word",
    [
        w.TellVerdict(tag(1), True, ""),
        w.TellProven(tag(1), "grain"),
        w.SetInterval(tag(1), 7, 8),
        w.HaltAt(tag(1), 3),
    ],
    ids=lambda word: word.kind,
)
def test_words_of_another_world_mean_nothing(word: w.TellVerdict) -> None:
    visits = entered(2)
    assert not visits.hear(word, 0)
    assert not visits.is_judged and not visits.is_proven("grain") and not visits.is_halted(3)
    assert visits.current().writes.every_at(8) == 5
    assert entered().hear(word, 0)


def test_a_part_of_the_proof_ends_the_wait_for_that_part() -> None:
    visits = entered()
    visits.hear(w.TellProven(tag(1), "grain"), 0)
    assert visits.is_proven("grain") and not visits.is_proven("body")


def test_a_new_world_knows_nothing_of_the_last_ones_orders() -> None:
    visits = entered()
    visits.hear(w.HaltAt(tag(1), 3), 0)
    visits.hear(w.TellVerdict(tag(1), True, ""), 0)
    assert visits.is_halted(3)
    visits.enter(TrainerWorld.as_given(world(2)))
    assert not visits.is_halted(3) and not visits.is_judged


def test_a_halt_behind_which_we_are_is_not_obeyed() -> None:
    visits = entered()
    visits.hear(w.HaltAt(tag(1), 3), 4)
    assert not visits.is_halted(3)


def test_a_state_settles_and_a_probe_is_told_once_in_a_world() -> None:
    visit = entered().visit
    assert visit is not None
    assert [visit.settles(), visit.settles()] == [True, False]
    assert [visit.probes(), visit.probes()] == [True, False]
