"""Random generators of the script's own: what they draw is the same whoever dies."""

from __future__ import annotations

import collections
import itertools
import random
import threading
import types
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from elasticd.train.states.namespace import Namespace
from elasticd.train.steps.generators import OwnGenerator, OwnGenerators, found_in, is_generator
from elasticd.train.steps.reach import reached
from tests.unit.train.cohort import Cohort, Killed, spec

STEPS = 8


def reached_from(start: Any) -> list[Any]:
    return reached([start], is_generator).found


DRAWS: dict[str, Callable[[], Any]] = {
    "random": lambda: random.Random(3),
    "state": lambda: np.random.RandomState(3),
    **{
        name: lambda name=name: np.random.Generator(getattr(np.random, name)(3))  # type: ignore[misc]
        for name in ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
    },
}


def drawn(generator: Any) -> list[float]:
    if isinstance(generator, random.Random):
        return [generator.gauss(0, 1) for _ in range(3)]
    return [float(generator.normal()) for _ in range(3)]


@pytest.mark.parametrize("kind", DRAWS)
def test_what_is_drawn_follows_from_its_own_seed_and_the_place(kind: str) -> None:
    make = DRAWS[kind]
    one, other = make(), make()
    mine, twin = OwnGenerator(one), OwnGenerator(other)
    drawn(one)  # it stands elsewhere, with a number left over
    found = []
    for own, generator in ((mine, one), (twin, other)):
        own.seed(11)
        found.append(drawn(generator))
        own.seed(12)
        found.append(drawn(generator))
    assert found[0] == found[2] and found[1] == found[3] and found[0] != found[1]
    drawn(one)
    elsewhere = OwnGenerator(one)
    elsewhere.seed(11)
    assert drawn(one) != found[0], "it was found in another state"


@pytest.mark.parametrize("kind", DRAWS)
def test_it_can_be_put_back(kind: str) -> None:
    generator = DRAWS[kind]()
    own, _ = OwnGenerator(generator), generator.random()
    before = own.state()
    first = drawn(generator)
    own.put(before)
    assert drawn(generator) == first


def test_what_is_kept_or_left_alone_stands_where_it_stood() -> None:
    kept, alone, ours = random.Random(1), random.Random(2), random.Random(3)
    own = OwnGenerators()
    own.begin(lambda: [kept])
    own.leave_alone([alone])
    own.adopt([kept, alone, ours])
    before = [one.getstate() for one in (kept, alone, ours)]
    own.seed(5)
    after = [one.getstate() for one in (kept, alone, ours)]
    assert after[:2] == before[:2] and after[2] != before[2]


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(2, 2)]
        self.layers[0].inner = nn.Identity()
        self.layers[0].inner.dice = random.Random(1)


def holder(**names: Any) -> Any:
    return types.SimpleNamespace(**names)


def test_where_they_are_found() -> None:
    a, b, c, d = (random.Random(n) for n in range(4))
    model = Noisy()
    deep = model.layers[0].inner.dice
    found = found_in([1, a, [b], {"c": c, "again": a}, holder(inner=holder(rng=d)), model])
    assert len(found) == 5 and {id(one) for one in found} == {id(x) for x in (a, b, c, d, deep)}


class Answers:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("nobody asks me")


def test_what_is_none_of_the_scripts_own() -> None:
    class Mine(random.Random):
        def random(self) -> float:
            return 0.5

    inner = random.Random(1)
    others = [
        random, np.random, random._inst, np.random.mtrand._rand, random.SystemRandom(), Mine(1),
        threading.Lock(), Answers(),
        optim.SGD(0.1), holder(a=holder(b=holder(c=inner))), [inner] * 2000, lambda: inner,
        collections.deque([inner]),
    ]  # fmt: skip
    others[8].rng = inner
    assert found_in(others) == []


GLOBAL = random.Random(5)


def of_global() -> Any:
    return (lambda: GLOBAL.random())()


def test_what_a_stream_reaches() -> None:
    around, default, own = random.Random(1), random.Random(2), random.Random(3)

    class Reader:
        def __init__(self) -> None:
            self.rng = own

        def read(self, dice: Any = default) -> Any:
            return around, of_global(), mx.ones(1)

    assert set(map(id, reached_from(Reader().read))) == {
        id(one) for one in (around, default, own, GLOBAL)
    }


# In a run.


class Script:
    """A generator that is made above, and what draws from it."""

    def __init__(self, kind: str, place: str) -> None:
        self.rng = DRAWS[kind]()
        self.place = place
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def draw(self, place: str) -> float:
        return drawn(self.rng)[0] if place == self.place else 0.0

    def run(self) -> str:
        rows, script = np.random.default_rng(2).normal(size=(30, 4)).astype(np.float32), self

        class Data:
            def __len__(self) -> int:
                return len(rows)

            def __getitem__(self, index: int) -> Any:
                return rows[index] + np.float32(script.draw("data"))

        def loss(model: Any, batch: Any) -> mx.array:
            wrong: mx.array = (model(batch) - 1).square().mean()
            return wrong * (1 + self.draw("loss"))

        optimizer: Any = optim.SGD(0.01)
        run = elasticd.Run(model=self.model, optimizer=optimizer, data=Data())
        loss_and_grad: Any = nn.value_and_grad(self.model, loss)
        rate = 0.01 + 0.001 * self.draw("above")
        for step in run.steps():
            for batch in step.micro_batches():
                step.accumulate(*loss_and_grad(self.model, batch))
            optimizer.learning_rate = rate * (1 + 0.1 * self.draw("middle"))
            step.apply(optimizer)
            if step.number % 3 == 0:
                self.model.layers[0].weight = self.model.layers[0].weight * (1 + self.draw("body"))
        return run.digest()


@pytest.mark.parametrize("kind", ["random", "state", "PCG64"])
@pytest.mark.parametrize("place", ["above", "data", "loss", "middle", "body"])
def test_who_dies_changes_nothing(kind: str, place: str) -> None:
    def script(seat: Any) -> str:
        mx.random.seed(1)
        return Script(kind, place).run()

    def run(ranks: str, kills: dict[str, int], delivers: bool = False) -> set[str]:
        cohort = Cohort(spec(train__steps=STEPS), script, random.Random(4))
        cohort.kills, cohort.respawn, cohort.delivers = kills, bool(kills), delivers
        results = cohort.run(list(ranks)).values()
        errors = [r.error for r in results if r.error and not isinstance(r.error, Killed)]
        assert not errors, errors[0]
        return {result.value for result in results if result.error is None}

    alone = run("a", {})
    assert len(alone) == 1 and run("abc", {}) == alone
    assert run("abc", {"a": 70, "b": 110}) == alone
    assert run("ab", {"b": 60}, delivers=True) == alone


def test_it_may_be_drawn_from_by_its_own_name_where_it_is_kept() -> None:
    kept = Namespace()
    rng, dice = np.random.default_rng(1), random.Random(1)
    kept.rng, kept.dice = rng, dice
    saved = kept.state_dict()
    first = [rng.random(), dice.random()]
    kept.load_state_dict(saved)
    assert [rng.random(), dice.random()] == first and kept.rng is rng and kept.dice is dice


class Endless(list[int]):
    def __iter__(self) -> Any:
        return itertools.count()


class Proxy:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("it is not connected")


def test_objects_that_answer_in_their_own_way_are_looked_at_without_asking_them() -> None:
    rng = random.Random(1)

    def stream() -> list[Any]:
        return [endless, proxy, rng]

    endless, proxy = Endless([1]), Proxy()
    assert found_in([endless, proxy, [rng]]) == [rng]
    assert reached_from(stream) == [rng]
