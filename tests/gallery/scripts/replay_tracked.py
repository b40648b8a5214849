"""The same kind of replay buffer, as arrays in a tracked dict, so that it survives."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

SIZE = 32

policy = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 2))
optimizer = optim.Adam(5e-3)
run = elasticd.Run(model=policy, optimizer=optimizer, data=list(range(64)))
buffer = {
    "states": mx.random.normal((SIZE, 3)),
    "actions": mx.random.randint(0, 2, (SIZE,)),
    "returns": mx.zeros((SIZE,)),
    "next": 0,
}
run.track("buffer", buffer)


def loss_fn(policy, rows):
    logits = policy(buffer["states"][rows])
    logp = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = mx.take_along_axis(logp, buffer["actions"][rows][:, None], axis=1)[:, 0]
    return -(chosen * (buffer["returns"][rows] + 0.1)).mean()


loss_and_grad = nn.value_and_grad(policy, loss_fn)
for step in run.steps():
    for indices in step.micro_batches():
        step.accumulate(*loss_and_grad(policy, indices % SIZE))
    step.apply(optimizer)
    if step.late:
        continue
    at, state = buffer["next"], mx.random.normal((3,))
    action = mx.random.categorical(policy(state))
    buffer["states"][at] = state
    buffer["actions"][at] = action
    buffer["returns"][at] = mx.where(action == (state[0] > 0), 1.0, -1.0)
    buffer["next"] = (at + 1) % SIZE
