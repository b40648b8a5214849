"""What a job was built of when it began, across releases that look at other things."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from elasticd.recovery.origin import Origin, changed, origin_of
from elasticd.recovery.samples import Samples

TOLD = {"mlx": "0.31 cpu", "dataset": "2 samples", "grain0": "ab", "data/samples.jsonl:1": "c"}
SAMPLES = {"data/sample 0": "x", "data/samples 1 to 2": "y"}
DATA = ("data", "14e62860f7bcd952")
MLX = ("mlx", "0.31 cpu")


def now(form: int = 1, others: Mapping[str, str] = {}) -> Origin:
    """As a trainer of this build has it, with samples."""
    told = {**TOLD, **SAMPLES, **others}
    return origin_of(
        {name: text for name, text in told.items() if name not in SAMPLES},
        Samples(form, {name: told[name] for name in SAMPLES}),
    )


def test_what_earlier_builds_have_kept_of_data_stays_the_same() -> None:
    """Jobs go on over an upgrade, and over a downgrade."""
    assert origin_of(TOLD) == (DATA, MLX)
    assert origin_of(TOLD, Samples(1)) == (DATA, MLX, ("samples/1", "e4a6a0577479b2b4"))
    for before in ((DATA, MLX), (DATA, MLX, ("samples", "as they were made then"))):
        assert changed(before, now()) == changed(now(), before) == ""


def test_the_same_samples_in_another_form_are_no_others() -> None:
    assert changed(now(1), now(2)) == "" != changed(now(2), now(2, {"data/sample 0": "z"}))


def test_samples_that_a_trainer_of_an_earlier_build_tells_are_not_kept() -> None:
    """In which form they are nobody knows."""
    assert origin_of({**TOLD, **SAMPLES}) == origin_of(TOLD)


def test_samples_that_a_build_has_kept_within_the_data_cost_nothing() -> None:
    """All between the two that told samples first and had a part of their own for them."""
    before = (("data", "with its samples"), MLX)
    assert changed(before, now()) == ""
    assert changed(before, origin_of(TOLD, Samples(1))) == "its data is another", "it tells none"
    assert changed((*before, ("samples", "x")), now()) == "its data is another"
    other = {**TOLD, "grain0": "cd"}
    assert (
        changed(origin_of(other, Samples(1)), now())
        == "its data is another; its samples are others"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("data/sample 0", "its samples are others"),
        ("data/samples 1 to 2", "its samples are others"),
        ("data/samples.jsonl:1", "its data is another"),
        ("grain0", "its data is another"),
    ],
)
def test_what_differs_is_named(name: str, said: str) -> None:
    assert changed(now(), now(1, {name: "other"})) == said
