"""The two examples in small: the same bits alone, and on three ranks two of which die."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import mlx.core as mx
import numpy as np
import pytest

from tests.gallery.cards import Card
from tests.gallery.quick import digests
from tests.unit.examples.conftest import EXAMPLES, load


@dataclass(frozen=True)
class InSmall(Card):
    """An example's folder, with fewer steps of smaller batches."""

    def lay_out(self, folder: Path) -> Path:
        shutil.copytree(EXAMPLES / self.name, folder)
        job = folder / "job.toml"
        text = job.read_text()
        for key, value in (("global", 16), ("micro", 4), ("steps", 16), ("every_steps", 5)):
            text, changed = re.subn(rf"^{key} = \d+$", f"{key} = {value}", text, flags=re.M)
            assert changed == 1, key
        job.write_text(text)
        return job


@pytest.mark.parametrize("name", ["streaming", "gan"])
def test_an_example_has_the_same_bits_whoever_dies(name: str, tmp_path: Path) -> None:
    """Of the stream more than one epoch."""
    card, dice = InSmall(name, "an example"), random.Random(name)
    (alone,) = digests(card, tmp_path / "alone", "a", {}, name)
    kills = {rank: dice.randrange(10, 70) for rank in "ab"}
    lived = digests(card, tmp_path / "killed", "abc", kills, name)
    assert len(lived) >= 2 and set(lived) == {alone}


@pytest.fixture(scope="module")
def streaming() -> ModuleType:
    return load("streaming")


def test_a_row_weighs_as_much_as_it_has_bytes(streaming: ModuleType) -> None:
    """The end is predicted, and nothing behind it; its first byte isn't."""
    model = streaming.TextNet()
    short, full = (streaming.encode({"text": text}) for text in ("ab", "x" * 200))
    batches = [
        {"shown": mx.array(t[None, :-1]), "next": mx.array(t[None, 1:])} for t in (short, full)
    ]
    assert [float(streaming.loss_fn(model, batch).weight) for batch in batches] == [2, 64]


def test_all_rows_come_once_an_epoch(streaming: ModuleType) -> None:
    samples = list(streaming.rows(EXAMPLES / "streaming" / "data"))
    assert len(samples) == 171 and samples[0]["next"].shape == (streaming.LENGTH,)
    assert len({sample["next"].tobytes() for sample in samples}) > 165


def test_the_gan_has_gradients_of_both_halves() -> None:
    gan = load("gan")
    points = gan.ring(500)
    assert abs(np.hypot(*points.T).mean() - gan.RADIUS) < 0.01
    model = gan.Gan()
    loss, grads, fooled = gan.gradients(model, mx.array(points))
    assert grads.keys() == {"discriminator", "generator"} and loss.shape == fooled.shape == ()
