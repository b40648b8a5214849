"""``losses.jsonl``: what a recipe tells of its steps, as ``elasticctl report`` draws it."""

from __future__ import annotations

import json
import math
from typing import TextIO

LOSSES = "losses.jsonl"
_MOST_LINES = 20_000
"""Of a long job each so-manieth step has one: so the file stays well below what ``run.open`` and a
report take."""


class LossLog:
    """One line of JSON for a step: ``step``, ``loss``, and what else there is to say of it."""

    def __init__(self, file: TextIO, steps: int) -> None:
        self._file = file
        self._every = -(-steps // _MOST_LINES)

    def take(self, step: int, validation_loss: float | None = None, **figures: float) -> None:
        """Write a step's line, if it has one: so has each that was validated. What is not finite is
        no JSON, and is left out."""
        if validation_loss is not None:
            figures["validation_loss"] = validation_loss
        elif step % self._every:
            return
        told = {name: float(f"{v:.8g}") for name, v in figures.items() if math.isfinite(v)}
        print(json.dumps({"step": step, **told}), file=self._file)
