"""How many samples fit, by what was measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elasticd.recovery.fitting import MOST_SAMPLES, MemoryFit, MemoryHold, MemoryPoint

HOLD = MemoryHold(resident_bytes=1000, gradient_bytes=100, sum_bytes=200)


def points(*pairs: tuple[int, int]) -> list[MemoryPoint]:
    return [MemoryPoint(*pair) for pair in pairs]


def test_two_measurements_tell_the_samples_from_the_rest() -> None:
    fit = MemoryFit.of(HOLD, points((1, 160), (2, 170), (4, 190)))
    assert (fit.fixed_bytes, fit.sample_bytes) == (150, 10)
    assert fit.needed(8, 1) == 1000 + 150 + 80


def test_a_rise_that_grows_counts_as_its_steepest() -> None:
    fit = MemoryFit.of(HOLD, points((1, 100), (2, 110), (4, 170)))
    assert fit.sample_bytes == 30 and fit.needed(4, 1) >= 1000 + 170


def test_what_falls_is_no_gain() -> None:
    assert MemoryFit.of(HOLD, points((1, 200), (2, 150))).sample_bytes == 0


def test_of_one_measurement_all_but_the_gradient_is_the_samples() -> None:
    fit = MemoryFit.of(HOLD, points((4, 180), (4, 150)))
    assert (fit.fixed_bytes, fit.sample_bytes) == (100, 20)


def test_sums_are_held_for_each_doubling_of_grains() -> None:
    fit = MemoryFit.of(HOLD, [])
    assert [fit.needed(1, grains) - 1100 for grains in (1, 2, 3, 64)] == [0, 200, 400, 1200]


def test_without_a_measurement_one_sample_is_all_that_is_said() -> None:
    assert MemoryFit.of(HOLD, []).most(10**9, None, 2) == 1
    assert MemoryFit.of(HOLD, []).most(1000, None, 2) == 0


@given(st.integers(0, 5000), st.integers(1, 300), st.integers(1, 5), st.integers(1, 200))
def test_what_is_said_to_fit_fits_and_divides(
    limit: int, share: int, nodes: int, sample: int
) -> None:
    fit = MemoryFit.of(HOLD, points((1, 100 + sample), (2, 100 + 2 * sample)))
    samples = fit.most(limit, share, nodes)
    able = [n for n in range(1, share + 1) if share % n == 0]
    fits = [n for n in able if fit.needed(n, nodes * share // n) <= limit]
    assert samples == max(fits, default=0)


def test_there_is_an_end_where_no_batch_says_less() -> None:
    fit = MemoryFit.of(HOLD, points((1, 100), (2, 100)))
    assert fit.most(10**9, None, 1) == MOST_SAMPLES
