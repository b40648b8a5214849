"""Numbers of things in messages."""

from __future__ import annotations

import pytest

from elasticd.counting import counted


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (None, "None nodes")]
)
def test_one_thing_is_no_plural(number: int | None, said: str) -> None:
    assert counted(number, "node") == said


def test_a_plural_of_its_own() -> None:
    assert counted(1, "recovery is", "recoveries are") == "1 recovery is"
    assert counted(2, "recovery is", "recoveries are") == "2 recoveries are"
