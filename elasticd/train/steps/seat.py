"""A process's place in its job, as the training thread sees it.

Two things implement it: train/link/daemonseat.py, where there is a daemon, and train/alone.py, a
world of one without. Every method may raise :class:`~elasticd.errors.GenerationLost` where it says
so; the caller then takes the next world with :meth:`Seat.take`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from elasticd.errors import UsageError
from elasticd.ipc.plan import ChunkPlan
from elasticd.settings.job import JobSpec
from elasticd.train.protocol.calls import Answer
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.world import TrainerWorld
from elasticd.types import NanCure, Point, ProofPart, Range, WorkPhase


@dataclass(frozen=True)
class Files:
    """Files that together are a state, the taker's to close; ``digests`` of all of them, which
    nobody has checked yet, or none."""

    fds: tuple[int, ...]
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Delivery:
    """Files of a state, or of updates, for a process that is in no world; the taker closes
    them."""

    serial: int
    fds: tuple[int, ...]


Parts = Mapping[Range, Sequence[NDArray[np.float32]]]


@dataclass(frozen=True)
class ProbeResult:
    """What the first grain and the first update of a process came to; digests in hex. ``state`` is
    the stamp of what they were computed from."""

    repeats: bool
    gradient: str
    update: str
    layout: str
    state: str
    cpu_update: str = ""
    """Of the same update, made on the CPU; empty: it can't be made there."""


class Seat(Protocol):
    """What the training thread asks of its surroundings."""

    spec: JobSpec
    output_dir: Path

    def at_run(self, fingerprint: Mapping[str, str]) -> None:
        """The script has come to its ``Run(…)``."""

    def take(self) -> TrainerWorld | Delivery | None:
        """Wait for the next world and enter it; None if the job was released instead. Before that
        may come what prepares for it."""

    def check(self) -> None:
        """Raises GenerationLost if the world has ended."""

    def files(self, world: TrainerWorld) -> Files:
        """Wait for the files of the state to load; may raise GenerationLost."""

    def spoilt(self, reason: str) -> None:
        """Some byte of the files is wrong: better ones are to come; may raise GenerationLost."""

    def adopt(self, point: Point) -> None:
        """The state in place is from now on that of ``point``; may raise GenerationLost."""

    def hold(
        self, snapshot: Snapshot, update: Update | None = None, *, loaded: bool = False
    ) -> None:
        """The state is in place: ``snapshot`` answers for it until the next update. ``update``: the
        newest, now that it says what the loop's body changed."""

    def begin_update(self) -> None:
        """An update (or a load) begins: the answer to a freeze waits for its end. Or raises
        GenerationLost."""

    def begin_preparing(self, delivery: Delivery) -> None:
        """As :meth:`begin_update`, outside of a world; GenerationLost if a freeze was answered
        since."""

    def prepared(self, delivery: Delivery, reason: str) -> None:
        """The state that was delivered is in place, or ``reason`` says why not."""

    def idle_since(self, delivery: Delivery) -> bool:
        """Whether nothing else was asked of us since the delivery."""

    def unloaded(self, reason: str, *, spent: bool = False) -> None:
        """The state that the world starts from could not be had, or by a new process only
        (``spent``): leave the world."""

    def keeps_updates(self) -> bool:
        """Whether the update in hand is to be kept for others."""

    def owes_update(self) -> bool:
        """Whether somebody may still need the newest update."""

    def replays(self, takes: bool) -> None:
        """Whether others' updates can be applied here."""

    def end_update(self, point: Point, loss: float | None, update: Update | None) -> None:
        """A step was applied, by ``update`` if that can be given to others; no loss: it was
        skipped."""

    def end_load(self, point: Point, *, complete: bool) -> None:
        """A state from elsewhere is in place; not ``complete``: it is from before what the script
        does above its loop."""

    def give_up_update(self) -> None:
        """It ends with the state as it was, if it had begun at all."""

    def reduce(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        """Sum over the world; may raise GenerationLost."""

    def tell(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        """As :meth:`reduce`, of what members tell one another beside a step's gradient."""

    def barrier(self, point: Point) -> None:
        """Wait until all members hold ``point``, which commits it; may raise GenerationLost."""

    def halt(self, point: Point) -> None:
        """Wait here if the job is paused at this committed step, until it goes on or the world
        ends."""

    def stop(self, point: Point, reason: str) -> None:
        """The script wants the committed ``point`` to be the last. Wait until the world has ended:
        the next one says which is, or that is asked anew; may raise GenerationLost."""

    def call(self, body: int, index: int, step: int) -> Answer:
        """What that call of ``run.on_main`` in the body of a step has returned, or what is to be
        done instead; the state in place is that of ``step``. Waits for it."""

    def returned(self, body: int, index: int, data: bytes) -> None:
        """The function of that call has run here. Whether that counts, :meth:`call` says."""

    def body_begins(self, body: int) -> None:
        """The body of a step begins; 0: what stands above the loop."""

    def body_ends(self, body: int, calls: int) -> None:
        """A body has ended that made so many calls; refuses the job if others made more."""

    def disown(self) -> None:
        """The state in place is nobody's, and is not to be given to anybody."""

    def agree(self, result: ProbeResult) -> None:
        """Wait for the verdict over all members' probes; may raise GenerationLost."""

    def checkpoint(self, world: TrainerWorld, snapshot: Snapshot, stall_seconds: float) -> None:
        """Have this member's shards written in the background."""

    def refuse(self, reason: str, *, unfit: bool = False) -> None:
        """The state or world can't be used; the job fails with ``reason``, or, with ``unfit``, it
        can't run on this node."""

    def strain(self) -> None:
        """Before a grain: allocate what ``elasticctl chaos oom`` asked for, which fails as any
        allocation would."""

    def out_of_memory(self, evidence: str) -> bool:
        """An allocation failed: leave the world. True if another will come with relief, and False
        if nobody can help."""

    def not_finite(self, step: int, loss: str, policy: NanCure) -> None:
        """The reduced loss of ``step`` isn't finite, or its gradient, as ``loss`` says in words;
        ``policy`` is ``skip``, or ``restore``, which leaves the world and raises GenerationLost."""

    def verify(self, world: TrainerWorld, snapshot: Snapshot) -> None:
        """Have the digest of a committed state compared with the other members', in the
        background."""

    def rechecked(
        self, world: TrainerWorld, step: int, grain: int, vector: Sequence[mx.array]
    ) -> None:
        """Have the digest of a grain's gradient compared with what others computed of it, in the
        background."""

    def prove(
        self, world: TrainerWorld, part: ProofPart, digests: Callable[[], dict[str, str]]
    ) -> None:
        """Show what this member has come to in the first step of ``world``, in the background."""

    def await_proof(self, part: ProofPart) -> None:
        """Wait until that is found to be what a member has that has stayed; may raise
        GenerationLost."""

    def sampled(self, world: TrainerWorld, step: int, at: int, digest: str, name: str) -> None:
        """Have a sample of ``step`` compared with what others have at its position.
        ``name``: what the data calls it; empty if it has none."""

    def finish(self, point: Point) -> bool:
        """Wait at the job's end: True when released, False when the world has ended."""

    def timed(self, grain_seconds: float, update_seconds: float) -> None:
        """What a grain and an update took lately; 0: none was made."""

    def phase(self, name: WorkPhase) -> None:
        """What the training thread does now."""

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """What the script has given to ``run.log`` in the body of ``step``, which is over."""


class Host:
    """The seat that this process was given before its script began, if any."""

    def __init__(self) -> None:
        self._seat: Seat | None = None
        self._taken = False
        self._conclude: Callable[[], None] | None = None
        self._advise: Callable[[], str] | None = None
        self._uncounted: Callable[[], bool] | None = None
        self.looping: threading.Thread | None = None
        """That in which the script loops over its run."""

    def prepare(self, seat: Seat) -> None:
        """Called by the trainer's host, before it runs the script."""
        self._seat, self._taken = seat, False

    def at_end(self, conclude: Callable[[], None]) -> None:
        """``conclude`` is to be called when the script has ended as it should."""
        self._conclude = conclude

    def conclude(self) -> None:
        """The script has ended as it should."""
        if self._conclude is not None:
            self._conclude()

    def excuses(self, uncounted: Callable[[], bool]) -> None:
        """``uncounted`` says whether the body under way counts for nothing."""
        self._uncounted = uncounted

    def uncounted(self) -> bool:
        """Whether what the script has raised was raised in a body that counts for nothing."""
        return self._uncounted is not None and self._uncounted()

    def advises(self, advise: Callable[[], str]) -> None:
        """``advise`` says what may be the cause, if it knows one, when the script has raised."""
        self._advise = advise

    def advice(self) -> str:
        """What may be the cause of what the script has raised; empty if nobody knows."""
        return "" if self._advise is None else self._advise()

    def sit(self) -> Seat | None:
        """The prepared seat; None if this process has no daemon.

        Raises:
            UsageError: it was taken already.
        """
        if self._seat is None:
            return None
        self.sit_alone()
        return self._seat

    def sit_alone(self) -> None:
        """Take what seat there is.

        Raises:
            UsageError: it was taken already.
        """
        if self._taken:
            raise UsageError(
                "a script has one elasticd.Run; this is its second. Phases of one training belong"
                " in one loop, by step.number; a second training is a job of its own, which may"
                " begin with the first one's weights: [train] init_from"
            )
        self._taken = True


HOST = Host()
"""All that a script does is import elasticd, so its process must find its seat by itself."""
