"""``python -m elasticd.train.calibrating SIDE SECONDS``: how long MLX takes for matrix products.

It prints one JSON object: ``device``, and in ``seconds`` how long a product took, time after time.
It gives way to everything else on the machine.
"""

from __future__ import annotations

import json
import sys
import time

import mlx.core as mx

from elasticd.supervision.priority import BEHIND_RANKS, give_way

_AT_ONCE_SECONDS = 0.05
"""So long the products that are timed together take, so that starting them doesn't count."""
_LEAST_TIMES = 6


def product_seconds(side: int, seconds: float) -> list[float]:
    """Of a product of two square matrices of that side, in float32 on the default device; measured
    for so many seconds, six times at least."""
    first = mx.random.normal((side, side))
    # So that products of products neither grow nor vanish.
    second = mx.random.normal((side, side)) / side**0.5
    mx.eval(first, second)
    _timed(first, second, 1)  # what is compiled, and allocated, once
    count = max(1, round(_AT_ONCE_SECONDS / _timed(first, second, 1)))
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < _LEAST_TIMES or time.perf_counter() < until:
        found.append(_timed(first, second, count))
    return found


def _timed(first: mx.array, second: mx.array, count: int) -> float:
    began = time.perf_counter()
    product = first
    for _ in range(count):
        product = product @ second
    mx.eval(product)
    return (time.perf_counter() - began) / count


def main(side: int, seconds: float) -> None:
    give_way(BEHIND_RANKS)
    device = "gpu" if mx.default_device() == mx.Device(mx.gpu) else "cpu"
    print(json.dumps({"device": device, "seconds": product_seconds(side, seconds)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
