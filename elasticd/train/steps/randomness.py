"""Random numbers as a function of (seed, where we are), for every generator that a script may use.

Nothing about them needs to be stored or sent: whoever computes a grain, an update or the code after
a step draws the same numbers.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from elasticd.train.steps.generators import OwnGenerators, state_of
from elasticd.train.steps.likeness import sample_digest


class _OfThread(threading.local):
    """The training thread's, so that what other threads fetch moves none of them."""

    def __init__(self) -> None:
        self.generators = OwnGenerators()


_OWN = _OfThread()


def is_key(value: Any) -> bool:
    """Whether it may be a random key of MLX."""
    return type(value) is mx.array and value.dtype == mx.uint32 and value.shape == (2,)


def own() -> OwnGenerators:
    """The generators of the script's own."""
    return _OWN.generators


def derive(seed: int, *where: str | int) -> int:
    """A key of 64 bits for ``where``."""
    text = "\0".join(str(part) for part in ("random", seed, *where))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def seed_script(seed: int) -> None:
    """Seed mx, random and numpy before the script begins."""
    _seed_all(derive(seed, "script"))


def seed_sample(seed: int, position: int) -> None:
    """For fetching the sample at a position, counted over all epochs."""
    _seed_all(derive(seed, "sample", position))


def seed_batch(seed: int, step: int, grain: int) -> None:
    """For making a batch of the samples of one grain."""
    _seed_all(derive(seed, "batch", step, grain))


def seed_grain(seed: int, step: int, grain: int) -> None:
    """For computing one grain."""
    _seed_all(derive(seed, "grain", step, grain))


def seed_top(seed: int, step: int) -> None:
    """For the script's own code in the body of ``step``, before its batches."""
    _seed_all(derive(seed, "top", step))


def seed_reduced(seed: int, step: int) -> None:
    """For the script's own code between the reduction and the update of ``step``."""
    _seed_all(derive(seed, "reduced", step))


def seed_update(seed: int, step: int) -> None:
    """For the update that makes ``step``."""
    _seed_all(derive(seed, "update", step))


def seed_body(seed: int, step: int) -> None:
    """For the script's own code after ``step``."""
    _seed_all(derive(seed, "body", step))


def seed_call(seed: int, step: int, index: int) -> None:
    """For what ``run.on_main`` calls, whoever runs it."""
    _seed_all(derive(seed, "call", step, index))


def bookmark() -> Callable[[], None]:
    """Has all generators stand where they do now, each time it is called.

    Raises:
        ValueError: ``mx.compile`` traces, and nobody knows where MLX's stands.
    """
    key, put_numbers = mlx_key(), _numbers()

    def put() -> None:
        set_mlx_key(key)
        put_numbers()

    return put


def _numbers() -> Callable[[], None]:
    """As :func:`bookmark`, but not of MLX's."""
    ours, numpys, scripts = random.getstate(), np.random.get_state(), own().states()

    def put() -> None:
        random.setstate(ours)
        np.random.set_state(numpys)
        for generator, state in scripts:
            generator.put(state)

    return put


@contextmanager
def undisturbed() -> Iterator[None]:
    """What is drawn meanwhile isn't missing behind it."""
    back = bookmark()
    try:
        yield
    finally:
        back()


@contextmanager
def tracing(seed: int) -> Iterator[None]:
    """A trace fixes what it draws, but from MLX's generator: it is the same in each trace, whoever
    makes it, at whichever step."""
    back = _numbers()
    try:
        _seed_numbers(derive(seed, "trace"))
        yield
    finally:
        back()


def standing(inside: Iterable[Any] = ()) -> str:
    """Where all generators stand that a script may draw from, and those ``inside`` of what it
    calls, as a digest."""
    others = [state for _, state in own().states()] + [state_of(each) for each in inside]
    numpys = np.random.get_state(legacy=True)
    return sample_digest((random.getstate(), numpys, mlx_key(), others))


def mlx_key() -> list[int]:
    """Where MLX's global generator stands."""
    state: Any = mx.random.state
    return list(state[0].tolist())


def set_mlx_key(key: list[int]) -> None:
    """Have it stand there."""
    mx.random.seed((key[0] << 32) | key[1])


def _seed_all(key: int) -> None:
    mx.random.seed(key)
    _seed_numbers(key)


def _seed_numbers(key: int) -> None:
    """All but MLX's."""
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)
    own().seed(key)
