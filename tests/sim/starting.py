"""The beginning of a script: from the start of its process to ``Run(…)``."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from elasticd.core.words.trainers import TrainerAtRun, TrainerWaiting

from .threads import Sleep, Until, Wait

if TYPE_CHECKING:
    from .trainer import Trainer

_FINGERPRINT = {"dataset": "1000", "grain0": "0", "w": "float32[4]"}


def takes(trainer: Trainer, what: str, least: float, most: float) -> Wait:
    """So long, by the trainer's own stream of chance for ``what``; for ever, where it hangs."""
    if what == trainer.chokes_at:
        return Until(lambda: False)
    return Sleep(trainer.chance(what).uniform(least, most))


def reach_run(trainer: Trainer) -> Generator[Wait, None, bool]:
    """False if the script raises before."""
    least, most = trainer.cluster.setup.trainer_start_seconds
    if trainer.spare and trainer.spec.recovery.spare == "interpreter":
        yield takes(trainer, "starts", least / 2, most / 2)
        trainer.say(TrainerWaiting())
        yield Until(lambda: trainer.protocol.may_run)
        yield takes(trainer, "starts", least / 2, most / 2)
    else:
        yield takes(trainer, "starts", least, most)
    host, met = trainer.host, trainer.cluster.environments
    if host.environment.unmounted:
        raises(trainer)
        return False
    if host.environment.other:
        met.met(host, met.differed)
    trainer.built = host.environment.fingerprint(trainer.cluster.renewals.fingerprint(_FINGERPRINT))
    trainer.say(TrainerAtRun(trainer.built))
    return True


def raises(trainer: Trainer) -> None:
    """The script ends with an exception, by its environment's fault."""
    met = trainer.cluster.environments
    met.met(trainer.host, met.raised)
    trainer.die(1)
