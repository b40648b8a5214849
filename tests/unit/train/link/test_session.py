"""The session with a daemon: descriptors that are void are closed, threads are woken, what is said
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

from elasticd.core.words.children import (
    FROM_TRAINER,
    TO_TRAINER,
    FreezeTrainer,
    FromTrainer,
    GiveWorld,
    HaltAt,
    LoadState,
    ReleaseTrainer,
    TakeState,
    ToTrainer,
    TrainerHere,
    TrainerHolds,
    TrainerLostReducer,
    TrainerPrepared,
    TrainerProgress,
    WritePlan,
)
from elasticd.errors import GenerationLost, ProtocolError
from elasticd.ipc.child import DaemonLink
from elasticd.ipc.chunks import create_memory
from elasticd.settings.job import JobSpec
from elasticd.train.link.session import Session
from elasticd.train.steps.seat import Delivery, Files
from elasticd.train.world import TrainerWorld
from elasticd.types import Lineage, NodeId, Point, Stamp, Tag

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
        generation, "j", 0, size, members, POINT.lineage, POINT.step, POINT.stamp, "init",
        nothing, nothing, "exact", -1, "nowhere", WritePlan(1, 1, 1),
    )  # fmt: skip


class FakeLink:
    """Keeps what is sent; ``stands``: the daemon takes nothing until it is set."""

    def __init__(self) -> None:
        self.said: list[FromTrainer] = []
        self.takes = threading.Event()
        self.takes.set()
        self.introduce: Callable[[Any], None] = lambda resume: None

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> bool:
        assert self.takes.wait(WAIT_SECONDS)
        self.said.append(FROM_TRAINER.decode(dict(message)))
        return True


@pytest.fixture
def link() -> FakeLink:
    return FakeLink()


@pytest.fixture
def session(link: FakeLink, tmp_path: Path) -> Session:
    return Session(cast(DaemonLink, link), SPEC, tmp_path)


def tell(session: Session, word: ToTrainer, *fds: int) -> None:
    session.driver.handle(TO_TRAINER.encode(word), fds)


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


def taken(session: Session) -> TrainerWorld:
    found = session.take()
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
    session: Session, fd: Descriptors
) -> None:
    void, also_void, void_file, file = fd(), fd(), fd(), fd()
    tell(session, world(OLD), void, also_void)
    tell(session, TakeState(1), void_file)
    tell(session, TakeState(2), file)
    tell(session, world(NEW, size=1))
    assert [fd.is_open(one) for one in (void, also_void, void_file, file)] == [
        False, False, False, True,
    ]  # fmt: skip
    assert taken(session).generation == NEW
    assert session.take() == Delivery(2, (file,))
    assert fd.is_open(file)


def test_a_state_of_an_older_world_comes_too_late(session: Session, fd: Descriptors) -> None:
    first, newest, late = fd(), fd(), fd()
    tell(session, LoadState(OLD), first)
    tell(session, LoadState(NEW, ("digest",)), newest)
    tell(session, LoadState(OLD), late)
    assert [fd.is_open(one) for one in (first, newest, late)] == [False, True, False]
    tell(session, world(NEW, size=1))
    assert session.files(taken(session)) == Files((newest,), ("digest",))


def test_a_freeze_leaves_the_state_alone(session: Session, fd: Descriptors) -> None:
    reducer, memory, state, delivery = fd(), fd(), fd(), fd()
    tell(session, world(OLD), memory, reducer)
    tell(session, LoadState(NEW), state)
    tell(session, TakeState(1), delivery)
    tell(session, FreezeTrainer(2))
    assert [fd.is_open(one) for one in (memory, reducer, state, delivery)] == [
        False, False, True, False,
    ]  # fmt: skip
    tell(session, world(NEW, size=1))
    assert session.files(taken(session)) == Files((state,))


def test_descriptors_must_be_as_many_as_the_frame_needs(session: Session, fd: Descriptors) -> None:
    with pytest.raises(ProtocolError, match="1 descriptors came with a world of 2"):
        tell(session, world(OLD), fd())
    with pytest.raises(ProtocolError, match="2 digests came with 1 files"):
        tell(session, LoadState(OLD, ("a", "b")), fd())


def test_a_freeze_is_answered_while_the_training_thread_is_busy(
    session: Session, link: FakeLink
) -> None:
    tell(session, world(OLD, size=1))
    session.adopt(taken(session).point)
    tell(session, FreezeTrainer(7))
    assert link.said == [TrainerHolds(7, POINT, None)]
    with pytest.raises(GenerationLost):
        session.begin_update()


@pytest.mark.parametrize("waits", ["files", "finish", "halt"])
def test_a_freeze_wakes_a_thread_that_waits(session: Session, waits: str) -> None:
    tell(session, world(OLD, size=1))
    here = taken(session)
    tell(session, HaltAt(OLD, 0))
    session.adopt(POINT)
    work: dict[str, Callable[[], Any]] = {
        "files": lambda: session.files(here),
        "finish": lambda: session.finish(POINT),
        "halt": lambda: session.halt(POINT),
    }
    with beside(work[waits]) as results:
        tell(session, FreezeTrainer(1))
    (result,) = results
    assert isinstance(result, GenerationLost) if waits == "files" else not result


@pytest.mark.parametrize("what", ["gone", "frozen"])
def test_a_thread_in_a_collective_falls_out_of_it(
    session: Session, link: FakeLink, what: str
) -> None:
    """Its world is left; the daemon hears of it if it doesn't know."""
    reducer, trainer = socket.socketpair()
    tell(session, world(OLD), create_memory(), trainer.detach())
    session.adopt(taken(session).point)
    with beside(lambda: session.barrier(POINT)) as results:
        if what == "frozen":
            tell(session, FreezeTrainer(1))
        else:
            reducer.close()
    assert isinstance(results[0], GenerationLost)
    with pytest.raises(GenerationLost):
        session.check()
    said = TrainerHolds if what == "frozen" else TrainerLostReducer
    assert [type(word) for word in link.said] == [said]
    reducer.close()


def test_release_ends_the_wait_behind_the_last_step(session: Session) -> None:
    tell(session, world(OLD, size=1))
    taken(session)
    with beside(lambda: session.finish(POINT)) as results:
        tell(session, ReleaseTrainer())
    assert results == [True]
    assert session.take() is None


def test_a_daemon_that_takes_nothing_does_not_stop_the_training_thread(
    session: Session, link: FakeLink
) -> None:
    tell(session, world(OLD, size=1))
    session.adopt(taken(session).point)
    link.takes.clear()
    delivery = Delivery(3, ())
    first, second = (partial(session.prepared, delivery, why) for why in ("no", "nor this"))
    with beside(first), beside(second):
        session.begin_update()
        session.end_load(POINT)
        session.check()
        link.takes.set()
    words = [TrainerPrepared(3, None, why) for why in ("no", "nor this")]
    assert sorted(link.said, key=str) == words


def test_a_restarted_daemon_hears_first_who_it_is(session: Session, link: FakeLink) -> None:
    """And then only what is decided later."""
    session.at_run({"w": "float32"})
    tell(session, world(OLD, size=1))
    session.adopt(taken(session).point)
    told: list[Any] = []
    link.introduce(told.extend)
    here, progress = (FROM_TRAINER.decode(frame) for frame in told)
    assert isinstance(here, TrainerHere) and isinstance(progress, TrainerProgress)
    assert (here.fingerprint, here.generation, progress.step) == ({"w": "float32"}, OLD, 0)


def test_no_progress_is_told_of_a_world_before_its_state_is_in_place(
    session: Session, link: FakeLink
) -> None:
    """A restore goes back: what was committed before it would be taken for its own."""
    tell(session, world(OLD, size=1))
    session.adopt(taken(session).point)
    later = Point(POINT.lineage, 3, Stamp("later"))
    session.end_update(later, 0.5, None)
    session.barrier(later)
    tell(session, FreezeTrainer(1))
    tell(session, replace(world(NEW, size=1), state="load"))
    taken(session)
    session.driver.send_progress()
    session.begin_update()
    session.end_load(POINT)
    session.driver.send_progress()
    told = [word for word in link.said if isinstance(word, TrainerProgress)]
    assert [(word.step, word.committed) for word in told] == [(0, None)]
