"""``[track]``: where else the figures of a job go."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.settings.rules import boolean, rule, text

TRACK = "track"


@dataclass(frozen=True)
class TrackSettings:
    tensorboard: bool = field(default=False, metadata=rule(boolean))
    """The job's outputs have an event file of TensorBoard's, with the loss and ``run.log``."""
    wandb: str = field(default="", metadata=rule(text()))
    """The project at Weights & Biases that is told of them, too."""
    trackio: str = field(default="", metadata=rule(text()))
    """The same of trackio."""
