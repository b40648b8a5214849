"""A student learns from a teacher that is no part of what is trained."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import elasticd

TEMPERATURE = 2.0

teacher = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 5))
teacher.eval()
teacher.freeze()
mx.eval(teacher.parameters())
student = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5))


def log_softmax(x):
    return x - mx.logsumexp(x, axis=-1, keepdims=True)


def loss_fn(student, x):
    wanted = log_softmax(teacher(x) / TEMPERATURE)
    found = log_softmax(student(x) / TEMPERATURE)
    return nn.losses.kl_div_loss(found, wanted, reduction="mean") * TEMPERATURE**2


data = mx.random.normal((120, 8))
run = elasticd.Run(model=student, optimizer=optim.Adam(5e-3), loss=loss_fn, data=data)
for step in run:
    print(step.number, step.loss)
