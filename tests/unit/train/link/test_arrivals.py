"""What a daemon brought: the newest is taken, and what is void is closed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.train.link.arrivals import Arrivals
from elasticd.train.steps.seat import Delivery, Files
from elasticd.train.world import World, Writes
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag

POINT = Point(Lineage("l"), 0, Stamp("s"))
OLD, NEW = Tag(1, NodeId("a"), "x"), Tag(2, NodeId("a"), "y")


def world(generation: Tag) -> World:
    return World(
        generation, JobId("j"), 0, 1, (NodeId("a"),), POINT, "stay", (), (), "exact", 0,
        Path("nowhere"), Writes(1, 1, 1),
    )  # fmt: skip


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


def test_a_newer_world_and_delivery_replace_the_ones_that_nobody_took(
    fd: Descriptors,
) -> None:
    arrivals = Arrivals()
    void, kept, void_file, file = fd(), fd(), fd(), fd()
    arrivals.offer(world(OLD), [void])
    arrivals.offer(world(NEW), [kept])
    arrivals.deliver(Delivery(1, (void_file,)))
    arrivals.deliver(Delivery(2, (file,)))
    assert [fd.is_open(one) for one in (void, kept, void_file, file)] == [False, True, False, True]
    assert arrivals.take_world() == (world(NEW), [kept])
    assert arrivals.waiting and arrivals.world is None
    assert arrivals.take_delivery() == Delivery(2, (file,))
    assert not arrivals.waiting
    assert fd.is_open(kept) and fd.is_open(file)


def test_a_state_of_an_older_world_comes_too_late(fd: Descriptors) -> None:
    arrivals = Arrivals()
    first, newest, late = fd(), fd(), fd()
    arrivals.bring(OLD, Files((first,)))
    arrivals.bring(NEW, Files((newest,)))
    arrivals.bring(OLD, Files((late,)))
    assert [fd.is_open(one) for one in (first, newest, late)] == [False, True, False]
    assert arrivals.brought(NEW) and not arrivals.brought(OLD)
    assert arrivals.take_files() == Files((newest,))
    assert not arrivals.brought(NEW)


def test_a_freeze_leaves_the_state_alone(fd: Descriptors) -> None:
    arrivals = Arrivals()
    reducer, state, delivery = fd(), fd(), fd()
    arrivals.offer(world(OLD), [reducer])
    arrivals.bring(NEW, Files((state,)))
    arrivals.deliver(Delivery(1, (delivery,)))
    arrivals.freeze()
    assert [fd.is_open(one) for one in (reducer, state, delivery)] == [False, True, False]
    assert not arrivals.waiting and arrivals.brought(NEW)
