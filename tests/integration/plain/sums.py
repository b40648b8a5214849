"""Sums over all ranks, again and again; what is wrong about it, if anything, is an argument.

``raises``: with an exception on all ranks. ``one-raises``: on rank 0 alone. ``sleeps``: rank 0
does nothing, the first time. ``all-sleep``: nobody does. ``one-leaves``: rank 1 ends with 0
before the others. ``with-three``: a smaller world goes on until it has grown. ``held``: the test
says when it ends. ``unmounted``: with an exception on the node where a file of that name is.
"""

import os
import sys
import time
from pathlib import Path

import mlx.core as mx
from hold import released  # type: ignore[import-not-found]

rounds, *wrong = sys.argv[1:]
restarts = int(os.environ["ELASTICD_RESTARTS"])
world = mx.distributed.init(strict=int(os.environ["MLX_WORLD_SIZE"]) > 1, backend="any")
print(f"init {world.rank()} of {world.size()}, time {restarts}", flush=True)
if "raises" in wrong:
    mx.eval(mx.distributed.all_sum(mx.array(1.0)))  # so that all are here, and fail together
    raise ValueError("there is no such data set")
if (
    "unmounted" in wrong
    and (Path(os.environ["ELASTICD_OUTPUT_DIR"]).parents[1] / wrong[0]).exists()
):
    raise FileNotFoundError("/Volumes/data is not mounted")
assert world.rank() == int(os.environ["MLX_RANK"]) == int(os.environ["MLX_GLOBAL_RANK"])
whole = "with-three" not in wrong or world.size() == 3
for _ in range(int(rounds) if whole else 10_000):
    if "one-raises" in wrong and world.rank() == 0:
        raise ValueError("rank 0 has no room")
    if "sleeps" in wrong and world.rank() == 0 and restarts == 0:
        time.sleep(600)
    if "all-sleep" in wrong and restarts == 0:
        time.sleep(600)
    if "one-leaves" in wrong and world.rank() == 1:
        sys.exit()
    total = mx.distributed.all_sum(mx.array(1.0))
    assert total.item() == world.size()
    time.sleep(0.1)
while "held" in wrong and not released(world):
    time.sleep(0.05)
print(f"summed {world.size()}", flush=True)
