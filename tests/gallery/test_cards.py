"""What the scripts of the gallery say of themselves can be read."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from elasticd.settings.job import load
from tests.gallery.blows import KINDS, draw
from tests.gallery.cards import SCRIPTS, Card, cards, read

CARDS = cards()
FEWEST = 60


def test_there_are_many() -> None:
    assert len(CARDS) >= FEWEST
    assert len({card.habit for card in CARDS.values()}) == len(CARDS)


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS.keys())
def test_a_card_can_be_shown(card: Card, tmp_path: Path) -> None:
    assert card.habit.endswith("."), "one sentence, in one line"
    compile(card.source.read_text(), str(card.source), "exec")
    assert card.expect == "same" or card.words, "what must be said?"
    assert not card.todo or re.match(r"issue \d+( items? [\d, a-z]+)?: ", card.todo), card.todo
    spec = load(card.lay_out(tmp_path / "job"))
    assert (tmp_path / "job" / spec.job.entrypoint).read_text() == card.source.read_text()


def test_folders_belong_to_scripts() -> None:
    folders = {path.name for path in SCRIPTS.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders <= CARDS.keys()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = 1\n", "no docstring"),
        ('"""A."""\n# /// gallery\n# expects = "same"\n# ///\n', "unknown keys ..expects"),
        ('"""A."""\n# /// gallery\n# expect = "good"\n# ///\n', "expect = 'good'"),
    ],
)
def test_a_card_that_says_nonsense(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=what):
        read(path)


def test_blows_are_drawn_in_order() -> None:
    blows = draw(random.Random(5), 24, 3, KINDS)
    assert sorted(blow.kind for blow in blows) == sorted(KINDS)
    assert [blow.step for blow in blows] == sorted({blow.step for blow in blows})
    assert all(2 <= blow.step < 18 for blow in blows)
    assert blows == draw(random.Random(5), 24, 3, KINDS)
