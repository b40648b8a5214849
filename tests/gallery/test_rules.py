"""The five rules of docs/writing-jobs.md: each example keeps its bits whoever dies, and who breaks
the rule has others."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gallery.cards import Card
from tests.gallery.quick import digests
from tests.unit.train.cohort import LeftOut

PAGE = Path(__file__).parents[2] / "docs" / "writing-jobs.md"
ABOVE = """
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd

dataset = np.random.default_rng(3).normal(size=(96, 4)).astype(np.float32)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
optimizer = optim.Adam(learning_rate=0.02)


def loss_fn(model, x):
    return mx.abs(model(x) - globals().get("target", 0.5)).mean()


"""
RULES = (
    "State lives in the model",
    "Code before the loop sets up step 0",
    "What depends on the step",
    "Every rank runs the body alike",
    "Read relative paths",
)


@dataclass(frozen=True)
class Example(Card):
    """One of the page's."""

    path: Path = Path()

    @property
    def source(self) -> Path:
        return self.path


def script(name: str, code: str, folder: Path) -> Example:
    """An example of the page, with what stands above it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(f'"""{name}."""\n{ABOVE}{code}')
    return Example(name, "an example", path=path)


def example(number: int, folder: Path, *changes: tuple[str, str]) -> Example:
    """That of a rule, as a script."""
    section = PAGE.read_text().partition("\n## Five rules\n")[2].partition("\n## ")[0]
    blocks = re.findall(rf"^\*\*{number}\. (.+?)```python\n(.+?)```", section, re.S | re.M)
    ((words, code),) = blocks
    assert words.startswith(RULES[number - 1])
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    return script(f"rule-{number}", code, folder)


def killed(card: Example, folder: Path, seed: int) -> tuple[str, set[str]]:
    """The digest alone, and those of three ranks two of which die."""
    dice = random.Random(seed)
    (alone,) = digests(card, folder / "alone", "a", {}, str(seed))
    kills = {rank: dice.randrange(20, 150) for rank in "ab"}
    lived = digests(card, folder / "killed", "abc", kills, str(seed))
    assert len(lived) >= 2
    return alone, set(lived)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("number", range(1, 6))
def test_an_example_keeps_its_bits(number: int, seed: int, tmp_path: Path) -> None:
    alone, lived = killed(example(number, tmp_path), tmp_path, seed)
    assert lived == {alone}


def test_the_example_of_on_main_keeps_its_bits(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("\n## What one rank decides\n")[2]
    code = re.findall(r"```python\n(.+?)```", section.partition("\n## ")[0], re.S)[0]
    path = tmp_path / "on_main.py"
    path.write_text(f'"""What one rank decides."""\n{ABOVE}{code}')
    card = Example("on-main", "the page's", path=path)
    (alone,) = digests(card, tmp_path / "alone", "a", {}, "1")
    lived = digests(card, tmp_path / "killed", "abc", {"a": 60, "b": 90}, "1")
    assert len(lived) >= 2
    assert set(lived) == {alone}


BREAKS = {
    1: (
        ("run.state.", "kept."),
        ("kept.patience = 4  #", "import types; kept = types.SimpleNamespace(patience=4)  #"),
    ),
    3: (
        ("for step in run:", "count = 0\nfor step in run:\n    count += 1"),
        ("step.number", "count"),
    ),
    4: (("    step.apply", "    step.grads = step.grads if run.is_main else {}\n    step.apply"),),
}


@pytest.mark.parametrize("number", BREAKS)
def test_who_breaks_the_rule_has_other_bits_or_is_left_out(number: int, tmp_path: Path) -> None:
    kept = []
    for seed in range(4):
        folder = tmp_path / str(seed)
        try:
            alone, lived = killed(example(number, folder, *BREAKS[number]), folder, seed)
            kept.append(lived == {alone})
        except LeftOut:
            kept.append(False)
    assert not all(kept)


def test_what_each_rank_has_of_its_own_changes_no_bit(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("\n## What each rank has of its own\n")[2]
    (code,) = re.findall(r"^```python\n(.+?)```", section.partition("\n## ")[0], re.S | re.M)
    assert "per_rank=True" in code
    alone, lived = killed(script("per-rank", code, tmp_path), tmp_path, 3)
    assert lived == {alone}
