"""What this process gives up for want of memory, as its world says."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import mlx.core as mx
import psutil
from mlx.nn.layers.base import Module

from elasticd.machinememory import machine_memory
from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.supervision.birth import UNSEEN
from elasticd.train.gpu import has_gpu
from elasticd.train.settling import settled
from elasticd.train.steps import recompute

_CACHE_BYTES = 64 << 20
"""What MLX may keep of freed memory once memory was short, and while a trainer waits."""
_CACHES = 2
"""The caches of all trainers of a machine may have one part in so many of its memory. (MLX on Metal
would keep up to 95 % of it, in each process.)"""
_ROW_BYTES = 1 << 20
_TRAINER = "elasticd.train"
_ORPHANS_PARENT = 1


class TrainerRelief:
    """Levels of :mod:`elasticd.recovery.relief`; the halving of grains is the engine's."""

    def __init__(self, model: Module) -> None:
        self._model = model
        self.level = 0

    def apply(self, level: int) -> None:
        """Do what ``level`` asks for and lower ones did not, and no more what it doesn't."""
        _CACHE.enter()
        _WIRED.enter()
        if level > self.level:
            trim()
            _WIRED.lower()
        elif level == 0 < self.level:
            _CACHE.give_back()
            _WIRED.give_back()
        if self.level < RECOMPUTE_LEVEL <= level:
            recompute.switch_on(self._model)
        elif level < RECOMPUTE_LEVEL <= self.level:
            recompute.switch_off(self._model)
        self.level = level


class Limit:
    """One of MLX's limits on memory, of which there is one in a process."""

    def __init__(self, set_limit: Callable[[int], int], little_bytes: int) -> None:
        """``set_limit`` returns the one of before; ``little_bytes`` will do for who waits, and for
        whom memory is short."""
        self._set, self._little_bytes = set_limit, little_bytes
        self._usual_bytes: int | None = None
        """Its limit before it was lowered; None: it wasn't."""
        self._later_bytes: int | None = None
        """Its limit in a world, until it has come to one."""

    def wait(self, later_bytes: int) -> None:
        """Keep little until :meth:`enter`, and then no more than that."""
        self._set(self._little_bytes)
        self._later_bytes = later_bytes

    def enter(self) -> None:
        """There is work to do. What the script has set itself meanwhile counts."""
        later, self._later_bytes = self._later_bytes, None
        if later is not None and (before := self._set(later)) != self._little_bytes:
            self._set(before)

    def lower(self) -> None:
        """Memory is short."""
        self.enter()
        before = self._set(self._little_bytes)
        if before != self._little_bytes:
            self._usual_bytes = before

    def give_back(self) -> None:
        """It is no more: the limit of before."""
        if self._usual_bytes is not None:
            self._set(self._usual_bytes)


def _set_wired(limit_bytes: int) -> int:
    # MLX says not to change it while something is computed.
    settled()
    return int(mx.set_wired_limit(limit_bytes))


_CACHE = Limit(lambda limit_bytes: int(mx.set_cache_limit(limit_bytes)), _CACHE_BYTES)
"""What is kept of freed memory."""
_WIRED = Limit(_set_wired, 0)
"""What of the memory in use is kept resident, on Metal (macOS 15 and later): what isn't may be
swapped out between two steps. Only the training thread may change it."""


def begin(
    metal: bool | None = None,
    total_bytes: int | None = None,
    trainers: Callable[[], int] | None = None,
    working_set_bytes: int | None = None,
    *,
    aside: bool = False,
) -> None:
    """Before the script runs: a spare keeps nearly nothing, a trainer in a world its share of this
    machine's memory. Only Metal's cache is as large as the machine; others are left as they are.
    What Metal recommends as working set is kept resident, in parts as many as there are trainers.

    Args:
        metal: whether MLX computes with it.
        total_bytes: of the machine's memory.
        trainers: counts those of the machine that are at work.
        working_set_bytes: what Metal recommends.
        aside: this is no trainer, and gives way to them: while one is at work it keeps nothing
            resident, as the trainers have the whole working set, and memory that is resident in
            both is memory that macOS can't give to anybody else.
    """
    if has_gpu() if metal is None else metal:
        resident = _working_set() if working_set_bytes is None else working_set_bytes
        total = machine_memory().total_bytes if total_bytes is None else total_bytes
        others = (trainers or trainers_at_work)()
        parts = max(1, others + aside)
        # Metal's share of a memory of which the system says nothing.
        _CACHE.wait((total or resident) // _CACHES // parts)
        _WIRED.wait(0 if aside and others else resident // parts)


class Seen(Protocol):
    """What is asked of a process of this machine, as psutil has it."""

    @property
    def pid(self) -> int: ...
    def ppid(self) -> int: ...
    def cmdline(self) -> list[str]: ...


def trainers_at_work(processes: Callable[[], Iterable[Seen]] = psutil.process_iter) -> int:
    """How many trainers compute at the same time on this machine: one for each daemon. The others
    of a daemon are spares, and one that is promoted takes the place of the one at work. Those of
    other accounts can't be seen on a Mac."""
    parents = dict[int, int]()
    for process in processes():
        with contextlib.suppress(*UNSEEN):
            if _TRAINER in process.cmdline():
                parents[process.pid] = process.ppid()
    # A trainer's own children may have its command line. Whose daemon was restarted is an orphan,
    # and the spare beside it has the new daemon.
    return len(set(parents.values()) - parents.keys() - {_ORPHANS_PARENT})


def trim() -> None:
    """Give freed memory back that MLX keeps, and keep little from now on."""
    _CACHE.lower()
    mx.clear_cache()


def gpu_info(
    key: str,
    there: Callable[[], bool] = has_gpu,
    ask: Callable[[Any], Mapping[str, Any]] = mx.device_info,
) -> int:
    """What Metal says of the GPU, also to a script that computes on the CPU; 0: there is none."""
    return int(ask(mx.gpu).get(key, 0)) if there() else 0


def _working_set() -> int:
    return gpu_info("max_recommended_working_set_size")


def room_bytes() -> int:
    """What this process could still allocate, once it has given its cache back."""
    cache = int(mx.get_cache_memory())
    if has_gpu():
        return _working_set() - int(mx.get_active_memory())
    room = machine_memory().available_bytes or 0
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        room = min(room, limit - int(psutil.Process().memory_info().vms))
    return room + cache


def allocate(size_bytes: int) -> None:
    """Allocate and fill an array of at least ``size_bytes``, on Metal of more than it can have.

    Raises:
        RuntimeError: MLX says that there is no such memory. Its CPU allocator doesn't; it crashes.
    """
    if has_gpu():
        size_bytes = max(size_bytes, gpu_info("max_buffer_length") + (1 << 20))
    mx.eval(unmade(size_bytes))


def unmade(size_bytes: int) -> mx.array:
    """An array of at least so many bytes, which nobody has evaluated. It has rows: MLX takes no
    dimension of 2^31 and more, and Metal's limits are far above that."""
    return mx.zeros((-(-size_bytes // _ROW_BYTES), _ROW_BYTES), mx.uint8)
