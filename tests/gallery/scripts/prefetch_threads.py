"""A pool of threads decodes samples ahead of need, with a cache."""

import concurrent.futures
import functools
import zlib

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd


class Prefetched:
    """Compressed rows; each fetch starts the decoding of the next ones."""

    def __init__(self, rows, ahead=8):
        self.packed = [zlib.compress(row.tobytes()) for row in rows]
        self.pool = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="decode")
        self.ahead, self.pending = ahead, {}

    def __len__(self):
        return len(self.packed)

    @functools.lru_cache(maxsize=32)  # noqa: B019
    def decode(self, index):
        return np.frombuffer(zlib.decompress(self.packed[index]), np.float32)

    def __getitem__(self, index):
        for later in range(index, min(index + self.ahead, len(self))):
            if later not in self.pending:
                self.pending[later] = self.pool.submit(self.decode, later)
        return self.pending.pop(index).result()


rows = np.random.default_rng(0).normal(size=(100, 6)).astype(np.float32)
model = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 6))


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


run = elasticd.Run(model=model, optimizer=optim.Adam(5e-3), loss=loss_fn, data=Prefetched(rows))
for step in run:
    print(step.number, step.loss)
