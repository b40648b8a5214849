"""What members of a job must have alike, and so whether MLX fuses kernels on the CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

from elasticd.data.jsonlines import JsonLines
from elasticd.recovery.origin import origin_of
from elasticd.settings.job import JobSpec
from elasticd.train.fingerprint import fingerprint, has_compiler
from elasticd.train.states.state import TrainingState
from elasticd.train.steps.data import source_of
from elasticd.train.steps.sampling import Batches


@pytest.mark.parametrize("found", [0, 1, FileNotFoundError(), subprocess.TimeoutExpired("g++", 9)])
def test_a_compiler_that_is_there_and_fails_is_none(found: int | Exception) -> None:
    """As the one of a Mac without Apple's command line tools."""
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str], timeout_seconds: float) -> tuple[int, str]:
        asked.append(command)
        if isinstance(found, Exception):
            raise found
        return found, "xcode-select: note: No developer tools were found"

    assert has_compiler(run) is (found == 0)
    assert has_compiler(run) is (found == 0)
    assert asked == [("g++", "--version")], "it is asked once in a process"


def test_what_every_build_tells_stays_as_it_is(tmp_path: Path) -> None:
    """A job remembers with what it began, and trainers of two builds train together while a cluster
    is upgraded: who tells the same otherwise is left out, or lets a job end. What has to be told in
    another way is told apart, as samples are (recovery/samples.py)."""
    for name, count in (("a", 3), ("b", 5000)):
        (tmp_path / f"{name}.jsonl").write_text("".join(f'{{"x": {n}}}\n' for n in range(count)))
    given = {"name": "a", "entrypoint": "a.py"}, {"global": 8, "micro": 2}, {"steps": 1, "seed": 5}
    spec = JobSpec.from_dict(dict(zip(("job", "batch", "train"), given, strict=True)))
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm(3), nn.Linear(3, 1))
    model.layers[0].freeze()
    state = TrainingState(model, optim.SGD(1e-3), None)
    source = source_of(JsonLines(tmp_path / "*.jsonl"), Batches(8, 2), 5)
    grain0 = [mx.array([[1.0, 2.0], [3.0, 4.0]]), {"y": mx.array([1, 2])}]
    parts = dict(origin_of(fingerprint(spec, state, source, grain0, 0.5)))
    assert (parts["data"], parts["model"]) == ("cbb3d6b0c83c079d", "155ac1fce2f9b57d")
