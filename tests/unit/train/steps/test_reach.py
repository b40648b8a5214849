"""Generators of the script's own, wherever people keep them: who dies changes no bit."""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
import threading
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
import pytest

import elasticd
from elasticd.train.states.namespace import Namespace
from elasticd.train.steps.generators import is_generator
from elasticd.train.steps.ownstate import _leads_to
from elasticd.train.steps.reach import reached
from tests.unit.train.cohort import Cohort, Killed, spec

STEPS = 8
Draw = Callable[[], float]


class Slotted:
    __slots__ = ("rng",)

    def __init__(self, rng: Any) -> None:
        self.rng = rng

    def draw(self) -> float:
        return float(self.rng.random())


@dataclasses.dataclass(slots=True)
class Settings:
    seed: int
    dice: list[random.Random] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice.append(random.Random(self.seed))


class Mine(random.Random):
    """With a helper more."""

    def sign(self) -> int:
        return self.choice((-1, 1))


class Wide(np.random.Generator):
    pass


def slots() -> Draw:
    return Slotted(np.random.default_rng(3)).draw


def slots_of_a_dataclass() -> Draw:
    settings = Settings(4)
    return lambda: settings.dice[0].random()


def closure() -> Draw:
    rng = np.random.default_rng(3)
    return lambda: float(rng.normal())


def closure_in_a_closure() -> Draw:
    inner = closure()

    def outer() -> float:
        return inner() + 1

    return outer


def compiled() -> Draw:
    rng = random.Random(3)

    def noisy(x: mx.array) -> mx.array:
        return x + rng.random()

    held = [mx.value_and_grad(noisy)]

    def draw() -> float:
        value: Any = held[0](mx.array(0.5))[0].item()
        return float(value)

    return draw


def default_argument() -> Draw:
    def draw(rng: Any = random.Random(3)) -> float:  # noqa: B008
        return float(rng.random())

    return types.FunctionType(draw.__code__, globals(), "draw", (random.Random(3),))


def partial() -> Draw:
    return functools.partial(np.random.Generator.uniform, np.random.default_rng(3), -1, 1)


def bound_method() -> Draw:
    return random.Random(3).random


def deep_attributes() -> Draw:
    holder = types.SimpleNamespace
    trainer = holder(data=holder(augment=holder(noise=holder(rng=random.Random(3)))))
    return lambda: trainer.data.augment.noise.rng.random()


def deque_and_default_dict() -> Draw:
    ring = collections.deque([random.Random(3)])
    by_name: Any = collections.defaultdict(list, a=[np.random.default_rng(4)])
    return lambda: ring[0].random() + by_name["a"][0].random()


def frame_of_a_generator() -> Draw:
    def noise() -> Iterator[float]:
        rng = random.Random(3)
        while True:
            yield rng.random()

    numbers = noise()
    next(numbers)
    return functools.partial(next, numbers)


def class_attribute() -> Draw:
    class Sampler:
        rng = np.random.default_rng(3)

        def draw(self) -> float:
            return float(self.rng.random())

    return Sampler().draw


def module_of_its_own() -> Draw:
    module: Any = types.ModuleType("noise")
    module.__file__ = "/somewhere/noise.py"
    code = "import numpy as np\nrng = np.random.default_rng(3)\ndef draw(): return rng.random()\n"
    exec(code, vars(module))
    return lambda: float(module.draw())


def function_of_such_a_module() -> Draw:
    module: Any = types.ModuleType("noise")
    module.__file__ = "/somewhere/noise.py"
    exec("import random\nrng = random.Random(3)\ndef draw(): return rng.random()\n", vars(module))
    draw: Draw = module.draw
    return draw


def subclass_of_random() -> Draw:
    return Mine(3).random


def subclass_of_generator() -> Draw:
    return Wide(np.random.PCG64(3)).random


def legacy_on_other_bits() -> Draw:
    state = np.random.RandomState(np.random.PCG64(3))
    return lambda: float(state.normal())


def bits_alone() -> Draw:
    bits = np.random.PCG64(3)
    return lambda: float(np.random.Generator(bits).random())


def two_on_the_same_bits() -> Draw:
    bits = np.random.PCG64(3)
    one, other = np.random.Generator(bits), np.random.Generator(bits)
    return lambda: float(one.random() + other.normal())


def spawns() -> Draw:
    rng = np.random.default_rng(3)
    return lambda: float(rng.spawn(1)[0].random())


def spawned_above() -> Draw:
    children = np.random.default_rng(3).spawn(3)
    return lambda: float(children[1].random())


def child_spawns() -> Draw:
    child = np.random.default_rng(3).spawn(2)[1]
    return lambda: float(child.spawn(2)[1].random())


def sequence_spawns() -> Draw:
    seeds = np.random.SeedSequence(3)
    return lambda: float(np.random.default_rng(seeds.spawn(1)[0]).random())


PLACES: list[Callable[[], Draw]] = [
    slots, slots_of_a_dataclass, closure, closure_in_a_closure, compiled, default_argument, partial,
    bound_method, deep_attributes, deque_and_default_dict, frame_of_a_generator, class_attribute,
    module_of_its_own, function_of_such_a_module, subclass_of_random, subclass_of_generator,
    legacy_on_other_bits, bits_alone, two_on_the_same_bits, spawns, spawned_above, child_spawns,
    sequence_spawns,
]  # fmt: skip


def train(draw: Draw, where: str) -> str:
    mx.random.seed(1)
    model = nn.Linear(4, 3)
    rows = np.random.default_rng(2).normal(size=(30, 4)).astype(np.float32)

    def loss(model: Any, batch: Any) -> mx.array:
        wrong: mx.array = (model(batch) - 1).square().mean()
        return wrong * (1 + draw()) if where == "loss" else wrong

    run = elasticd.Run(model=model, optimizer=optim.SGD(0.01), loss=loss, data=mx.array(rows))
    for step in run:
        if where == "body" and step.number % 3 == 0:
            model.weight = model.weight * (1 + 0.1 * draw())
    return run.digest()


def digests(make: Callable[[], Draw], where: str, ranks: str, kills: dict[str, int]) -> set[str]:
    cohort = Cohort(spec(train__steps=STEPS), lambda _: train(make(), where), random.Random(4))
    cohort.kills, cohort.respawn = kills, bool(kills)
    results = cohort.run(list(ranks)).values()
    errors = [r.error for r in results if r.error and not isinstance(r.error, Killed)]
    assert not errors, errors[0]
    return {result.value for result in results if result.error is None}


@pytest.mark.parametrize("where", ["body", "loss"])
@pytest.mark.parametrize("make", PLACES, ids=lambda make: make.__name__)
def test_who_dies_changes_nothing(make: Callable[[], Draw], where: str) -> None:
    alone = digests(make, where, "a", {})
    assert len(alone) == 1 and digests(make, where, "abc", {}) == alone
    assert digests(make, where, "abc", {"a": 70, "b": 110}) == alone


class Trainer:
    """Its stream begins a generator of its own, and its body draws from another."""

    def __init__(self) -> None:
        self.rng = random.Random(3)
        self.rows = np.random.default_rng(2).normal(size=(30, 4)).astype(np.float32)
        self.model = nn.Linear(4, 3)

    def stream(self) -> Iterator[Any]:
        rng = random.Random(5)
        while True:
            yield self.rows[rng.randrange(30)]

    def train(self) -> str:
        def loss(model: Any, batch: Any) -> mx.array:
            wrong: mx.array = (model(batch) - 1).square().mean()
            return wrong

        optimizer = optim.SGD(0.01)
        run = elasticd.Run(model=self.model, optimizer=optimizer, loss=loss, data=self.stream)
        for step in run:
            if step.number % 3 == 0:
                self.model.weight = self.model.weight * self.rng.uniform(0.9, 1.1)
        return run.digest()


def test_what_a_stream_leads_to_and_does_not_draw_from_is_seeded() -> None:
    def script(_: Any) -> str:
        mx.random.seed(1)
        return Trainer().train()

    def run(ranks: str, kills: dict[str, int]) -> set[str]:
        cohort = Cohort(spec(train__steps=STEPS), script, random.Random(4))
        cohort.kills, cohort.respawn = kills, bool(kills)
        results = cohort.run(list(ranks)).values()
        errors = [r.error for r in results if r.error and not isinstance(r.error, Killed)]
        assert not errors, errors[0]
        return {result.value for result in results if result.error is None}

    alone = run("a", {})
    assert run("ab", {"b": 70}) == alone == run("abc", {"a": 70, "b": 110})


def test_kept_generators_go_on_with_their_children() -> None:
    kept, again = Namespace(), Namespace()
    kept.rng, kept.dice = np.random.default_rng(3), random.Random(1)
    kept.rng.spawn(2)
    saved = kept.state_dict()
    again.load_state_dict(saved)
    expected = kept.rng.spawn(1)[0].random()
    assert again.rng.spawn(1)[0].random() == expected
    kept.load_state_dict(saved)
    assert kept.rng.spawn(1)[0].random() == expected
    fresh = Namespace()
    fresh.rng = np.random.default_rng(3)
    assert "spawns" not in fresh.state_dict()["generators"]["rng"], "as an earlier build wrote it"
    kept.load_state_dict(fresh.state_dict())
    assert kept.rng.spawn(1)[0].random() == fresh.rng.spawn(1)[0].random()


def test_too_much_to_look_through_is_told() -> None:
    rng = random.Random(3)
    heap = [[[object()] for _ in range(1000)] for _ in range(400)]
    assert reached([rng, heap], is_generator) == ([rng], False)
    assert reached([rng, heap[:9]], is_generator) == ([rng], True)


def test_what_the_libraries_themselves_draw_from_is_left_to_their_own_seeds() -> None:
    legacy: Any = np.random.mtrand._rand
    noise = functools.partial(np.random.uniform, -1, 1)
    starts = [np.random.normal, noise, random.gauss, legacy, legacy._bit_generator, [legacy]]
    assert reached(starts, is_generator) == ([], True)


class Loader(threading.Thread):
    dice = random.Random(5)

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(3)


def test_what_threads_draw_from_is_not_seeded_beneath_them() -> None:
    pool, local = ThreadPoolExecutor(1), threading.local()
    local.rng = random.Random(3)
    pool.work = functools.partial(random.Random(3).random)  # type: ignore[attr-defined]
    assert reached([Loader(), Loader, pool, local], is_generator) == ([], True)


def test_a_long_list_of_numbers_is_no_work() -> None:
    rng = random.Random(3)
    data = [[float(n) for n in range(900)] for _ in range(900)]
    assert reached([data, rng], is_generator) == ([rng], True)


def test_a_generator_that_a_body_makes_is_named_as_the_script_knows_it() -> None:
    rng = random.Random(3)
    holder = types.SimpleNamespace(rng=rng)

    def augment() -> float:
        return rng.random()

    assert _leads_to(rng, {"augment": augment, "rng": rng}) == ("rng", "rng")
    assert _leads_to(rng, {"augment": augment, "trainer": holder}) == ("trainer.rng", "rng")
    assert _leads_to(rng, {"augment": augment}) == ("what augment leads to", "rng")
