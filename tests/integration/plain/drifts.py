"""One rank misses an update; ``elasticd.check_weights`` ends all, and names what differs."""

import mlx.core as mx
import mlx.nn as nn

import elasticd

world = mx.distributed.init()
mx.random.seed(3)
model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
for step in range(1, 9):
    for layer in model.layers:
        layer.weight = layer.weight * 0.9
    if step == 5 and world.rank() == 1:
        model.layers[1].weight = model.layers[1].weight + 1e-3
    if elasticd.check_weights(model, every=2):
        print(f"same at {step}", flush=True)
print("never", flush=True)
