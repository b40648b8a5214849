"""``elasticd.average_gradients`` beside MLX's own, and with weights."""

import mlx.core as mx
import mlx.nn as nn

import elasticd
from elasticd.errors import UsageError

world = mx.distributed.init()
rank, size = world.rank(), world.size()
mx.random.seed(rank)
grads = {"w": mx.random.normal((300, 7)), "layers": [{"b": mx.random.normal((5,))}]}
grads["half"] = mx.full((4,), float(rank), mx.bfloat16)
theirs = nn.average_gradients(grads)
ours = elasticd.average_gradients(grads)
summed = elasticd.all_reduce_grads(grads)
assert mx.allclose(ours["w"], theirs["w"], atol=1e-6)
assert mx.allclose(ours["layers"][0]["b"], theirs["layers"][0]["b"], atol=1e-6)
assert mx.allclose(summed["w"] / size, theirs["w"], atol=1e-6)
assert ours["half"].dtype == mx.bfloat16
lost = {"x": mx.array([float("nan") if rank == 0 else float(rank)])}
weighted = elasticd.average_gradients(lost, weight=rank)["x"].item()
expected = sum(r * r for r in range(size)) / sum(range(size))
assert abs(weighted - expected) < 1e-6, (weighted, expected)
assert elasticd.average_gradients({"x": mx.ones(2)}, weight=0)["x"].tolist() == [0.0, 0.0]
both = elasticd.all_reduce_grads(
    {"c": mx.array(1 + 2j), "i": mx.array(2**24 + 1), "t": (mx.ones(1),)}
)
assert both["c"].item() == (1 + 2j) * size and both["i"].item() == (2**24 + 1) * size
assert isinstance(both["t"], tuple)
for call in (elasticd.average_gradients, elasticd.all_reduce_grads):
    try:
        call({"x": mx.ones(2)} | ({"only": mx.ones(1)} if rank == 0 else {}))
    except UsageError as error:
        assert "rank 0 has only (float32, 1)" in str(error), error
    else:
        raise AssertionError("rank 0 has another gradient")
print("averaged", flush=True)
