"""Main exports behind its loop, and is killed in the middle: the first time, or ``--always``.

With ``--break`` all leave their loop before the job's last step.
"""

import os
import signal
import sys

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import INPUTS, Samples  # type: ignore[import-not-found]

import elasticd


def loss(model: nn.Linear, batch: dict[str, mx.array]) -> mx.array:
    return nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean()


run = elasticd.Run(
    model=nn.Linear(INPUTS, 4),
    optimizer=optim.SGD(learning_rate=1e-2),
    loss=loss,
    data=Samples(0.0),
)
for step in run:
    if "--break" in sys.argv and step.number == 5:
        break
if run.is_main:
    begun = run.output_dir / "begun"
    if "--always" in sys.argv or not begun.exists():
        begun.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (run.output_dir / "result.txt").write_text(run.digest())
