"""What [track] tells, and what becomes of it where there is no room or no package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from elasticd.errors import UsageError
from elasticd.settings.track import TrackSettings
from elasticd.train.outputs.tensorboard import NAME
from elasticd.train.steps.named import GivenNumbers
from elasticd.train.steps.tracking import Tracking
from tests.tfevents import as_tensorboard_reads, scalars
from tests.unit.core.leading.bench import spec_of

SPEC = replace(spec_of(), track=TrackSettings(tensorboard=True))


class File:
    """One of ``run.open``'s, with room for so many bytes."""

    def __init__(self, path: Path, room: int = 1 << 20) -> None:
        self.path, self.room = path, room
        self.path.parent.mkdir(exist_ok=True)
        self.path.touch()

    def taking(self, name: str) -> Callable[[bytes], None]:
        return self._take

    def _take(self, data: bytes) -> None:
        if self.path.stat().st_size + len(data) > self.room:
            raise UsageError("the file would have more than it may have")
        with self.path.open("ab") as file:
            file.write(data)


def test_numbers_of_all_kinds_are_told_and_texts_are_not(tmp_path: Path) -> None:
    file = File(tmp_path / "events")
    tracking = Tracking(SPEC, file.taking, file.path.parent)
    tracking.begin()
    given = {"array": mx.array(0.5), "numpy": np.float32(2.0), "whole": 3, "text": "x"}
    tracking.body_ends(1, None, GivenNumbers().of(given), 2)
    tracking.body_ends(2, 1.5, {}, 1)
    assert scalars(file.path) == {
        1: {"array": 0.5, "numpy": 2.0, "whole": 3.0, "elasticd/world_size": 2.0},
        2: {"loss": 1.5, "elasticd/world_size": 1.0},
    }


def test_tensorboard_itself_reads_it(tmp_path: Path) -> None:
    """As it lies below a job's outputs, begun by one process and gone on with by the next."""
    file = File(tmp_path / NAME)
    for steps in (range(1, 4), range(4, 6)):
        tracking = Tracking(SPEC, file.taking, tmp_path)
        tracking.begin()
        for step in steps:
            given = GivenNumbers().of({"val/loss, gemäß": 2.0 * step} if step % 2 else {})
            tracking.body_ends(step, 1.0 / step, given, 3)
    told = as_tensorboard_reads(file.path.parent)
    assert told == {
        "loss": [(step, pytest.approx(1.0 / step)) for step in range(1, 6)],
        "val/loss, gemäß": [(1, 2.0), (3, 6.0), (5, 10.0)],
        "elasticd/world_size": [(step, 3.0) for step in range(1, 6)],
    }


def test_a_full_file_ends_no_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither that of the process that fills it, nor of one that finds it full."""
    file = File(tmp_path / "events", 200)
    first = Tracking(SPEC, file.taking, file.path.parent)
    first.begin()
    for step in range(1, 9):
        first.body_ends(step, 0.5, {}, 1)
    told = scalars(file.path)
    assert list(told) == list(range(1, len(told) + 1)) and 0 < len(told) < 8
    assert capsys.readouterr().err.count(f"the file of [track] ends at step {len(told) + 1}: ") == 1
    file.room = file.path.stat().st_size
    later = Tracking(SPEC, file.taking, file.path.parent)
    later.begin()
    later.body_ends(9, 0.5, {}, 1)
    assert capsys.readouterr().err.count("the file of [track] ends here: ") == 1
    assert scalars(file.path) == told
