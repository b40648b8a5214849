"""Writes this member's shards of a checkpoint, in the background.

The state is held by reference, so training never waits for a copy; what it costs is the memory of
one state while it is written. Where that is short the state is written in slices: the references
are the state that training holds anyway, and the next update, which would make a second one, waits
until they are gone, for a bounded time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from elasticd.checkpoints.codec import write_shard
from elasticd.checkpoints.layout import partial_name, shard_name, split
from elasticd.core.words.trainers import TrainerSkipped, TrainerWrote, WrittenShard
from elasticd.errors import DiskError, StateError
from elasticd.supervision.priority import BEHIND_STEPS, thread_gives_way
from elasticd.train import threads
from elasticd.train.states.manners import Manners
from elasticd.train.states.meeting import Meeting
from elasticd.train.states.parts import told
from elasticd.train.states.state import Snapshot
from elasticd.train.world import TrainerWorld
from elasticd.types import SnapshotMode, SnapshotWish

MAX_STALL_SECONDS = 10.0
"""An update waits no longer for a state that is written in slices; the checkpoint is given up."""
HUNG_SECONDS = 1.0
"""A writer that has not noticed for so long that it was given up hangs in its disk."""
RETRY_SECONDS = 5.0
"""Between two attempts to write a checkpoint that must be and that the disk refuses."""
_CHECK_SECONDS = 0.05
_SHARE_OF_INTERVAL = 0.5
"""A writer that isn't done after this share of the time to the next checkpoint stops resting."""
TENSOR_DIGITS = 16
"""Of a tensor's digest, in the report: enough to find the one that differs."""


class Abandoned(Exception):
    """Training needs the memory that the state takes."""


def mode_of(wanted: SnapshotWish, state_bytes: int, available_bytes: int) -> SnapshotMode:
    """For ``[checkpoint] snapshot``."""
    if wanted != "auto":
        return wanted
    return "slices" if available_bytes < state_bytes else "reference"


@dataclass
class Task:
    """A state and the world for which it is to be written."""

    world: TrainerWorld
    snapshot: Snapshot
    stall_seconds: float
    mode: SnapshotMode = "reference"
    must: bool = False
    metric: float | None = None
    abandoned: threading.Event = field(default_factory=threading.Event)
    hangs: bool = False
    worlds: int = 0
    """How many the trainer had left when it was submitted."""
    told: str = ""
    """Why it was not written, as the daemon was told last."""


class CheckpointWriter:
    """One thread, one checkpoint at a time, and at most one that waits."""

    def __init__(
        self,
        send: Callable[[TrainerWrote | TrainerSkipped], object],
        note: Callable[[Mapping[str, float | str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``send`` sends a message to the daemon; ``note`` shows a figure to the user."""
        self._send, self._note, self._clock = send, note, clock
        self._changed = threading.Condition()
        self._busy: Task | None = None
        self._next: Task | None = None
        self._worlds = 0
        self._again: Task | None = None
        """One that must be written and that the disk has refused."""
        self._thread: threading.Thread | None = None
        self._manners = Manners()
        self._meeting = Meeting()
        self._wrote_all_along = False
        self._due = float("inf")

    def submit(self, task: Task) -> bool:
        """Write ``task``; False if another is being written, or a later one is to be, and ``task``
        isn't a must."""
        step = task.snapshot.point.step
        with self._changed:
            if self._busy is not None and not task.must:
                late = self._busy.snapshot.point.step
                self._meeting.miss()
                self._skip(task, f"step {late} is still being written")
                return False
            interval = task.world.writes.every_at(step)
            if self._meeting.leaves_out(step, interval) and not task.must:
                every = self._meeting.every(interval)
                self._skip(task, f"writing takes long: only every {every} steps one is begun")
                return False
            self._meeting.begin()
            if self._next is not None:
                self._skip(self._next, "a newer one has to be written")
            task.worlds = self._worlds
            self._next, self._again = task, None
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threads.start("checkpoint", self._run)
            return True

    def make_room(self, check: Callable[[], None]) -> None:
        """Return when no state is held that training can't afford beside the next one.

        For the training thread, before an update. ``check`` raises if there is no more update to
        wait for.
        """
        with self._changed:
            if self._has_room():
                return
        began = self._clock()
        while True:
            with self._changed:
                if self._changed.wait_for(self._has_room, _CHECK_SECONDS):
                    return
                waited = self._clock() - began
                for task in (self._busy, self._next):
                    if task is not None and task.mode == "slices":
                        task.stall_seconds += min(waited, _CHECK_SECONDS)
                        if waited > MAX_STALL_SECONDS and not task.must:
                            task.abandoned.set()
                            task.hangs = waited > MAX_STALL_SECONDS + HUNG_SECONDS
            check()

    def _has_room(self) -> bool:
        """The caller holds the lock."""
        if self._again is not None and self._again.mode == "slices":
            self._again = None  # no update waits for a disk that may never take it
        tasks = (self._busy, self._next)
        return not any(t is not None and t.mode == "slices" and not t.hangs for t in tasks)

    def step_done(self) -> None:
        """The training thread has finished a step."""
        writing = self._busy is not None
        # A step beside which writing began or ended tells nothing.
        if writing != self._wrote_all_along:
            self._manners.interrupt()
        self._manners.step(self._clock(), writing=writing)
        self._wrote_all_along = writing

    def interrupt(self) -> None:
        """The training thread has left its world."""
        self._manners.interrupt()
        self._worlds += 1

    def _run(self) -> None:
        thread_gives_way(BEHIND_STEPS)
        while True:
            with self._changed:
                pause = None if self._again is None else RETRY_SECONDS
                self._changed.wait_for(lambda: self._next is not None, pause)
                task, self._next, self._again = self._next or self._again, None, None
                self._busy = task
            refused = task is not None and self._write(task)
            with self._changed:
                self._busy = None
                if refused and task is not None and self._to_be_tried_again(task):
                    self._again = task
                del task  # whoever waits for its memory must find it free
                self._changed.notify_all()

    def _to_be_tried_again(self, task: Task) -> bool:
        return task.must and self._next is None and task.worlds == self._worlds

    def _write(self, task: Task) -> bool:
        """Whether the disk refuses."""
        self._due = self._clock() + _SHARE_OF_INTERVAL * task.world.writes.every * (
            self._manners.idle_seconds or 0.0
        )
        self._manners.cost_seconds = 0.0
        try:
            report = _written(task, self._pacer(task))
            self._send(
                replace(
                    report,
                    stall_seconds=task.stall_seconds,
                    cost_seconds=self._manners.cost_seconds,
                    step_seconds=self._manners.idle_seconds or 0.0,
                )
            )
        except StateError as error:
            self._note({"checkpoint_error": str(error)})
            refused = isinstance(error, DiskError)
            if str(error) != task.told:
                task.told = str(error)
                self._skip(task, task.told, refused=refused)
            return refused
        except Abandoned:
            self._skip(task, f"the next update would have waited over {MAX_STALL_SECONDS:g} s")
        else:
            self._note({"checkpoint_duty": round(self._manners.duty, 3)})
        return False

    def _pacer(self, task: Task) -> Callable[[int], None]:
        """Rests after each slice as long as manners want."""
        began = self._clock()

        def pace(written: int) -> None:
            nonlocal began
            if task.abandoned.is_set():
                raise Abandoned
            now = self._clock()
            hurry = task.must or task.mode == "slices" or now > self._due
            seconds = self._manners.pause_seconds(now - began, hurry=hurry)
            if seconds > 0:
                task.abandoned.wait(seconds)
            began = self._clock()

        return pace

    def _skip(self, task: Task, reason: str, *, refused: bool = False) -> None:
        """Say that this member's shards are not written; ``refused``: because of its disk."""
        self._note({"checkpoint_skipped": task.snapshot.point.step})
        self._send(TrainerSkipped(**_named(task), reason=reason, refused=refused))


def _written(task: Task, pace: Callable[[int], None]) -> TrainerWrote:
    """Write all shards of ``task`` that are this member's; the report on them."""
    world, snapshot, point = task.world, task.snapshot, task.snapshot.point
    started = time.monotonic()
    count = world.writes.count
    names = split({name: a.nbytes for name, a in snapshot.tensors.items()}, count)
    root = world.checkpoint_folder.parent  # of all jobs'
    folder = world.checkpoint_folder / partial_name(point.step, point.stamp)
    metadata = snapshot.metadata()
    shards: list[WrittenShard] = []
    known: dict[str, str] = {}
    for index in world.writes.shards_of(world.rank, world.size):
        tensors = {name: snapshot.tensors[name] for name in names[index]}
        path = folder / shard_name(index, count)
        file = write_shard(path, tensors, metadata, root=root, pace=pace)
        known |= file.tensors
        short = {name: digest[:TENSOR_DIGITS] for name, digest in file.tensors.items()}
        shards.append(WrittenShard(index, file.bytes, file.digest, short))
    found = told(snapshot, known, pace)
    # Whoever has the first shard knows the digest; all do where what the disks have must be judged.
    digests = task.must or any(shard.index == 0 for shard in shards)
    return TrainerWrote(
        **_named(task),
        shards=tuple(shards),
        digest=snapshot.digest(pace) if digests else "",
        check=found.check,
        parts=found.parts,
        mode=task.mode,
        metric=task.metric,
        stall_seconds=task.stall_seconds,
        write_seconds=time.monotonic() - started,
    )


def _named(task: Task) -> dict[str, Any]:
    """Which checkpoint of which world it is."""
    point = task.snapshot.point
    return {
        "generation": task.world.generation,
        "lineage": point.lineage,
        "step": point.step,
        "stamp": point.stamp,
        "count": task.world.writes.count,
    }
