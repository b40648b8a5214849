"""The gallery's scripts in one process: no rank's death changes a bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.gallery.cards import cards
from tests.gallery.quick import NOT_HERE, digests

pytestmark = pytest.mark.slow
CARDS = cards()
SHOWN = [
    name
    for name, card in CARDS.items()
    if card.expect == "same" and not card.todo and name not in NOT_HERE
]


@pytest.mark.parametrize("name", SHOWN)
def test_a_script_has_the_same_bits_whoever_dies(name: str, tmp_path: Path) -> None:
    card, dice = CARDS[name], random.Random(name)
    (alone,) = digests(card, tmp_path / "alone", "a", {}, name)
    kills = {rank: dice.randrange(10, 100) for rank in "ab"}
    lived = digests(card, tmp_path / "killed", "abc", kills, name)
    assert len(lived) >= 2 and set(lived) == {alone}
