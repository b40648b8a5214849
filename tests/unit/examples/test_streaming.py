"""Examples in small: the same bits alone, and on three ranks two of which die."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
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


@pytest.mark.parametrize("name", ["streaming", "gan", "sliding"])
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


def test_a_token_sees_as_far_as_its_windows_reach() -> None:
    """Both layers together, and no token that follows."""
    sliding = load("sliding")
    mx.random.seed(3)
    model, sequence = sliding.SlidingNet(), sliding.Repeats()[7]
    before = model(mx.array(sequence[None, :-1]))
    at = 3
    sequence[at] = (sequence[at] + 1) % sliding.SYMBOLS
    differs = mx.abs(model(mx.array(sequence[None, :-1])) - before).max(axis=-1)[0] > 1e-6
    reach = sliding.LAYERS * (sliding.WINDOW - 1)
    assert np.flatnonzero(np.array(differs)).tolist() == [*range(at, at + reach + 1)]


def test_the_plain_script_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    """Alone, as without elasticd: mlx.launch gives it nothing that it has to have."""
    shutil.copytree(EXAMPLES / "plain", tmp_path / "plain")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MLX_")}
    ends = []
    for steps in (10, 20, 20):
        done = subprocess.run(
            [sys.executable, "train.py", "--steps", str(steps), "--save-every", "10"],
            cwd=tmp_path / "plain", capture_output=True, text=True, timeout=100, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        first, *_, last = done.stdout.splitlines()
        ends.append((first.rpartition(" ")[2], last))
        if steps == 20 and len(ends) == 2:
            (tmp_path / "plain/ckpt/000020.safetensors").unlink()
    assert [begun for begun, _ in ends] == ["0", "10", "10"] and ends[1] == ends[2]
