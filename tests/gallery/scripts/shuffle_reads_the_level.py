"""What stands above shuffle() crops by a level that the loop's body raises."""

# /// gallery
# expect = "fails"
# words = ["shuffle()", "reads something that has changed"]
# ///

import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np

import elasticd
from elasticd.data import JsonLines

level = 2


def cropped(row):
    x = np.array(row["x"], np.float32)
    x[level:] = 0
    return x


def loss_fn(model, x):
    return nn.losses.mse_loss(model(x), x)


model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
stream = JsonLines("rows/*.jsonl").stream().map(cropped).shuffle(24)
run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss_fn, data=stream)
for step in run:
    level = min(8, 2 + step.number // 4)
