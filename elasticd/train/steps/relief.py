"""What this process gives up for want of memory, as its world says."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable

import mlx.core as mx
import psutil
from mlx.nn.layers.base import Module

from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.train.steps import recompute

_CACHE_BYTES = 64 << 20
"""What MLX may keep of freed memory once memory was short, and while a trainer waits."""
_CACHES = 2
"""The caches of all trainers of a machine may have one part in so many of its memory. (MLX on Metal
would keep up to 95 % of it, in each process.)"""
_TRAINER = "elasticd.train"


class TrainerRelief:
    """Levels of :mod:`elasticd.recovery.relief`; the halving of grains is the engine's."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self.level = 0

    def apply(self, level: int) -> None:
        """Do what ``level`` asks for and lower ones did not, and no more what it doesn't."""
        _CACHE.enter()
        if level > self.level:
            trim()
        elif level == 0 < self.level:
            _CACHE.give_back()
        if self.level < RECOMPUTE_LEVEL <= level:
            recompute.switch_on(self._model)
        elif level < RECOMPUTE_LEVEL <= self.level:
            recompute.switch_off(self._model)
        self.level = level


class _Cache:
    """What MLX keeps of freed memory: there is one in a process."""

    def __init__(self) -> None:
        self._usual_bytes: int | None = None
        """Its limit before it was lowered; None: it wasn't."""
        self._later_bytes: int | None = None
        """Its limit in a world, until it has come to one."""

    def wait(self, later_bytes: int) -> None:
        """Keep little until :meth:`enter`, and then no more than that."""
        mx.set_cache_limit(_CACHE_BYTES)
        self._later_bytes = later_bytes

    def enter(self) -> None:
        """There is work to do. What the script has set itself meanwhile counts."""
        later, self._later_bytes = self._later_bytes, None
        if later is not None and (before := int(mx.set_cache_limit(later))) != _CACHE_BYTES:
            mx.set_cache_limit(before)

    def trim(self) -> None:
        self.enter()
        before = int(mx.set_cache_limit(_CACHE_BYTES))
        if before != _CACHE_BYTES:
            self._usual_bytes = before
        mx.clear_cache()

    def give_back(self) -> None:
        if self._usual_bytes is not None:
            mx.set_cache_limit(self._usual_bytes)


_CACHE = _Cache()


def begin(
    metal: bool | None = None,
    total_bytes: int | None = None,
    trainers: Callable[[], int] | None = None,
) -> None:
    """Before the script runs: a spare keeps nearly nothing, a trainer in a world its share of this
    machine's memory. Only Metal's cache is as large as the machine; others are left as they are.

    Args:
        metal: whether MLX computes with it.
        total_bytes: of the machine's memory.
        trainers: counts those of the machine.
    """
    if mx.metal.is_available() if metal is None else metal:
        total = psutil.virtual_memory().total if total_bytes is None else total_bytes
        _CACHE.wait(int(total) // _CACHES // max(1, (trainers or _trainers)()))


def _trainers() -> int:
    """How many this machine has, ours and spares among them. Those of other accounts can't be seen
    on a Mac."""
    found = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += _TRAINER in process.cmdline()
    return found


def trim() -> None:
    """Give freed memory back that MLX keeps, and keep little from now on."""
    _CACHE.trim()


def room_bytes() -> int:
    """What this process could still allocate, once it has given its cache back."""
    cache = int(mx.get_cache_memory())
    if mx.metal.is_available():
        most = int(mx.device_info().get("max_recommended_working_set_size", 0))
        return most - int(mx.get_active_memory())
    room = int(psutil.virtual_memory().available)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        room = min(room, limit - int(psutil.Process().memory_info().vms))
    return room + cache


def allocate(size_bytes: int) -> None:
    """Allocate and fill an array of at least ``size_bytes``, on Metal of more than it can have.

    Raises:
        RuntimeError: MLX says that there is no such memory. Its CPU allocator doesn't; it crashes.
    """
    if mx.metal.is_available():
        most = mx.device_info().get("max_buffer_length", 0)
        size_bytes = max(size_bytes, int(most) + (1 << 20))
    mx.eval(mx.zeros((size_bytes,), mx.uint8))
