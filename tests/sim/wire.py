"""What sending vectors takes, in runs whose setup says so."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from elasticd.recovery.regroup import Shares, vectors_sent

from .threads import Sleep, Wait

if TYPE_CHECKING:
    from .trainer import Trainer


def sends(trainer: Trainer, dealt: Shares) -> Generator[Wait, None, None]:
    """As long as the rank takes that sends most; the trainer tells it of its reduction."""
    if wire := trainer.cluster.setup.wire_seconds:
        seconds = wire * vectors_sent(dealt)
        trainer.reduced_in(seconds)
        yield Sleep(seconds)
