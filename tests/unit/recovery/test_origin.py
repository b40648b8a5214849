"""What a job was built of when it began, across releases that look at other things."""

from __future__ import annotations

import pytest

from elasticd.recovery.origin import changed, origin_of

BEFORE = {"mlx": "0.31 cpu", "dataset": "2 samples", "grain0": "ab", "data/samples.jsonl:1": "c"}
NOW = {**BEFORE, "data/sample 0": "x", "data/samples 1 to 2": "y"}


def test_what_the_release_before_has_kept_of_data_stays_the_same() -> None:
    """Jobs go on over an upgrade, and over a downgrade."""
    assert origin_of(BEFORE) == (("data", "14e62860f7bcd952"), ("mlx", "0.31 cpu"))
    assert changed(origin_of(BEFORE), origin_of(NOW)) == ""
    assert changed(origin_of(NOW), origin_of(BEFORE)) == ""


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
    assert changed(origin_of(NOW), origin_of({**NOW, name: "other"})) == said
