"""What a trainer reports about itself, a few times a second and at every step."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

import mlx.core as mx
import psutil

from elasticd.ipc.plan import FAST, WALKING_FLOATS, ChunkPlan
from elasticd.train import threads
from elasticd.train.protocol.trainer import Figures
from elasticd.train.steps.breakdown import Breakdown
from elasticd.train.steps.named import NamedValues
from elasticd.train.world import TrainerWorld
from elasticd.types import WorkPhase

_INTERVAL_SECONDS = 0.1
_MEMORY_INTERVAL_SECONDS = 1.0


class Reporter:
    """A thread that sends the newest report: at once when told that it is urgent, else at most
    every 0.1 s. So a phase that lasts is always seen, and one that doesn't costs nothing: each
    report is work for two daemons, and nobody decides by phases within a second.
    """

    def __init__(self, lock: threading.Lock, send: Callable[[], None]) -> None:
        """``lock`` guards what is reported; ``send`` takes it itself."""
        self._changed = threading.Condition(lock)
        self._send = send
        self._dirty = self._urgent = False

    def start(self) -> None:
        """Begin to report."""
        threads.start("progress", self._run)

    def touch(self, *, urgent: bool = False) -> None:
        """Something changed; the caller holds the lock."""
        if urgent or not self._dirty:
            self._dirty = True
            self._urgent = self._urgent or urgent
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._dirty)
                self._dirty = self._urgent = False
            self._send()
            with self._changed:
                self._changed.wait_for(lambda: self._urgent, timeout=_INTERVAL_SECONDS)


class Pace:
    """Steps per second, averaged over the last few dozen."""

    def __init__(self) -> None:
        self._last: float | None = None
        self._mean_seconds: float | None = None

    def step(self, now: float) -> None:
        """A step was applied at ``now``."""
        if self._last is not None:
            seconds = now - self._last
            mean = self._mean_seconds
            self._mean_seconds = seconds if mean is None else mean + 0.1 * (seconds - mean)
        self._last = now

    def pause(self) -> None:
        """What comes now is no step's time."""
        self._last = None

    @property
    def steps_per_second(self) -> float | None:
        """None before the second step."""
        return None if not self._mean_seconds else 1 / self._mean_seconds


class Lately:
    """The median of the last few durations: one that was interrupted doesn't count."""

    def __init__(self, most: int = 15) -> None:
        self._seconds: deque[float] = deque(maxlen=most)

    def took(self, seconds: float) -> None:
        self._seconds.append(seconds)

    def forget(self) -> None:
        self._seconds.clear()

    @property
    def seconds(self) -> float:
        """0 while there is none."""
        return median(self._seconds) if self._seconds else 0.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """``resident``: of this process, without what a Mac's GPU has. The others are MLX's: what
    arrays have, what is kept for reuse, and the most that arrays ever had here."""

    resident: int = 0
    active: int = 0
    cached: int = 0
    peak: int = 0


class Memory:
    """What this process uses, asked at most once a second."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._asked = float("-inf")
        self._use = MemoryUse()

    @property
    def use(self) -> MemoryUse:
        """In bytes, at most a second old."""
        now = time.monotonic()
        if now - self._asked > _MEMORY_INTERVAL_SECONDS:
            self._asked = now
            self._use = MemoryUse(
                int(self._process.memory_info().rss),
                int(mx.get_active_memory()),
                int(mx.get_cache_memory()),
                int(mx.get_peak_memory()),
            )
        return self._use


@dataclass
class WorkReport:
    """What a trainer shows of its work."""

    phase: WorkPhase = "idle"
    loss: float | None = None
    loss_step: int = 0
    metrics: dict[str, float | str] = field(default_factory=dict)
    """Of the library's own, for the leader."""
    named: NamedValues = field(default_factory=NamedValues)
    grain_seconds: float = 0.0
    update_seconds: float = 0.0
    reductions: Lately = field(default_factory=Lately)
    """Of vectors so long that their sums may walk along the ring, in this world."""
    pace: Pace = field(default_factory=Pace)
    memory: Memory = field(default_factory=Memory)
    breakdown: Breakdown = field(default_factory=Breakdown)

    def step_done(self, step: int, loss: float) -> None:
        """This step's update is made."""
        self.loss, self.loss_step = loss, step
        self.pace.step(time.monotonic())

    def reduced(self, world: TrainerWorld, plan: ChunkPlan, length: int, seconds: float) -> None:
        """A vector of ``length`` float32 was reduced."""
        sent = plan.bytes_sent(world.reduction, length, walks=world.walks)
        fast = plan.bytes_sent(FAST, length)
        self.metrics |= {"bytes_per_step": sent, "fast_bytes_per_step": fast}
        if length >= WALKING_FLOATS:
            self.reductions.took(seconds)

    def leave_world(self) -> None:
        """The next step may be of another world: nothing that depends on the others holds on."""
        self.pace.pause()
        self.breakdown.pause()
        self.reductions.forget()

    def note(self, values: Mapping[str, float | str]) -> None:
        """Figures of the library's own."""
        self.metrics.update(values)

    def figure(self, name: str) -> float | None:
        """The loss, or what the script has given to ``run.log`` by that name."""
        return self.loss if name == "loss" else self.named.of(name)

    def figures(self) -> Figures:
        """As they are now."""
        memory = self.memory.use
        return Figures(
            phase=self.phase,
            loss=self.loss,
            loss_step=self.loss_step,
            steps_per_second=self.pace.steps_per_second,
            memory_bytes=memory.resident,
            metrics=dict(self.metrics),
            grain_seconds=self.grain_seconds,
            update_seconds=self.update_seconds,
            reduce_seconds=self.reductions.seconds,
            active_bytes=memory.active,
            cached_bytes=memory.cached,
            peak_bytes=memory.peak,
            seconds=self.breakdown.seconds,
            named=self.named.last,
        )
