"""Main appends a line to a file that it opens after each step; all do to one of run.open."""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from common import INPUTS, Samples, options  # type: ignore[import-not-found]

import elasticd


def loss(model: nn.Linear, batch: dict[str, mx.array]) -> mx.array:
    return nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean()


run = elasticd.Run(
    model=nn.Linear(INPUTS, 4),
    optimizer=optim.SGD(learning_rate=1e-2),
    loss=loss,
    data=Samples(options().pace_seconds),
)
log = run.open("logs/metrics.csv")
for step in run:
    print(step.number, file=log)
    run.log(number=step.number)
    if run.is_main:
        with (run.output_dir / "history.jsonl").open("a") as file:
            file.write(json.dumps({"step": step.number, "rank": run.rank}) + "\n")
if run.is_main:
    (run.output_dir / "result.txt").write_text(run.digest())
