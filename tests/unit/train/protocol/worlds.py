"""Worlds, states and updates without content, for the protocol alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from elasticd.core.words.trainers import ExportState, FromTrainer, GiveWorld, WritePlan
from elasticd.train.protocol.effects import Effect, Say
from elasticd.train.protocol.trainer import Figures, TrainerProtocol
from elasticd.train.world import TrainerWorld
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp, Tag, first_stamp, next_stamp

JOB, LINEAGE, NODE = JobId("job"), Lineage("l"), NodeId("n")
START = Point(LINEAGE, 0, first_stamp(JOB, LINEAGE))
FIGURES = Figures("compute", 0.5, 0, None, 1, {}, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class State:
    point: Point
    bytes: int = 0


@dataclass(frozen=True)
class Update:
    before: Stamp
    step: int
    stamp: Stamp
    bytes: int = 1
    complete: bool = False


Protocol = TrainerProtocol[State, Update]


def tag(counter: int) -> Tag:
    return Tag(counter, NODE, "x")


def world(
    counter: int, point: Point = START, state: Literal["keep", "load", "init"] = "init"
) -> GiveWorld:
    """A world of one."""
    share = (((0, 1),),)
    return GiveWorld(
        tag(counter), JOB, 0, 1, (NODE,), point.lineage, point.step, point.stamp, state, share,
        share, "exact", -1, "nowhere", WritePlan(5, 1, 1),
    )  # fmt: skip


def after(point: Point, generation: Tag) -> tuple[Point, Update]:
    """The next step."""
    step = point.step + 1
    stamp = next_stamp(point.stamp, generation, step)
    return replace(point, step=step, stamp=stamp), Update(point.stamp, step, stamp)


def said(protocol: Protocol) -> list[FromTrainer]:
    """What is new of it."""
    return [effect.word for effect in protocol.effects() if isinstance(effect, Say)]


def done(protocol: Protocol) -> list[Effect]:
    """What else is to be done."""
    return [effect for effect in protocol.effects() if not isinstance(effect, Say)]


def enter(protocol: Protocol, word: GiveWorld) -> TrainerWorld:
    """Give a world, and take it with the state in place."""
    protocol.hear(word, ("memory", "socket"))
    taken = protocol.take()
    assert taken is not None and isinstance(taken[0], TrainerWorld)
    point = Point(word.lineage, word.step, word.stamp)
    if word.state != "load":
        protocol.adopt(point)
        protocol.hold(State(point))
    protocol.effects()
    return taken[0]


def make_step(protocol: Protocol) -> Point:
    """Apply the next step and commit it."""
    point = protocol.held.point
    assert point is not None
    protocol.begin_update()
    point, update = after(point, protocol.current().generation)
    protocol.end_update(point, update if protocol.keeps_updates else None)
    protocol.commit(point.step)
    protocol.hold(State(point), replace(update, complete=True))
    return point


def ask(protocol: Protocol, point: Point, since: Stamp | None = None) -> None:
    """Want a state, as a whole or from ``since`` on."""
    protocol.hear(ExportState(9, point.step, point.stamp, since))
