"""The seat with a daemon: descriptors that are void are closed, threads are woken, what is said
goes out in order."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.core.words.trainers import (
    FROM_TRAINER,
    TO_TRAINER,
    FreezeTrainer,
    FromTrainer,
    GiveWorld,
    HaltAt,
    LoadState,
    ReleaseTrainer,
    TakeState,
    TellVerdict,
    ToTrainer,
    TrainerCame,
    TrainerHere,
    TrainerHolds,
    TrainerLostReducer,
    TrainerPrepared,
    TrainerProbed,
    TrainerProgress,
    TrainerStops,
    WritePlan,
)
from elasticd.errors import GenerationLost, ProtocolError
from elasticd.ipc.child import DaemonLink
from elasticd.ipc.chunks import create_memory
from elasticd.outputsigns import Coming, given
from elasticd.recovery.samples import Samples
from elasticd.settings.job import JobSpec
from elasticd.train.link.daemonseat import DaemonSeat
from elasticd.train.steps.contents import FORM
from elasticd.train.steps.seat import Delivery, Files, ProbeResult
from elasticd.train.world import TrainerWorld
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

WAIT_SECONDS = 20
POINT = Point(Lineage("l"), 0, Stamp("s"))
OLD, NEW = Tag(1, NodeId("a"), "x"), Tag(2, NodeId("a"), "y")
SPEC = JobSpec.from_dict(
    {
        "job": {"name": "job", "entrypoint": "train.py"},
        "batch": {"global": 4, "micro": 2},
        "train": {"steps": 4, "seed": 7},
    }
)


def world(generation: Tag, size: int = 2) -> GiveWorld:
    nothing = ((),) * size
    members = tuple(NodeId(f"n{rank}") for rank in range(size))
    return GiveWorld(
        generation, JobId("j"), 0, size, members, POINT.lineage, POINT.step, POINT.stamp, "init",
        nothing, nothing, "exact", -1, "nowhere", WritePlan(1, 1, 1),
    )  # fmt: skip


class FakeLink:
    """Keeps what is sent; ``stands``: the daemon takes nothing until it is set."""

    def __init__(self) -> None:
        self.said: list[FromTrainer] = []
        self.takes = threading.Event()
        self.takes.set()
        self.stops = threading.Event()
        """It was said that the trainer stops."""
        self.introduce: Callable[[Any], None] = lambda resume: None

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool:
        assert self.takes.wait(WAIT_SECONDS)
        self.said.append(FROM_TRAINER.decode(dict(message)))
        if isinstance(self.said[-1], TrainerStops):
            self.stops.set()
        return True


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def seat(link: FakeLink, tmp_path: Path) -> DaemonSeat:
    return DaemonSeat(cast(DaemonLink, link), SPEC, tmp_path)


def tell(seat: DaemonSeat, word: ToTrainer, *fds: int) -> None:
    seat.driver.handle(TO_TRAINER.encode(word), fds)


class Descriptors:
    """Of one file that nobody else opens, so that a number that is used again is told apart."""

    def __init__(self, file: Path) -> None:
        self._file, self._made = file, list[int]()
        file.touch()

    def __call__(self) -> int:
        self._made.append(os.open(self._file, os.O_RDONLY))
        return self._made[-1]

    def is_open(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), self._file.stat())
        except OSError:
            return False

    def close(self) -> None:
        for fd in filter(self.is_open, self._made):
            os.close(fd)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[Descriptors]:
    with contextlib.closing(Descriptors(tmp_path / "file")) as made:
        yield made


def taken(seat: DaemonSeat) -> TrainerWorld:
    found = seat.take()
    assert isinstance(found, TrainerWorld)
    return found


@contextlib.contextmanager
def beside(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Do ``work`` in a thread, which must end by the end of the block; what came of it."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except GenerationLost as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield results
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()


def test_a_newer_world_and_delivery_close_the_ones_that_nobody_took(
    seat: DaemonSeat, fd: Descriptors
) -> None:
    void, also_void, void_file, file = fd(), fd(), fd(), fd()
    tell(seat, world(OLD), void, also_void)
    tell(seat, TakeState(1), void_file)
    tell(seat, TakeState(2), file)
    tell(seat, world(NEW, size=1))
    assert [fd.is_open(one) for one in (void, also_void, void_file, file)] == [
        False, False, False, True,
    ]  # fmt: skip
    assert taken(seat).generation == NEW
    assert seat.take() == Delivery(2, (file,))
    assert fd.is_open(file)


def test_rank_0_waits_for_the_output_of_the_one_before(seat: DaemonSeat, tmp_path: Path) -> None:
    """Not longer than its world lasts."""
    with contextlib.closing(Coming(tmp_path)):
        tell(seat, world(OLD, size=1))
        with beside(lambda: taken(seat)) as came:
            assert not threading.Event().wait(0.2) and not came
            tell(seat, FreezeTrainer(2))
        assert came[0].generation == OLD
    tell(seat, world(NEW, size=1))
    assert taken(seat).generation == NEW


def test_what_lay_there_before_a_state_came_is_noted(seat: DaemonSeat, tmp_path: Path) -> None:
    """It belongs to an older one, however it came about."""
    (tmp_path / "best").write_text("old")
    tell(seat, replace(world(OLD, size=1), state="load"))
    taken(seat)
    seat.begin_update()
    assert given(tmp_path) == {}
    seat.end_load(POINT, complete=True)
    (tmp_path / "later").write_text("new")
    assert [*given(tmp_path)] == ["best"]


def test_a_state_of_an_older_world_comes_too_late(seat: DaemonSeat, fd: Descriptors) -> None:
    first, newest, late = fd(), fd(), fd()
    tell(seat, LoadState(OLD), first)
    tell(seat, LoadState(NEW, ("digest",)), newest)
    tell(seat, LoadState(OLD), late)
    assert [fd.is_open(one) for one in (first, newest, late)] == [False, True, False]
    tell(seat, world(NEW, size=1))
    assert seat.files(taken(seat)) == Files((newest,), ("digest",))


def test_a_freeze_leaves_the_state_alone(seat: DaemonSeat, fd: Descriptors) -> None:
    reducer, memory, state, delivery = fd(), fd(), fd(), fd()
    tell(seat, world(OLD), memory, reducer)
    tell(seat, LoadState(NEW), state)
    tell(seat, TakeState(1), delivery)
    tell(seat, FreezeTrainer(2))
    assert [fd.is_open(one) for one in (memory, reducer, state, delivery)] == [
        False, False, True, False,
    ]  # fmt: skip
    tell(seat, world(NEW, size=1))
    assert seat.files(taken(seat)) == Files((state,))


def test_descriptors_must_be_as_many_as_the_frame_needs(seat: DaemonSeat, fd: Descriptors) -> None:
    with pytest.raises(ProtocolError, match="1 descriptors came with a world of 2"):
        tell(seat, world(OLD), fd())
    with pytest.raises(ProtocolError, match="2 digests came with 1 files"):
        tell(seat, LoadState(OLD, ("a", "b")), fd())


def test_a_freeze_is_answered_while_the_training_thread_is_busy(
    seat: DaemonSeat, link: FakeLink
) -> None:
    tell(seat, world(OLD, size=1))
    seat.adopt(taken(seat).point)
    tell(seat, FreezeTrainer(7))
    assert link.said == [TrainerCame(OLD), TrainerHolds(7, POINT, None, ended=False)]
    with pytest.raises(GenerationLost):
        seat.begin_update()


@pytest.mark.parametrize("waits", ["files", "finish", "halt", "stop"])
def test_a_freeze_wakes_a_thread_that_waits(seat: DaemonSeat, link: FakeLink, waits: str) -> None:
    tell(seat, world(OLD, size=1))
    here = taken(seat)
    tell(seat, HaltAt(OLD, 0))
    seat.adopt(POINT)
    work: dict[str, Callable[[], Any]] = {
        "files": lambda: seat.files(here),
        "finish": lambda: seat.finish(POINT),
        "halt": lambda: seat.halt(POINT),
        "stop": lambda: seat.stop(POINT, "enough"),
    }
    with beside(work[waits]) as results:
        if waits == "stop":  # it may stop only in a world
            assert link.stops.wait(WAIT_SECONDS)
        tell(seat, FreezeTrainer(1))
    (result,) = results
    assert isinstance(result, GenerationLost) if waits == "files" else not result


def test_who_waits_for_the_verdict_over_all_probes_does_not_compute(tmp_path: Path) -> None:
    """It would be charged with what another takes, whose thread hangs."""
    phases: list[str] = []

    class Judging(FakeLink):
        def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool:
            sent = super().send(message, fds)
            if isinstance(self.said[-1], TrainerProbed):
                phases.append(here.driver.report.phase)
                tell(here, TellVerdict(OLD, True, ""))
            return sent

    here = DaemonSeat(cast(DaemonLink, Judging()), SPEC, tmp_path)
    tell(here, world(OLD, size=1))
    here.adopt(taken(here).point)
    here.phase("compute")
    with beside(lambda: here.agree(ProbeResult(True, "g", "u", "l", "s"))) as results:
        pass
    assert results == [None]
    assert [*phases, here.driver.report.phase] == ["idle", "compute"]


@pytest.mark.parametrize("what", ["gone", "frozen"])
def test_a_thread_in_a_collective_falls_out_of_it(
    seat: DaemonSeat, link: FakeLink, what: str
) -> None:
    """Its world is left; the daemon hears of it if it doesn't know."""
    reducer, trainer = socket.socketpair()
    tell(seat, world(OLD), create_memory(), trainer.detach())
    seat.adopt(taken(seat).point)
    with beside(lambda: seat.barrier(POINT)) as results:
        if what == "frozen":
            tell(seat, FreezeTrainer(1))
        else:
            reducer.close()
    assert isinstance(results[0], GenerationLost)
    with pytest.raises(GenerationLost):
        seat.check()
    said = TrainerHolds if what == "frozen" else TrainerLostReducer
    assert [type(word) for word in link.said] == [TrainerCame, said]
    reducer.close()


def test_release_ends_the_wait_behind_the_last_step(seat: DaemonSeat) -> None:
    tell(seat, world(OLD, size=1))
    taken(seat)
    with beside(lambda: seat.finish(POINT)) as results:
        tell(seat, ReleaseTrainer())
    assert results == [True]
    assert seat.take() is None


def test_a_daemon_that_takes_nothing_does_not_stop_the_training_thread(
    seat: DaemonSeat, link: FakeLink
) -> None:
    tell(seat, world(OLD, size=1))
    seat.adopt(taken(seat).point)
    link.takes.clear()
    delivery = Delivery(3, ())
    first, second = (partial(seat.prepared, delivery, why) for why in ("no", "nor this"))
    with beside(first), beside(second):
        seat.begin_update()
        seat.end_load(POINT, complete=True)
        seat.check()
        link.takes.set()
    words = [TrainerCame(OLD), *(TrainerPrepared(3, None, why) for why in ("no", "nor this"))]
    assert sorted(link.said, key=str) == words


def test_a_restarted_daemon_hears_first_who_it_is(seat: DaemonSeat, link: FakeLink) -> None:
    """And then only what is decided later."""
    seat.at_run({"w": "float32", "data/sample 0": "x"})
    tell(seat, world(OLD, size=1))
    seat.adopt(taken(seat).point)
    told: list[Any] = []
    link.introduce(told.extend)
    here, came, progress = (FROM_TRAINER.decode(frame) for frame in told)
    assert isinstance(here, TrainerHere) and isinstance(progress, TrainerProgress)
    assert came == TrainerCame(OLD)
    assert (here.fingerprint, here.generation, progress.step) == ({"w": "float32"}, OLD, 0)
    assert here.samples == Samples(FORM, {"data/sample 0": "x"}), "earlier builds pass over them"


def test_no_progress_is_told_of_a_world_before_its_state_is_in_place(
    seat: DaemonSeat, link: FakeLink
) -> None:
    """A restore goes back: what was committed before it would be taken for its own."""
    tell(seat, world(OLD, size=1))
    seat.adopt(taken(seat).point)
    later = Point(POINT.lineage, 3, Stamp("later"))
    seat.end_update(later, 0.5, None)
    seat.barrier(later)
    tell(seat, FreezeTrainer(1))
    tell(seat, replace(world(NEW, size=1), state="load"))
    taken(seat)
    seat.driver.send_progress()
    seat.begin_update()
    seat.end_load(POINT, complete=True)
    seat.driver.send_progress()
    told = [word for word in link.said if isinstance(word, TrainerProgress)]
    assert [(word.step, word.committed) for word in told] == [(0, None)]
