"""Reinforcement learning from a replay buffer that is a plain deque outside of the run."""

# /// gallery
# expect = "left out"
# spared = ["everything"]
# words = ["state outside of run", "grain"]
# ///

import collections
import random

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

GAMMA = 0.9

q_network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
replay = collections.deque(maxlen=40)


def play(q, steps=4):
    """A walk on a line: go to the left, stay, or go to the right; the middle is good."""
    position, speed = random.uniform(-1, 1), 0.0
    for _ in range(steps):
        state = [position, speed]
        action = int(mx.argmax(q(mx.array(state))).item())
        if random.random() < 0.3:
            action = random.randrange(3)
        speed += 0.1 * (action - 1)
        position += speed
        replay.append((state, action, -abs(position), [position, speed]))


def loss_fn(q, index):
    rows = [replay[int(i) % len(replay)] for i in index.tolist()]
    states, actions, rewards, after = (mx.array(part) for part in zip(*rows, strict=True))
    best = mx.stop_gradient(q(after).max(axis=1))
    chosen = mx.take_along_axis(q(states), actions[:, None], axis=1)[:, 0]
    return nn.losses.huber_loss(chosen, rewards + GAMMA * best, reduction="mean")


play(q_network)
run = elasticd.Run(
    model=q_network, optimizer=optim.Adam(1e-3), loss=loss_fn, data=list(range(1000))
)
for step in run:
    play(q_network)
