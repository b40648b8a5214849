"""What a job gives up for want of memory: bits last, and never on a foreboding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.relief import Relief
from elasticd.recovery.faults import Evidence
from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.settings.job import JobSpec
from elasticd.types import Sign
from tests.unit.core.leading.bench import JOB, ME, A, B, spec_of, world_of
from tests.unit.core.leading.outbox import told


def relief_of(level: int = 0, micro: int = 4) -> Relief:
    """Of a job of 8 samples a step, at most so many at once."""
    batch = {**spec_of().to_dict(), "batch": {"global": 8, "micro": micro}}
    ctx = Context(ME, lambda: "0000", now=50.0)
    return Relief(ctx, JOB, JobSpec.from_dict(batch).batch, level)


def piece(fault: Sign = "oom", text: str = "std::bad_alloc") -> Evidence:
    return Evidence(A, fault, text, 49.0)


def give_up(relief: Relief, committed: int, *pieces: Evidence, least: int = 1) -> int:
    """The level after a world was formed with what this evidence asks for."""
    relief.settle(relief.weigh(pieces, committed, least), committed)
    return relief.level


def test_nothing_is_given_up_for_other_faults() -> None:
    assert relief_of().weigh([piece("worker_exit", "exit status 1")], 3, 1) is None


def test_what_keeps_the_bits_goes_first() -> None:
    relief = relief_of()
    assert give_up(relief, 3, piece()) == 1
    assert relief.cut().micro == 4 and not relief.rounds
    assert give_up(relief, 5, piece()) == RECOMPUTE_LEVEL
    assert relief.cut().micro == 4 and not relief.rounds
    assert give_up(relief, 7, piece()) == RECOMPUTE_LEVEL + 1
    assert relief.cut().micro == 2 and relief.rounds


def test_relief_that_did_not_bring_one_step_was_too_little() -> None:
    relief = relief_of()
    assert give_up(relief, 3, piece()) == 1
    assert give_up(relief, 3, piece()) == 3


def test_an_operator_has_it_given_back_and_it_is_given_up_again() -> None:
    relief = relief_of(level=3)
    relief.suspect("want of memory")
    relief.recall(1, 0)
    assert (relief.level, relief.turn, relief.can_help) == (0, 1, False)
    relief.recall(0, 4)  # an old record or world
    assert relief.level == 0
    assert give_up(relief, 3, piece()) == 1  # from the mildest on
    relief.recall(1, 0)
    assert relief.level == 1
    assert not relief.gives_back(None)
    assert relief.gives_back(replace(world_of(A, B), relief=3))
    assert not relief.gives_back(replace(world_of(A, B), relief=3, relief_turn=1))


def test_at_the_end_nothing_is_left() -> None:
    relief = relief_of(level=4)
    assert relief.cut().micro == 1
    assert not relief.has_more(1) and relief.weigh([piece()], 3, 1) is None


def test_no_grain_gets_smaller_than_the_model_can_bear() -> None:
    relief = relief_of(level=3)
    assert relief.has_more(1) and not relief.has_more(2)
    assert relief.weigh([piece()], 3, 2) is None


def test_a_foreboding_costs_no_bit() -> None:
    relief = relief_of()
    relief.pressed(B, "1 GiB is left")
    found = relief.weigh([], 3, 1)
    assert found is not None and found.in_time
    assert found.level == RECOMPUTE_LEVEL and found.text.startswith("on b 1 GiB is left: ")
    relief.settle(found, 3)
    relief.pressed(B, "1 GiB is left")
    assert not relief.can_help and relief.weigh([], 4, 1) is None


def test_a_foreboding_is_over_once_a_world_was_formed() -> None:
    relief = relief_of()
    relief.pressed(B, "1 GiB is left")
    relief.settle(relief.weigh([], 3, 1), 3)
    assert not relief.foreseen


def test_of_memory_that_ran_out_before_a_foreboding_came_true_the_foreboding_stays() -> None:
    relief = relief_of()
    relief.pressed(B, "1 GiB is left")
    relief.settle(relief.weigh([piece()], 3, 1), 3)
    assert relief.level == 1 and relief.can_help


def test_what_a_member_says_of_its_memory_is_not_replaced_by_a_suspicion() -> None:
    relief = relief_of()
    relief.suspect("trainers die without a word")
    relief.pressed(B, "1 GiB is left")
    relief.suspect("trainers die without a word")
    assert relief.foreseen == "on b 1 GiB is left"


def test_what_an_earlier_leader_gave_up_stays_given_up() -> None:
    relief = relief_of(level=1)
    relief.adopt(replace(world_of(A, B), relief=3))
    assert relief.level == 3
    relief.adopt(world_of(A, B))
    assert relief.level == 3


def test_people_are_told_whether_the_result_keeps_its_bits() -> None:
    relief, world = relief_of(), world_of(A, B)
    relief.level = 1
    relief.tell(0, "no spares", world)
    (kept,) = told(relief.ctx, "memory_relieved")
    assert (kept.generation, kept.fields["level"]) == (world.generation.counter, 1)
    relief.level = 3
    relief.tell(1, "smaller grains", None)
    (shrunk,) = told(relief.ctx, "batch_shrunk")
    assert (shrunk.fields["micro_before"], shrunk.fields["micro_after"]) == (4, 2)
    assert (shrunk.fields["global_batch"], shrunk.generation) == (8, None)


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4])
def test_the_global_batch_never_changes(level: int) -> None:
    relief = relief_of()
    assert relief.cut(level).global_size == 8
