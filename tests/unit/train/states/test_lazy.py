"""Private arrays that a first forward pass makes are part of the state."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from elasticd.errors import UsageError
from tests.unit.train.cohort import Cohort, Result, spec

DATA = np.random.default_rng(4).normal(size=(24, 4)).astype(np.float32)


class Anchored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self._anchor: Any = None

    def __call__(self, x: mx.array) -> mx.array:
        if self._anchor is None:
            self._anchor = mx.stop_gradient(self.linear.weight) * 0.5
        result: mx.array = self.linear(x) + x @ self._anchor.T
        return result


class Growing(Anchored):
    """Its private array is another in each pass."""

    def __call__(self, x: mx.array) -> mx.array:
        result = super().__call__(x)
        assert self._anchor is not None
        self._anchor = self._anchor + 1
        return result


class Statistics(Anchored):
    """Each pass puts its statistics into a list or dict, or another one in the place of it."""

    def __init__(self, anew: bool, kind: str) -> None:
        super().__init__()
        self._is_anew, self._kind = anew, kind
        self._held: Any = self._hold(mx.zeros(4), mx.ones(4))

    def _hold(self, mean: mx.array, spread: mx.array) -> Any:
        if self._kind == "dict":
            return {"mean": mean, "spread": spread}
        return [[mean], [spread]] if self._kind == "nested" else [mean, spread]

    def __call__(self, x: mx.array) -> mx.array:
        held = self._held
        inner = [held["mean"], held["spread"]] if self._kind == "dict" else held
        mean, spread = (one[0] if self._kind == "nested" else one for one in inner)
        flat = mx.stop_gradient(x.reshape(-1, 4))
        result = super().__call__((x - mean) / (1 + spread))
        now = self._hold(0.9 * mean + 0.1 * flat.mean(0), 0.9 * spread + 0.1 * flat.var(0))
        if self._kind == "gone":
            self._held = []
        elif self._is_anew:
            self._held = now
        elif self._kind == "nested":
            held[0][0], held[1][0] = now[0][0], now[1][0]
        elif self._kind == "dict":
            held |= now
        else:
            held[:] = now
        return result


class Public(Anchored):
    def __call__(self, x: mx.array) -> mx.array:
        self.anchor = self.linear.weight * 1
        return super().__call__(x)


class Cached(nn.Module):
    """In evaluation mode it keeps what it needs, one for each length, and the longest of all."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self._scale: Any = None
        self._longest: Any = mx.arange(1)
        self._by_length: dict[int, mx.array] = {}

    def __call__(self, x: mx.array) -> mx.array:
        weight = self.linear.weight * 2
        if not self.training:
            self._scale = weight if self._scale is None else self._scale
            if len(self._longest) < len(x):
                self._longest = mx.arange(len(x))
            self._by_length[len(x)] = self._longest[: len(x)]
            weight = self._scale
        return x @ weight.T


class Lengthening(Anchored):
    """Its caches are as long as the longest batch so far: one is made in the first pass, one is
    there before. And it keeps what went through it last."""

    def __init__(self) -> None:
        super().__init__()
        self._places: Any = None
        self._ones, self._last = mx.ones((1, 4)), mx.zeros((1,))

    def __call__(self, x: mx.array) -> mx.array:
        if self._places is None or len(self._places) < len(x):
            self._places = 0.1 * mx.arange(len(x), dtype=mx.float32)[:, None] + mx.ones((1, 4))
        if len(self._ones) < len(x):
            self._ones = mx.ones((len(x), 4))
        self._last = x + 1
        return super().__call__(x * self._places[: len(x)] * self._ones[: len(x)])


class Unlengthened(Anchored):
    """The same without a cache."""

    def __call__(self, x: mx.array) -> mx.array:
        places = 0.1 * mx.arange(len(x), dtype=mx.float32)[:, None] + mx.ones((1, 4))
        return super().__call__(x * places)


class ByLength(Anchored):
    """Its caches are in a dict, each for batches of one length."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[Any, Any] = {}
        self._scale = mx.array(0.1)

    def __call__(self, x: mx.array) -> mx.array:
        if len(x) not in self._known:
            places = self._scale * mx.arange(len(x), dtype=mx.float32)[:, None]
            self._known[len(x)] = (places, mx.ones((1, 4)))
        places, ones = self._known[len(x)]
        return super().__call__(x * (places + ones))


class Carrying(ByLength):
    """It goes on with what the pass before has left."""

    def __call__(self, x: mx.array) -> mx.array:
        self._known[0] = self._known.get(0, 0) + mx.stop_gradient(x).mean(0)
        return super().__call__(x)


class Initialised(ByLength):
    """Its scale comes of the first samples that it sees."""

    def __call__(self, x: mx.array) -> mx.array:
        if "scale" not in self._known:
            self._known["scale"] = 1 / mx.stop_gradient(x).std()
        return super().__call__(x)


class Averaging(ByLength):
    """Found once more it leaves the same."""

    def __call__(self, x: mx.array) -> mx.array:
        now = mx.stop_gradient(x).mean(0)
        self._known[0] = 0.5 * self._known.get(0, now) + 0.5 * now
        return super().__call__(x)


class Weighing(ByLength):
    """What it keeps comes of a weight, which each step changes."""

    def __call__(self, x: mx.array) -> mx.array:
        if 0 not in self._known:
            self._known[0] = mx.stop_gradient(self.linear.weight) * 2
        return super().__call__(x)


class Noting(ByLength):
    """It notes in a dict of its own what there is in the other."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: dict[int, bool] = {}

    def __call__(self, x: mx.array) -> mx.array:
        if len(x) in self._lengths:
            self._known[len(x)][0]
        self._lengths[len(x)] = True
        return super().__call__(x)


class Remembering(Anchored):
    """It adds each batch to what it knows."""

    def __init__(self) -> None:
        super().__init__()
        self._known = mx.zeros((0, 4))

    def __call__(self, x: mx.array) -> mx.array:
        self._known = mx.concatenate([self._known, x])
        return super().__call__(x) + self._known.mean()


class Telling(Anchored):
    """It leaves a term of the loss with the module."""

    def __call__(self, x: mx.array) -> mx.array:
        self._term = x.square().mean()
        return super().__call__(x)


def loss(model: Any, x: mx.array) -> mx.array:
    return mx.abs(model(x) - 1).mean()


def growing(rows: list[Any]) -> mx.array:
    """Batches of many lengths."""
    x = mx.array(np.stack(rows))
    return mx.concatenate([x] * (1 + int(abs(rows[0][0]) * 4) % 5))


def script(kind: Callable[[], Anchored], low: bool, **more: Any) -> str:
    mx.random.seed(1)
    model: Any = nn.Sequential(kind(), nn.Tanh(), Anchored())
    optimizer = optim.Adam(1e-2)
    run = elasticd.Run(
        model=model, optimizer=optimizer, loss=None if low else loss, data=DATA, **more
    )
    if not low:
        for _ in run:
            pass
        return run.digest()
    loss_and_grad: Any = nn.value_and_grad(model, loss)
    for step in run.steps():
        for batch in step.micro_batches():
            step.accumulate(*loss_and_grad(model, batch))
        step.apply()
    return run.digest()


def made(kind: Callable[[], Anchored], low: bool, seed: int, names: str, **more: Any) -> list[str]:
    dice = random.Random(seed)
    cohort = Cohort(spec(train__steps=6), lambda seat: script(kind, low, **more), dice)
    if len(names) > 1:
        cohort.kills, cohort.respawn = {n: dice.randrange(2, 80) for n in "ab"}, True
        cohort.delivers, cohort.keeps_updates = dice.random() < 0.5, dice.random() < 0.5
    results = cohort.run(list(names))
    return [_value(result) for result in results.values() if not _died(result)]


def _died(result: Result) -> bool:
    return type(result.error).__name__ == "Killed"


def _value(result: Result) -> str:
    if result.error is not None:
        raise result.error
    return str(result.value)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("low", [False, True], ids=["high", "low"])
def test_deaths_change_no_bit(low: bool, seed: int) -> None:
    (alone,) = made(Anchored, low, 0, "a")
    assert set(made(Anchored, low, seed, "abc")) == {alone}


def test_what_every_pass_changes_is_refused_by_name_or_summed() -> None:
    with pytest.raises(UsageError, match=r"changed layers\.0\._anchor, which the job's first pass"):
        made(Growing, False, 0, "a")
    with pytest.raises(UsageError, match=r"changed layers\.0\._term, which the job's first pass"):
        made(Telling, False, 0, "a")
    with pytest.raises(UsageError, match=r"made float32\[6,4\] of layers\.0\._known, which was"):
        made(Remembering, False, 0, "a")
    with pytest.raises(UsageError, match=r"put layers\.0\._known\.0 into a private dict, and some"):
        made(Carrying, False, 0, "a")


@pytest.mark.parametrize(
    ("kind", "key"), [(Initialised, "scale"), (Averaging, "0"), (Weighing, "0")]
)
@pytest.mark.parametrize(
    "more",
    [{}, {"collate": growing}, {"collate": growing, "compile": True}],
    ids=["one length", "many", "compiled"],
)
def test_a_private_dict_s_entry_that_is_no_cache_is_refused_by_name(
    kind: type[Anchored], key: str, more: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=rf"put layers\.0\._known\.{key} into a private dict, and"):
        made(kind, False, 0, "a", **more)


@pytest.mark.parametrize("evaluates", [False, True])
def test_what_says_that_a_cache_is_there_goes_with_it(evaluates: bool) -> None:
    def script(seat: Any) -> str:
        model: Any = nn.Sequential(Noting(), nn.Linear(4, 4))
        run = elasticd.Run(
            model=model, optimizer=optim.Adam(1e-2), data=DATA, loss=loss, collate=growing
        )
        for _ in run:
            for length in range(1, 9) if evaluates else ():
                run.evaluate(lambda length=length: mx.eval(model(mx.ones((length, 4)))))
        return run.digest()

    (result,) = Cohort(spec(train__steps=6), script, random.Random(0)).run(["a"]).values()
    assert _value(result)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["list", "dict", "nested"])
def test_what_every_pass_puts_in_a_list_s_place_is_summed(kind: str, seed: int) -> None:
    """As where it writes into the list that is there."""
    into, anew = (lambda: Statistics(False, kind)), (lambda: Statistics(True, kind))
    (alone,) = made(into, True, 0, "a")
    assert made(anew, True, 0, "a") == [alone]
    assert set(made(anew, True, seed, "abc")) == {alone}


def test_a_list_that_a_pass_makes_shorter_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"made layers\.0\._held\.0 come or go"):
        made(lambda: Statistics(True, "gone"), True, 0, "a")


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", [Lengthening, ByLength, Noting])
def test_a_cache_that_grows_with_the_batch_changes_no_bit(
    kind: type[Anchored], compiled: bool
) -> None:
    more: dict[str, Any] = {"collate": growing, "compile": compiled}
    (alone,) = made(kind, False, 0, "a", **more)
    assert made(Unlengthened, False, 0, "a", **more) == [alone]
    for seed in range(2 if compiled else 6):
        assert set(made(kind, False, seed, "abc", **more)) == {alone}
    if not compiled:
        more.pop("compile")
        assert set(made(kind, True, 1, "abc", **more)) == {alone}


def test_a_dict_of_caches_under_a_compilation_of_the_script_s_own_is_refused() -> None:
    def script(seat: Any) -> None:
        model: Any = nn.Sequential(ByLength(), nn.Linear(4, 4))
        run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), data=DATA, collate=growing)
        both: Any = nn.value_and_grad(model, loss)

        def grain(x: mx.array) -> Any:
            return both(model, x)

        compiled: Any = mx.compile(grain, inputs=[model.state], outputs=[model.state])
        for step in run.steps():
            for batch in step.micro_batches():
                step.accumulate(*compiled(batch))
            step.apply()

    (result,) = Cohort(spec(train__steps=6), script, random.Random(0)).run(["a"]).values()
    assert isinstance(result.error, UsageError), result.error
    assert "_known" in str(result.error)


def test_all_ranks_keep_the_cache_that_the_first_grain_has_made() -> None:
    """Later grains of the first step are longer on one rank than on another."""

    def lengths(seat: Any) -> list[tuple[int, ...]]:
        mx.random.seed(1)
        model: Any = nn.Sequential(Lengthening(), Anchored())
        run = elasticd.Run(
            model=model, optimizer=optim.Adam(1e-2), loss=loss, data=DATA, collate=growing
        )
        return [model.layers[0]._places.shape for _ in run]

    found: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for names in ("a", "abc"):
        cohort = Cohort(spec(train__steps=6, train__seed=0), lengths, random.Random(0))
        found |= {(names, n): each.value for n, each in cohort.run(list(names)).items()}
    assert {len({*shapes}) for shapes in found.values()} == {1}
    assert len({shapes[0] for shapes in found.values()}) == 1, found


def test_an_array_that_is_no_private_one_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"layers\.0\.anchor come or go"):
        made(Public, False, 0, "a")


def evaluating(seat: Any) -> tuple[str, list[float]]:
    mx.random.seed(1)
    model: Any = nn.Sequential(Cached(), Anchored())
    data = mx.array(DATA)

    def validate() -> float:
        found: Any = loss(model, data).item()
        return float(found)

    run = elasticd.Run(model=model, optimizer=optim.Adam(1e-2), loss=loss, data=DATA)
    seen = [run.evaluate(validate)]
    for step in run:
        if run.is_main or step.number % 2:  # on some ranks
            seen.append(run.evaluate(validate))
        layer = model.layers[0]
        assert layer._scale is None and layer._longest.shape == (1,) and not layer._by_length
    return run.digest(), seen


def test_what_a_model_caches_in_an_evaluation_goes_with_it() -> None:
    """Each one is made of the weights of its time, and no rank has what others lack."""
    job = spec(train__steps=6)
    (alone,) = Cohort(job, evaluating, random.Random(0)).run(["a"]).values()
    digest, seen = alone.value
    assert len(seen) == len(set(seen)) == 7
    for seed in range(3):
        dice = random.Random(seed)
        cohort = Cohort(job, evaluating, dice)
        cohort.kills, cohort.respawn = {n: dice.randrange(2, 80) for n in "ab"}, True
        results = [r for r in cohort.run(list("abc")).values() if not _died(r)]
        assert {r.error for r in results} == {None}
        assert {r.value[0] for r in results} == {digest}


class Attending(nn.Module):
    """Its cache has a name as parameters have; in evaluation mode it grows from pass to pass."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: Any = None
        self.seen: Any = (mx.zeros(1), mx.ones(1))
        self.linear = nn.Linear(4, 4)
        self.parts: Any = [nn.Linear(4, 4)]

    def __call__(self, x: mx.array) -> mx.array:
        x = self.parts[0](self.linear(x))
        if not self.training:
            self.cache = (x, x) if self.cache is None else (self.cache[0], mx.concatenate([x, x]))
            self.seen = None
        return x


def test_caches_that_are_called_as_parameters_are_go_with_the_evaluation_too() -> None:
    def script(seat: Any) -> None:
        model: Any = nn.Sequential(Attending(), Anchored())
        attending = model.layers[0]
        attending.freeze(keys=["seen"], recurse=False)
        order = list(attending)
        run = elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA)
        for _ in run:
            weight = attending.linear.weight
            run.evaluate(lambda: [model(mx.array(DATA)) for _ in range(3)])
            assert attending.cache is None and [a.item() for a in attending.seen] == [0, 1]
            assert list(attending) == order and attending.linear.weight is weight

    (result,) = Cohort(spec(train__steps=2), script, random.Random(0)).run(["a"]).values()
    assert result.error is None


def test_what_a_body_makes_a_model_cache_is_refused_with_the_cure() -> None:
    def script(seat: Any) -> None:
        model: Any = nn.Sequential(Cached(), Anchored())
        for _ in elasticd.Run(model=model, optimizer=optim.SGD(0.1), loss=loss, data=DATA):
            model.eval()
            model(mx.array(DATA))
            model.train()

    (result,) = Cohort(spec(), script, random.Random(0)).run(["a"]).values()
    assert isinstance(result.error, UsageError)
    assert "run.evaluate(fn), which takes away" in str(result.error)
