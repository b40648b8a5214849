"""A trainer's place in a job run by daemons: what a control thread and the training thread share.

The control thread answers the daemon at once, whatever the training thread does. Both sides meet
under one lock, and these rules hold:

- A world is entered by :meth:`Session.take` and left by ``freeze`` or a lost reducer. Once it is
  left nothing of it can be used: every method that needs it raises ``GenerationLost``, and a
  training thread that waits for the reducer is woken through a pipe.
- :meth:`Session.begin_update` decides between an update and a freeze. Whoever has the lock first
  wins: a reduced gradient that comes after the freeze is dropped, a freeze that comes after the
  update has begun is answered when the update is done. So the point that was answered never
  changes until the next world.
- A state may be read from the moment that it is held (:meth:`Session.hold`) until the next update
  begins. A request that comes between waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import psutil
from numpy.typing import NDArray

from elasticd.checkpoints.codec import write_memory
from elasticd.errors import GenerationLost, ProtocolError, StateError
from elasticd.ipc.child import DaemonLink, Resume
from elasticd.ipc.chunks import ReducerLink
from elasticd.ipc.plan import ChunkPlan
from elasticd.settings.job import JobSpec
from elasticd.train import threads
from elasticd.train.link.arrivals import Arrivals, close
from elasticd.train.link.voice import Voice
from elasticd.train.protocol.lending import Given, Lending, Request
from elasticd.train.states.exports import contents
from elasticd.train.states.state import Snapshot
from elasticd.train.states.updates import Update
from elasticd.train.states.writer import CheckpointWriter, Task, mode_of
from elasticd.train.steps.layout import vector_digest
from elasticd.train.steps.progress import Report, Reporter
from elasticd.train.steps.relief import allocate, trim
from elasticd.train.steps.seat import Delivery, Files, Parts, ProbeResult
from elasticd.train.world import World, tag_list, tag_of
from elasticd.types import Point, Stamp, Tag

_LEFT = "this world has ended"


class Session:
    """Implements :class:`elasticd.train.steps.seat.Seat` over a connection to a daemon."""

    def __init__(self, link: DaemonLink, spec: JobSpec, output_dir: Path) -> None:
        self.spec, self.output_dir = spec, output_dir
        self._link, self._voice = link, Voice(link)
        link.introduce = self._introduce
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._wake_fd, self._wake_write_fd = os.pipe()
        os.set_blocking(self._wake_fd, False)
        os.set_blocking(self._wake_write_fd, False)
        self._world: World | None = None
        self._reducer: ReducerLink | None = None  # the training thread's
        self._arrivals = Arrivals()
        self._verdict: tuple[Tag, bool, str] | None = None
        self._probed: Tag | None = None
        self._updating = False
        self._freezes: list[int] = []
        self._frozen = 0
        self._halt = -1
        """The step to go no further than; -1: none."""
        self._exports: list[Request] = []
        self._lending: Lending[Snapshot, Update] = Lending()
        self._takes_updates = self._short = False
        self._point: Point | None = None
        self._committed: int | None = None
        self._snapshot: Snapshot | None = None
        self._run = self._released = False
        self._strain_bytes = 0
        self._verifier: threading.Thread | None = None
        self._report = Report()
        self._reporter = Reporter(self._lock, self._send_progress)
        self._writer = CheckpointWriter(self._voice.send, self.log)

    def start(self) -> None:
        """Begin to answer the daemon."""
        threads.start("control", self._listen)

    # The control thread.

    def _listen(self) -> None:
        for message, fds in self._link.messages():
            self._handle(message, fds)

    def _introduce(self, resume: Resume) -> None:
        """Our daemon was restarted. What the old one had asked for is void."""
        with self._lock:
            self._freezes.clear()
            self._exports.clear()
            self._voice.introduce(resume, self._progress())

    def _handle(self, message: dict[str, Any], fds: list[int]) -> None:
        match message.get("t"):
            case "freeze":
                self._freeze(int(message["serial"]))
            case "world":
                self._offer(World.of_message(message), fds)
            case "load":
                digests = tuple(str(digest) for digest in message.get("digests", ()))
                if len(digests) not in (0, len(fds)):
                    raise ProtocolError(f"{len(digests)} digests came with {len(fds)} files")
                self._bring(tag_of(message["generation"]), Files(tuple(fds), digests))
            case "prepare":
                self._deliver(Delivery(int(message["serial"]), tuple(fds)))
            case "lend":
                with self._lock:
                    self._lend(tag_of(message["generation"]), message["step"], message["log"])
            case "export":
                request = Request(
                    int(message["serial"]), int(message["step"]), Stamp(message["stamp"]),
                    message.get("since"), int(message.get("part", 0)),
                    int(message.get("parts", 1)),
                )  # fmt: skip
                with self._lock:
                    self._exports.append(request)
                    self._serve_exports()
            case "exact":
                verdict = tag_of(message["generation"]), message["exact"], message["reason"]
                with self._changed:
                    self._verdict = verdict
                    self._voice.judged()
                    self._changed.notify_all()
            case "interval":
                with self._lock:
                    world = self._world
                    if world is not None and world.generation == tag_of(message["generation"]):
                        change = int(message["step"]), int(message["every"])
                        world.writes.changes.append(change)
            case "halt":
                with self._changed:
                    self._order_halt(tag_of(message["generation"]), int(message["step"]))
            case "release":
                with self._changed:
                    self._released = True
                    self._voice.released()
                    self._changed.notify_all()
            case "trim":
                trim()
            case "strain":
                self._strain_bytes = int(message["bytes"])
            case "run":
                with self._changed:
                    self._run = True
                    self._changed.notify_all()
            case other:
                raise ProtocolError(f"the daemon sent an unknown message: {other!r}")

    def _order_halt(self, generation: Tag, step: int) -> None:
        """The caller holds the lock. One that comes too late is not obeyed: our progress shows."""
        world, at = self._world, -1 if self._point is None else self._point.step + self._updating
        if world is None or world.generation != generation:
            return
        self._halt = step if at < step else -1
        if self._halt >= 0:
            # It is stored, and if we go on after all, the others at their own times.
            every = world.writes.every_at(step + 1)
            world.writes.changes.extend([(step, 1), (step + 1, every)])
        self._changed.notify_all()

    def _freeze(self, serial: int) -> None:
        with self._changed:
            self._leave()
            self._frozen = serial
            self._voice.frozen()
            self._voice.asked(serial)
            self._arrivals.freeze()
            if self._updating:
                self._freezes.append(serial)
            else:
                self._answer_freeze(serial)
            self._changed.notify_all()

    def _answer_freeze(self, serial: int) -> None:
        point = self._point
        self._voice.send(
            {
                "t": "holding",
                "serial": serial,
                "point": point and [point.lineage, point.step, point.stamp],
                "committed": self._committed,
                "gives": self._lending.starts,
                "replays": self._takes_updates,
            }
        )

    def _deliver(self, delivery: Delivery) -> None:
        with self._changed:
            self._voice.asked(delivery.serial)
            if delivery.serial < self._frozen:
                close(delivery.fds)  # what we hold was told since, and must not change
                return
            self._arrivals.deliver(delivery)
            self._changed.notify_all()

    def _lend(self, generation: Tag, step: int | None, log: bool) -> None:
        """The caller holds the lock."""
        world, point = self._world, self._point
        if world is None or world.generation != generation:
            return
        self._lending.order(generation, step, log)
        if step is None:
            return
        at = None if point is None else point.step + self._updating
        if world.relief:
            self._say_lent(step, "", "memory is short", never=True)
        elif reason := self._lending.refuses(at):
            self._say_lent(step, "", reason, never=not self._lending.gives)

    def _say_lent(self, step: int, stamp: str, reason: str = "", *, never: bool = False) -> None:
        if reason:
            self._lending.drop()
        if self._world is not None:
            generation = tag_list(self._world.generation)
            self._voice.send(
                {
                    "t": "lent",
                    "generation": generation,
                    "step": step,
                    "stamp": stamp,
                    "reason": reason,
                    "never": never,
                }
            )

    def _leave(self) -> None:
        """The caller holds the lock."""
        if self._world is not None:
            self._world = None
            self._report.pace.pause()
            self._writer.interrupt()
            os.write(self._wake_write_fd, b"x")

    def _offer(self, world: World, fds: list[int]) -> None:
        if len(fds) != (0 if world.size == 1 else 2):
            raise ProtocolError(f"{len(fds)} descriptors came with a world of {world.size}")
        with self._changed:
            self._leave()
            self._arrivals.offer(world, fds)
            self._voice.given(world.generation, world.state != "load")
            self._changed.notify_all()

    def _bring(self, generation: Tag, files: Files) -> None:
        with self._changed:
            self._arrivals.bring(generation, files)
            self._changed.notify_all()

    def _serve_exports(self) -> None:
        """The caller holds the lock."""
        requests, self._exports = self._exports, []
        for request in requests:
            snapshot = self._snapshot
            given = self._lending.answer(request, snapshot)
            if given is not None:
                threads.start("export", partial(self._export, request.serial, given))
            elif snapshot is None and self._point is not None:
                self._exports.append(request)  # not yet readable; hold() comes back to it
            else:
                reason = f"this trainer holds {snapshot and snapshot.point}"
                self._voice.send({"t": "not_exported", "serial": request.serial, "reason": reason})

    def _export(self, serial: int, given: Given[Snapshot, Update]) -> None:
        try:
            fd = write_memory(*contents(given))
        except StateError as error:
            self._voice.send({"t": "not_exported", "serial": serial, "reason": str(error)})
            return
        try:
            message = {
                "t": "exported",
                "serial": serial,
                "step": given.step,
                "stamp": given.stamp,
                "bytes": os.fstat(fd).st_size,
            }
            self._voice.send(message, [fd])
        finally:
            os.close(fd)

    # The training thread.

    def await_run(self) -> None:
        """Say that the interpreter is up, and wait for ``run``."""
        self._voice.send({"t": "waiting"})
        with self._changed:
            self._changed.wait_for(lambda: self._run)

    def at_run(self, fingerprint: Mapping[str, str]) -> None:
        self._voice.send({"t": "at_run", "fingerprint": dict(fingerprint)})
        self._reporter.start()

    def take(self) -> World | Delivery | None:
        self._drop_reducer()
        self.phase("idle")
        with self._changed:
            self._changed.wait_for(lambda: self._arrivals.waiting or self._released)
            taken = self._arrivals.take_world()
            if taken is None:
                return self._arrivals.take_delivery()
            world, fds = taken
            self._world, self._halt = world, -1
            self._short = world.relief > 0
            self._drain()
        if world.size > 1:
            self._reducer = ReducerLink(
                fds[0], fds[1], world.generation, world.rank, world.size, world.reduction
            )
        return world

    def _drain(self) -> None:
        try:
            while os.read(self._wake_fd, 4096):
                pass
        except BlockingIOError:
            pass

    def _drop_reducer(self) -> None:
        if self._reducer is not None:
            self._reducer.close()
            self._reducer = None

    def check(self) -> None:
        with self._lock:
            self._current()

    def _current(self) -> World:
        """The caller holds the lock."""
        if self._world is None:
            raise GenerationLost(_LEFT)
        return self._world

    def files(self, world: World) -> Files:
        generation, arrivals = world.generation, self._arrivals
        with self._changed:
            self._changed.wait_for(lambda: self._world is None or arrivals.brought(generation))
            self._current()
            return arrivals.take_files()

    def spoilt(self, reason: str) -> None:
        with self._lock:
            generation = self._current().generation
        self._link.send({"t": "spoilt", "generation": tag_list(generation), "reason": reason})

    def adopt(self, point: Point) -> None:
        with self._lock:
            self._current()
            self._point = point
            self._reporter.touch(urgent=True)

    def hold(self, snapshot: Snapshot, *, loaded: bool = False) -> None:
        with self._lock:
            self._snapshot = snapshot
            world = self._world
            if world is not None and self._lending.holds(snapshot, world.generation):
                self._say_lent(snapshot.point.step, snapshot.point.stamp)
            if world is not None and loaded:
                self._voice.send(
                    {
                        "t": "loaded",
                        "generation": tag_list(world.generation),
                        "step": snapshot.point.step,
                        "stamp": snapshot.point.stamp,
                    }
                )
            self._serve_exports()

    def begin_update(self) -> None:
        self._writer.make_room(self.check)
        with self._lock:
            self._current()
            self._updating = True
            self._snapshot = None
            self._set_phase("update")

    def begin_preparing(self, delivery: Delivery) -> None:
        with self._lock:
            if delivery.serial < self._frozen:
                raise GenerationLost("a freeze came before")
            self._updating = True
            self._snapshot = None

    def prepared(self, delivery: Delivery, reason: str) -> None:
        with self._lock:
            point = self._point
        plain = None if reason or point is None else [point.lineage, point.step, point.stamp]
        self._voice.send(
            {
                "t": "prepared",
                "serial": delivery.serial,
                "point": plain,
                "reason": reason,
                "replays": self._takes_updates,
            }
        )

    def idle_since(self, delivery: Delivery) -> bool:
        with self._lock:
            called = self._arrivals.world is not None or self._released
            return delivery.serial >= self._frozen and not called

    def unloaded(self, reason: str) -> None:
        self._say_and_leave({"t": "unloaded", "reason": reason})

    def keeps_updates(self) -> bool:
        # When memory is short nothing is kept, and who is behind takes the whole state.
        return not self._short

    def replays(self, *, gives: bool, takes: bool) -> None:
        with self._lock:
            self._takes_updates = takes
            if self._lending.gives and not gives:
                self._lending.gives = False
                if self._lending.lends:
                    self._say_lent(-1, "", self._lending.refuses(None), never=True)

    def end_update(
        self, point: Point | None, loss: float | None, update: Update | None = None
    ) -> None:
        with self._lock:
            self._updating = False
            if point is not None:
                world = self._world
                self._lending.applied(update, None if world is None else world.generation)
                self._point = point
            if loss is not None:
                self._report.loss = loss
                self._report.pace.step(time.monotonic())
                self._writer.step_done()
            serials, self._freezes = self._freezes, []
            for serial in serials:
                self._answer_freeze(serial)
            self._reporter.touch(urgent=True)

    def reduce(self, step: int, plan: ChunkPlan, parts: Parts, out: NDArray[np.float32]) -> None:
        with self._lock:
            self._current()
            self._set_phase("reduce")
        assert self._reducer is not None
        try:
            self._reducer.reduce(step, plan, parts, out, self._wake_fd)
        except GenerationLost as error:
            self._lost(str(error))
            raise
        with self._lock:
            reduction = self._current().reduction
            self._report.metrics["bytes_per_step"] = plan.bytes_sent(reduction, len(out))

    def barrier(self, point: Point) -> None:
        with self._lock:
            world = self._current()
            if world.size > 1:
                self._set_phase("reduce")
        if world.size > 1:
            assert self._reducer is not None
            try:
                self._reducer.barrier(point.step, self._wake_fd)
            except GenerationLost as error:
                self._lost(str(error))
                raise
        with self._lock:
            self._lending.committed(self._current().generation)
            self._committed = point.step
            self._set_phase("user")
            self._reporter.touch(urgent=True)

    def _lost(self, evidence: str) -> None:
        with self._lock:
            world = self._world
            self._leave()
        if world is not None:
            generation = tag_list(world.generation)
            self._voice.send({"t": "reducer_lost", "generation": generation, "evidence": evidence})
        self._drop_reducer()

    def halt(self, point: Point) -> None:
        with self._changed:
            if self._world is None or self._halt != point.step:
                return
            self._set_phase("paused")
            self._changed.wait_for(lambda: self._world is None or self._halt != point.step)

    def agree(self, result: ProbeResult) -> None:
        with self._changed:
            generation = self._current().generation
            if self._probed != generation:
                self._probed = generation
                self._voice.send(
                    {
                        "t": "probe",
                        "generation": tag_list(generation),
                        "repeats": result.repeats,
                        "gradient": result.gradient,
                        "update": result.update,
                        "layout": result.layout,
                        "state": result.state,
                    }
                )

            def decided() -> bool:
                return self._verdict is not None and self._verdict[0] == generation

            self._changed.wait_for(lambda: self._world is None or decided())
            self._current()

    def checkpoint(self, world: World, snapshot: Snapshot, stall_seconds: float) -> None:
        step = snapshot.point.step
        must = step in (self.spec.train.steps, world.point.step, self._halt)
        available = psutil.virtual_memory().available
        mode = mode_of(self.spec.checkpoint.snapshot, snapshot.bytes, available)
        self._writer.submit(Task(world, snapshot, stall_seconds, mode, must, self._metric()))

    def _metric(self) -> float | None:
        """The figure by which the best checkpoint is kept, as it is now."""
        name = self.spec.checkpoint.keep_best
        if not name:
            return None
        with self._lock:
            return self._report.figure(name)

    def refuse(self, reason: str) -> None:
        self._voice.send({"t": "refused", "reason": reason})
        with self._changed:
            self._leave()

    def strain(self) -> None:
        wanted, self._strain_bytes = self._strain_bytes, 0
        if wanted:
            allocate(wanted)

    def out_of_memory(self, evidence: str) -> bool:
        self._say_and_leave({"t": "oom", "evidence": evidence})
        self._drop_reducer()
        return True

    def not_finite(self, step: int, loss: float, policy: str) -> None:
        said = {"t": "not_finite", "step": step, "loss": str(loss), "policy": policy}
        if policy == "restore":
            self._say_and_leave(said)
            raise GenerationLost(f"the loss of step {step} is {loss}")
        with self._lock:
            generation = self._current().generation
        self._voice.send({**said, "generation": tag_list(generation)})

    def _say_and_leave(self, message: dict[str, Any]) -> None:
        with self._changed:
            world = self._world
            self._leave()
        if world is not None:
            self._voice.send({**message, "generation": tag_list(world.generation)})

    def verify(self, world: World, snapshot: Snapshot) -> None:
        if self._verifier is None or not self._verifier.is_alive():
            self._verifier = threads.start("verify", partial(self._verify, world, snapshot))

    def _verify(self, world: World, snapshot: Snapshot) -> None:
        self._voice.send(
            {
                "t": "digest",
                "generation": tag_list(world.generation),
                "step": snapshot.point.step,
                "stamp": snapshot.point.stamp,
                "digest": snapshot.check(),
            }
        )

    def rechecked(self, world: World, step: int, grain: int, vector: Sequence[mx.array]) -> None:
        said = {"t": "rechecked", "generation": tag_list(world.generation), "step": step}

        def tell() -> None:
            self._voice.send({**said, "grain": grain, "digest": vector_digest(vector)})

        threads.start("recheck", tell)

    def finish(self, point: Point) -> bool:
        self.phase("idle")
        with self._changed:
            if self._world is not None:
                self._voice.send(
                    {
                        "t": "finished",
                        "generation": tag_list(self._world.generation),
                        "step": point.step,
                        "stamp": point.stamp,
                    }
                )
            self._changed.wait_for(lambda: self._released or self._world is None)
            return self._released

    def close(self, status: int) -> None:
        """The script is over: leave in order."""
        self._drop_reducer()
        self._send_progress()
        self._link.say_goodbye(status)
        self._link.close()

    # What is shown.

    def timed(self, grain_seconds: float, update_seconds: float) -> None:
        with self._lock:
            self._report.grain_seconds = grain_seconds
            self._report.update_seconds = update_seconds

    def phase(self, name: str) -> None:
        with self._lock:
            self._set_phase(name)

    def _set_phase(self, name: str) -> None:
        if self._report.phase != name:
            self._report.phase = name
            self._reporter.touch()

    def log(self, values: Mapping[str, float | str]) -> None:
        with self._lock:
            self._report.log(values)
            self._reporter.touch()

    def _send_progress(self) -> None:
        with self._lock:
            message = self._progress()
        if message is not None:
            self._voice.send(message)

    def _progress(self) -> dict[str, Any] | None:
        """The caller holds the lock."""
        world, point = self._world, self._point
        if world is None or point is None:
            return None
        return {
            "t": "progress",
            "generation": tag_list(world.generation),
            "step": point.step,
            "stamp": point.stamp,
            "committed": self._committed,
            **self._report.shown(),
        }
