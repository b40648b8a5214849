"""Keeps one file, once, then waits for a restart: then it is to be there, and the script ends."""

import time
from pathlib import Path

import mlx.core as mx

import elasticd

world = mx.distributed.init()
kept = Path("ckpt/1.npz")
found = int(mx.distributed.all_sum(mx.array(int(kept.exists() and world.rank() == 0))).item())  # type: ignore[arg-type]
print(f"init {world.rank()} of {world.size()}, found {found}", flush=True)
if not found:
    if world.rank() == 0:
        kept.parent.mkdir(exist_ok=True)
        mx.savez(str(kept), x=mx.array(7.0))
        elasticd.plain.keep(kept)
        print("kept", flush=True)
    for _ in range(1000):
        mx.eval(mx.distributed.all_sum(mx.array(1.0)))
        time.sleep(0.05)
