from __future__ import annotations

import math
import sysconfig
from pathlib import Path
from types import ModuleType

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_reduce


def write(root: Path, name: str, text: bytes) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def windows(byte_lm: ModuleType, count: int) -> mx.array:
    text = bytes(range(256)) * (1 + count * byte_lm.CONTEXT // 256 + 1)
    samples = byte_lm.Windows(text)
    return mx.array(np.stack([samples[index] for index in range(count)]))


def test_sources_come_in_the_order_of_their_relative_paths(
    byte_lm: ModuleType, tmp_path: Path
) -> None:
    for name in ("b.py", "a/z.py", "a.py", "a/a.py", "Z.py"):
        write(tmp_path, name, name.encode())
    found = list(byte_lm.python_sources(tmp_path))
    assert found == [b"Z.py", b"a.py", b"a/a.py", b"a/z.py", b"b.py"]


@pytest.mark.parametrize(
    "name",
    [
        "site-packages/mlx.py",
        "config-3.11-darwin/python-config.py",
        "pkg/__pycache__/cached.py",
        "test/test_int.py",
        "_sysconfigdata__linux_x86_64-linux-gnu.py",
        "notes.txt",
    ],
)
def test_what_differs_between_hosts_is_left_out(
    byte_lm: ModuleType, tmp_path: Path, name: str
) -> None:
    write(tmp_path, "kept.py", b"kept")
    write(tmp_path, name, b"left out")
    assert list(byte_lm.python_sources(tmp_path)) == [b"kept"]


def test_links_are_left_out(byte_lm: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "lib/kept.py", b"kept")
    write(tmp_path, "etc/sitecustomize.py", b"the host's own")
    (tmp_path / "lib" / "sitecustomize.py").symlink_to(tmp_path / "etc" / "sitecustomize.py")
    assert list(byte_lm.python_sources(tmp_path / "lib")) == [b"kept"]


def test_a_file_is_on_one_side_only_and_copies_are_together(byte_lm: ModuleType) -> None:
    texts = [f"file {index};".encode() for index in range(200)]
    training, held_out = byte_lm.split_sources(iter(texts + texts))
    sides = [[t for t in side.split(b";") if t] for side in (training, held_out)]
    assert not set(sides[0]) & set(sides[1])
    assert sorted(sides[0] + sides[1]) == sorted([t[:-1] for t in texts] * 2)
    assert 0 < len(sides[1]) < len(sides[0]) / 4


def test_the_interpreter_ships_megabytes_and_reads_the_same_twice(byte_lm: ModuleType) -> None:
    root = Path(sysconfig.get_path("stdlib"))
    first, second = (byte_lm.split_sources(byte_lm.python_sources(root)) for _ in range(2))
    assert first == second
    training, held_out = (byte_lm.Windows(text) for text in first)
    assert len(training) * byte_lm.CONTEXT > 2_000_000
    assert len(held_out) >= byte_lm.HELD_OUT_WINDOWS


def test_windows_predict_every_byte_but_the_first_once(byte_lm: ModuleType) -> None:
    text = bytes(index % 251 for index in range(5 * byte_lm.CONTEXT + 1))
    samples = byte_lm.Windows(text)
    assert len(samples) == 5
    assert all(samples[index].shape == (byte_lm.CONTEXT + 1,) for index in range(5))
    assert b"".join(samples[index][1:].tobytes() for index in range(5)) == text[1:]
    for index in (-1, 5):
        with pytest.raises(IndexError):
            samples[index]
    assert len(byte_lm.Windows(b"")) == 0


def test_the_model_maps_one_hot_bytes_to_logits(byte_lm: ModuleType) -> None:
    model = byte_lm.ByteLM()
    for length in (1, byte_lm.CONTEXT):
        assert model(mx.zeros((2, length, 256))).shape == (2, length, 256)
    size = tree_reduce(lambda total, leaf: total + leaf.size, model.parameters(), 0)
    assert size is not None and 50_000 < size < 200_000


def test_a_byte_sees_none_that_follow(byte_lm: ModuleType) -> None:
    model = byte_lm.ByteLM()
    model.eval()
    one_hot = mx.random.normal((1, byte_lm.CONTEXT, 256), key=mx.random.key(1))
    changed = mx.concatenate([one_hot[:, :-1], one_hot[:, :1]], axis=1)
    before, after = model(one_hot), model(changed)
    assert mx.array_equal(before[:, :-1], after[:, :-1])
    assert not mx.array_equal(before[:, -1], after[:, -1])


def test_the_loss_is_the_cross_entropy_of_the_next_byte(byte_lm: ModuleType) -> None:
    model = byte_lm.ByteLM()
    model.eval()
    batch = windows(byte_lm, 3)
    one_hot = mx.eye(256)[batch[:, :-1].astype(mx.int32)]
    expected = nn.losses.cross_entropy(
        model(one_hot), batch[:, 1:].astype(mx.int32), reduction="mean"
    )
    assert float(byte_lm.loss_fn(model, batch)) == pytest.approx(float(expected), rel=1e-5)


def test_bits_per_byte_repeats_and_an_untrained_model_knows_nothing(byte_lm: ModuleType) -> None:
    samples = byte_lm.Windows(bytes(range(256)) * 4)
    model = byte_lm.ByteLM()
    model.eval()
    first, second = (byte_lm.bits_per_byte(model, samples) for _ in range(2))
    assert first == second
    assert 7 < first < 10


def test_the_learning_rate_rises_then_falls_to_a_tenth(byte_lm: ModuleType) -> None:
    schedule = byte_lm.learning_rate()
    last = byte_lm.WARMUP_STEPS + byte_lm.DECAY_STEPS
    steps = (0, byte_lm.WARMUP_STEPS, last, 10 * last)
    rates = [float(schedule(mx.array(step))) for step in steps]
    peak = byte_lm.PEAK_RATE
    expected = [peak / byte_lm.WARMUP_STEPS, peak, peak / 10, peak / 10]
    assert rates == pytest.approx(expected, rel=1e-4)
    assert math.isfinite(sum(rates))
