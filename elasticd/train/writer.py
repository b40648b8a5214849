"""Writes this member's shards of a checkpoint, in the background."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.checkpoints.codec import write_shard
from elasticd.checkpoints.layout import partial_name, shard_name, split, writes
from elasticd.errors import StateError
from elasticd.train.state import Snapshot
from elasticd.train.world import World, tag_list


@dataclass(frozen=True)
class Task:
    """A state and the world for which it is to be written."""

    world: World
    snapshot: Snapshot
    stall_seconds: float


class CheckpointWriter:
    """One thread, one checkpoint at a time, and at most one that waits."""

    def __init__(
        self,
        send: Callable[[Mapping[str, Any]], object],
        note: Callable[[Mapping[str, float | str]], None],
    ) -> None:
        """``send`` sends a message to the daemon; ``note`` shows a figure to the user."""
        self._send, self._note = send, note
        self._changed = threading.Condition()
        self._busy: Task | None = None
        self._next: Task | None = None
        self._thread: threading.Thread | None = None

    def submit(self, task: Task, *, must: bool) -> bool:
        """Write ``task``; False if another is being written and ``task`` isn't a ``must``."""
        with self._changed:
            if self._busy is not None and not must:
                return False
            self._next = task
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="elasticd-checkpoint", daemon=True
                )
                self._thread.start()
            return True

    def _run(self) -> None:
        if sys.platform == "linux":  # elsewhere a nice value is the whole process's
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next is not None)
                task, self._next = self._next, None
                self._busy = task
            assert task is not None
            try:
                self._send(_write(task))
            except StateError as error:
                self._note({"checkpoint_error": str(error)})
            with self._changed:
                self._busy = None
            del task  # its state must not outlive it here


def _write(task: Task) -> dict[str, Any]:
    world, snapshot, point = task.world, task.snapshot, task.snapshot.point
    started = time.monotonic()
    count = world.writes.count
    names = split({name: a.nbytes for name, a in snapshot.tensors.items()}, count)
    folder = world.checkpoint_folder / partial_name(point.step, point.stamp)
    metadata = snapshot.metadata()
    shards = []
    for index in writes(world.rank, world.size, count, world.writes.replicas):
        tensors = {name: snapshot.tensors[name] for name in names[index]}
        file = write_shard(folder / shard_name(index, count), tensors, metadata)
        shards.append({"index": index, "bytes": file.bytes, "digest": file.digest})
    return {
        "t": "shards",
        "generation": tag_list(world.generation),
        "lineage": point.lineage,
        "step": point.step,
        "stamp": point.stamp,
        "count": count,
        "shards": shards,
        "digest": snapshot.digest(),
        "stall_seconds": task.stall_seconds,
        "write_seconds": time.monotonic() - started,
    }
