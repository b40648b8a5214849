"""Models and scripts that use what must stay exact."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx.utils import tree_map

import elasticd
from elasticd.train.steps.data import stack

Report = dict[str, Any]


class Mixed(nn.Module):
    """Dropout, BatchNorm, a counter, three dtypes, a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 16)
        self.norm = nn.BatchNorm(16)
        self.drop = nn.Dropout(0.5)
        self.second = nn.Linear(16, 8)
        self.second.set_dtype(mx.bfloat16)
        self.third = nn.Linear(8, 8)
        self.third.set_dtype(mx.float16)
        self.last = nn.Linear(8, 3)
        self.last.freeze()
        self._calls = mx.array(0)

    def __call__(self, x: mx.array) -> mx.array:
        self._calls = self._calls + 1
        x = self.drop(nn.relu(self.norm(self.first(x))))
        x = self.third(self.second(x.astype(mx.bfloat16)).astype(mx.float16))
        return self.last(x.astype(mx.float32))


def samples(count: int = 23) -> list[Any]:
    rng = np.random.default_rng(5)
    return [{"x": rng.normal(size=4).astype(np.float32), "y": i % 3} for i in range(count)]


def noisy_stream() -> Iterator[Any]:
    """Draws from every global generator, in each epoch anew."""
    made = samples()
    random.shuffle(made)
    for sample in made:
        noise = random.gauss(0, 0.1) + np.random.normal() * 0.1 + float(mx.random.normal()) * 0.1
        yield {"x": sample["x"] + np.float32(noise), "y": sample["y"]}


def noisy(seat: Any) -> Report:
    """Draws in the stream, in collate, and between the reduction and the update."""

    def collate(rows: list[Any]) -> Any:
        batch = stack(rows)
        return {**batch, "x": batch["x"] + mx.random.normal(batch["x"].shape) * 0.1}

    mx.random.seed(1)
    model = Mixed()
    loss_and_grad: Any = nn.value_and_grad(model, loss)
    run = elasticd.Run(model=model, optimizer=optimizer(), data=noisy_stream, collate=collate)
    losses = {}
    for step in run.steps():
        for batch in step.micro_batches():
            step.accumulate(*loss_and_grad(model, batch))
        if not step.late:
            step.grads = tree_map(
                lambda g: g + mx.random.normal(g.shape, g.dtype) * 0.01, step.grads
            )
        step.apply()
        if not step.late:
            losses[step.number] = step.loss
    return {"digest": run.digest(), "losses": losses, "seat": seat}


def loss(model: Any, batch: Any) -> mx.array:
    return nn.losses.cross_entropy(model(batch["x"]), batch["y"]).mean()


def weighted_loss(model: Any, batch: Any) -> elasticd.Weighted:
    each = nn.losses.cross_entropy(model(batch["x"]), batch["y"])
    weights = batch["y"].astype(mx.float32) + 0.3
    return elasticd.Weighted((each * weights).sum() / weights.sum(), weights.sum())


def optimizer() -> optim.Optimizer:
    return optim.AdamW(learning_rate=optim.cosine_decay(1e-2, 10), eps=1e-3)


class Counting(optim.Adam):
    """Warms up by a counter of its own, and makes some of its state when it needs it."""

    def __init__(self) -> None:
        super().__init__(1e-2)
        self.t = 0

    def apply_gradients(self, gradients: Any, parameters: Any) -> Any:
        self.t += 1
        return super().apply_gradients(gradients, parameters)

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: Any) -> mx.array:
        state["last"] = 0.5 * state.get("last", mx.zeros_like(gradient)) + gradient / self.t
        result: mx.array = super().apply_single(state["last"], parameter, state)
        return result


class Numbered(nn.Module):
    """Its layers have numbers for names."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = {"0": nn.Linear(4, 8), "10": nn.Linear(8, 3)}

    def __call__(self, x: mx.array) -> mx.array:
        result: mx.array = self.blocks["10"](nn.relu(self.blocks["0"](x)))
        return result


def counting(seat: Any) -> Report:
    mx.random.seed(1)
    run = elasticd.Run(model=Numbered(), optimizer=Counting(), loss=loss, data=samples())
    losses = {step.number: step.loss for step in run}
    return {"digest": run.digest(), "losses": losses, "seat": seat}


def high_level(
    loss_fn: Callable[..., Any] = loss, compiled: bool = False
) -> Callable[[Any], Report]:
    def script(seat: Any) -> Report:
        mx.random.seed(1)
        model = Mixed()
        run = elasticd.Run(
            model=model, optimizer=optimizer(), loss=loss_fn, data=samples(), clip_norm=0.5,
            compile=compiled,
        )  # fmt: skip
        losses = {step.number: step.loss for step in run}
        return {"digest": run.digest(), "losses": losses, "seat": seat, "run": run}

    return script


def low_level(compiled: bool, tracked: bool = False) -> Callable[[Any], Report]:
    def script(seat: Any) -> Report:
        mx.random.seed(1)
        model = Mixed()
        opt = optimizer()
        loss_and_grad: Any = nn.value_and_grad(model, loss)
        if compiled:
            state = [model.state, mx.random.state]
            eager = loss_and_grad

            def whole(batch: Any) -> Any:
                return eager(model, batch)

            loss_and_grad = partial(mx.compile, inputs=state, outputs=state)(whole)
        run = elasticd.Run(model=model, data=samples())
        notes: dict[str, Any] = {"bodies": 0, "mean": mx.zeros((2,))}
        if tracked:
            run.track("notes", notes)
        losses = {}
        for step in run.steps():
            for batch in step.micro_batches():
                value, grads = loss_and_grad(batch) if compiled else loss_and_grad(model, batch)
                step.accumulate(value, grads)
            step.grads = optim.clip_grad_norm(step.grads, 0.5)[0]
            step.apply(opt)
            if not step.late:
                losses[step.number] = step.loss
            notes["bodies"] += 1
            notes["mean"] = notes["mean"] + step.loss
        return {"digest": run.digest(), "losses": losses, "seat": seat, "notes": notes}

    return script
