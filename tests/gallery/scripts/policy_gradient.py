"""REINFORCE: the loss plays the games, and a running mean of the reward is the baseline."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

states = mx.random.normal((80, 4))
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))


def play(states, actions):
    """The reward is highest for the action that the state's first entries name."""
    return (states[:, :3].argmax(axis=1) == actions).astype(mx.float32)


def loss_fn(model, states):
    logits = model(states)
    actions = mx.stop_gradient(mx.random.categorical(logits))
    reward = play(states, actions)
    chosen = mx.take_along_axis(nn.log_softmax(logits), actions[:, None], axis=1).squeeze(1)
    advantage = mx.stop_gradient(reward - run.state.baseline)
    return -(advantage * chosen).mean()


optimizer = optim.RMSprop(optim.linear_schedule(1e-2, 1e-3, 20))
run = elasticd.Run(model=policy, optimizer=optimizer, loss=loss_fn, data=states)
run.state.baseline = mx.array(0.0)
for step in run:
    reward = play(states, policy(states).argmax(axis=1)).mean()
    run.state.baseline = 0.9 * run.state.baseline + 0.1 * reward
    if step.number % 6 == 0:
        print(f"step {step.number}: the best actions win {reward.item():.3f}")
