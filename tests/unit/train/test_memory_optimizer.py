"""What is suggested rests on arrays of MLX that were measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

import elasticd
from elasticd.errors import ConfigError, UsageError

DOCS = Path(__file__).parents[3] / "docs"
suggest = elasticd.MemoryOptimizer.suggest_config
WIDTH = 64
FLOATS = 1 << 16
"""That a sample of :func:`step_of` takes."""


def model_of(layers: int = 4) -> nn.Module:
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])


def step_of(model: nn.Module) -> Any:
    rows = FLOATS // WIDTH

    def loss(model: Any, batch: mx.array) -> Any:
        return (model(batch) ** 2).mean()

    both = nn.value_and_grad(model, loss)
    return lambda samples: both(model, mx.ones((samples * rows, WIDTH)))


def test_what_a_sample_takes_is_measured() -> None:
    model = model_of()
    found = suggest(model_size=model, num_devices=2, step=step_of(model), memory_bytes=1 << 30)
    # Its input and at least each layer's output are there in the backward pass.
    assert found.sample_bytes is not None
    assert 4 * 4 * FLOATS <= found.sample_bytes <= 12 * 4 * FLOATS
    assert found.config is not None and found.needed_bytes <= found.limit_bytes
    bigger = found.needed_bytes + found.config.batch_size_per_device * found.sample_bytes
    assert bigger > found.limit_bytes, "twice as many would not fit"
    assert "measured with 1, 2, 4" in str(found)


def test_what_was_measured_is_about_what_more_samples_take() -> None:
    model = model_of()
    step = step_of(model)
    found = suggest(model_size=model, num_devices=1, step=step, memory_bytes=1 << 30)
    assert found.sample_bytes is not None
    mx.eval(model.parameters())
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(step(8))
    taken = mx.get_peak_memory() - before
    assert taken == pytest.approx(8 * found.sample_bytes, rel=0.25)


def test_frozen_weights_take_no_gradient() -> None:
    model = model_of(4)
    whole = suggest(model_size=model, num_devices=1)
    model.layers[0].freeze()
    part = suggest(model_size=model, num_devices=1)
    one = 4 * WIDTH * WIDTH
    assert whole.needed_bytes - part.needed_bytes == 4 * one, "2 moments and 2 gradients less"


def test_without_a_measurement_it_says_what_is_not_known() -> None:
    found = suggest(model_size="10M", num_devices=4, memory_bytes=16 << 30)
    assert found.sample_bytes is None and found.config == elasticd.DistributedConfig(4, 1)
    assert "is not known, as nothing was measured" in str(found) and "at least" in str(found)
    # weights, 2 moments, the last gradient, this one, and two sums of four grains
    assert found.needed_bytes == 10_000_000 * 4 * 7


def test_a_model_that_does_not_fit_is_not_made_to_fit_by_more_nodes() -> None:
    for nodes in (1, 64):
        found = suggest(model_size="7B", num_devices=nodes, memory_bytes=64 << 30)
        assert found.config is None and found.needed_bytes > found.limit_bytes
        assert "more nodes don't change that" in str(found) and "LoRA" in str(found)
    small = suggest(model_size="7B", num_devices=1, memory_bytes=128 << 30, dtype="bfloat16")
    assert small.config is not None


def test_a_macs_limit_is_a_part_of_its_memory() -> None:
    small, large = (
        suggest(model_size="1M", num_devices=1, memory_bytes=size << 30).limit_bytes / (1 << 30)
        for size in (16, 128)
    )
    assert small == pytest.approx(0.9 * 16 * 2 / 3, abs=0.01)
    assert large == pytest.approx(0.9 * 128 * 3 / 4, abs=0.01)


def test_figures_of_a_job_that_ran() -> None:
    job = {"micro_batch": 8, "ranks": [{"active_bytes": 400 << 20, "peak_bytes": 900 << 20}]}
    more = {"micro_batch": 16, "ranks": [{"active_bytes": 400 << 20, "peak_bytes": 1300 << 20}]}
    found = suggest(
        model_size="25M", num_devices=2, global_batch=128, measured=[job, more],
        memory_bytes=4 << 30,
    )  # fmt: skip
    assert found.sample_bytes == 50 << 20 and "measured by the job" in str(found)
    assert found.config == elasticd.DistributedConfig(2, 32, 2)
    one = suggest(model_size="25M", num_devices=2, measured=job, memory_bytes=4 << 30)
    assert one.sample_bytes is not None and one.sample_bytes > 50 << 20


def test_the_global_batch_is_kept() -> None:
    model = model_of()
    found = suggest(
        model_size=model, num_devices=3, global_batch=36, step=step_of(model), memory_bytes=1 << 30
    )
    assert found.config is not None and found.config.global_batch == 36


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"model_size": "7GB"}, "must be a model, or its parameters"),
        ({"model_size": 0}, "must be a model"),
        ({"global_batch": 0}, "global_batch= must be a whole number from 1, not 0"),
        ({"global_batch": -2}, "global_batch= must be a whole number from 1, not -2"),
        ({"global_batch": 7}, "global_batch=7 is no multiple of 2 devices"),
        ({"memory_bytes": 0}, "memory_bytes= must be a whole number from 1, not 0"),
        ({"memory_bytes": "16GB"}, "memory_bytes= must be a whole number from 1, not '16GB'"),
        ({"global_batch": "8"}, "global_batch= must be a whole number from 1, not '8'"),
        ({"measured": 3}, "measured= must be jobs of status --json, not 3"),
        ({"step": 3}, "step= must be a function of a number of samples, not 3"),
        (
            {"optimizer": "adamm"},
            "optimizer= must be one of sgd, momentum, lion, adam, adamw, not 'adamm'",
        ),
        ({"dtype": mx.int8}, "not 'int8'"),
        ({"dtype": "int8"}, "dtype= must be one of float32, bfloat16, float16, not 'int8'"),
        ({"measured": {"micro_batch": 8, "ranks": []}}, "ask while the job trains"),
    ],
)
def test_what_makes_no_sense(words: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        suggest(**{"model_size": "1M", "num_devices": 2, **words})


def test_devices_that_no_job_can_have() -> None:
    with pytest.raises(ConfigError, match="num_devices: must be at least 1"):
        suggest(model_size="1M", num_devices=0)


def test_the_example_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "writing-jobs.md").read_text()
    text = text[text.index("## What fits in memory") :]
    example = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert example is not None
    exec(example[1], {})
    assert "[batch]" in capsys.readouterr().out


def test_a_dtype_of_mlx_is_one_too() -> None:
    by_name = suggest(model_size="1M", num_devices=1, dtype="bfloat16", memory_bytes=1 << 30)
    assert (
        suggest(model_size="1M", num_devices=1, dtype=mx.bfloat16, memory_bytes=1 << 30) == by_name
    )
