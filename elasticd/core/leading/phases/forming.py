"""How the members of a world come together, as its leader sees it.

    noticed ──the next view is sure to know──▶ ordered ──the engine comes up──▶ ready, all

How their collective engine comes up is that engine's own business (core/engines/).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from elasticd.core.engines.port import LeaderEngine
from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.moves import Blame, Blames, ToRunning, ToWaiting
from elasticd.core.words.engines import EngineToLeader
from elasticd.core.words.records import Heard, World
from elasticd.core.words.worlds import (
    Form,
    Formed,
    Hung,
    Noted,
    Notice,
    OfForming,
    Ready,
)
from elasticd.counting import counted
from elasticd.recovery.quorum import holds
from elasticd.types import NO_SECRET, NodeId, Secret


@dataclass(slots=True)
class Forming:
    office: Office
    since: float
    world: World
    engine: LeaderEngine
    secret: Secret = field(default=NO_SECRET, repr=False)
    why: str = ""
    ordered: bool = False
    """Its members were told to form it."""
    noted: set[NodeId] = field(default_factory=set)
    """Who knows of it."""
    ready: set[NodeId] = field(default_factory=set)

    def begin(self) -> None:
        """Have the world formed."""
        self.noted = set(self.world.members)
        self._order()
        if not self.ordered:
            heard = Heard(self.world.job, self.world.generation)
            for node in self.office.view.members:
                self.office.ctx.send(node, Notice(self.office.view.epoch, heard))

    def _order(self) -> None:
        """Once the next primary view is sure to know of it."""
        ctx = self.office.ctx
        if not ctx.strict or holds(self.office.view.members, self.noted):
            self.ordered = True
            for node in self.world.members:
                ctx.send(node, Form(self.world, self.secret))

    def hear(self, node: NodeId, message: OfForming) -> ToRunning | None:
        """How far a member has come."""
        if message.generation != self.world.generation:
            return None
        if isinstance(message, EngineToLeader):
            self.engine.on_word(node, message)
            return None
        match message:
            case Noted():
                if not self.ordered:
                    self.noted.add(node)
                    self._order()
            case Ready():
                self.ready.add(node)
                return self._formed() if self.ready == set(self.world.members) else None
            case _:
                assert_never(message)
        return None

    def _formed(self) -> ToRunning:
        office, world = self.office, self.world
        for member in world.members:
            office.ctx.send(member, Formed(world.job, world.generation))
        office.tries.succeeded()
        office.course.formed(office.ctx.now)
        office.ctx.emit(
            "world_formed",
            f"{counted(len(world.members), 'member goes', 'members go')} on from step {world.step}:"
            f" {world.reason}",
            world.job,
            world.generation.counter,
            members=list(world.members),
            resume_step=world.step,
            seconds=round(office.ctx.now - self.since, 4),
            rung=world.rung,
        )
        office.fitness.serve(world.members)
        office.histories.entered(world)
        office.recovered()
        return ToRunning()

    def go_on(self) -> None:
        """The members have to say something first."""

    def on_fault(self, blame: Blame, source: str | None) -> ToWaiting | None:
        """``source`` says where the culprit has its state from, if it is a member."""
        if source is None:
            return None
        takes = source.startswith(("peer:", "updates:"))
        if takes and blame.fault in ("state_unavailable", "hang"):
            self.office.trust.bench(blame.culprit, blame.text)
        return ToWaiting("a member failed")

    def on_view(self, void: bool) -> ToWaiting | None:
        """``void``: what a member was told in the view before may count for nothing."""
        return ToWaiting("the view changed while the world formed") if void else None

    def tick(self) -> Blames | None:
        """End a world that does not form."""
        waited, limits = self.office.ctx.now - self.since, self._limits()
        late = sorted(node for node, limit in limits.items() if waited >= limit)
        if not late:
            return None
        text = f"the world did not form in {waited:.0f} s; waiting for {late}"
        if late[0] in self.world.takers and late[0] not in self.office.course.progress:
            # It does not have its state. If it hangs, the next world waits for it in vain as well.
            hung = Hung(self.office.job, self.world.generation, text, waited)
            self.office.ctx.send(late[0], hung)
        return Blames((Blame(late[0], "hang", text),))

    def _away(self) -> set[NodeId]:
        """Members that are to take a state, and whose trainer may be in the script's own code."""
        return {node for node in self.world.takers if not self._has_come(node)}

    def _has_come(self, node: NodeId) -> bool:
        office = self.office
        status = office.statuses.get(node)
        if status is None or status.trainer is None or not office.roster.is_here(node, self.world):
            return node in office.course.progress
        return status.trainer.came or node in office.course.progress

    def _limits(self) -> dict[NodeId, float]:
        """How many seconds those who are not ready may take. States are loaded, perhaps, from peers
        or disks."""
        timing, patience = self.office.ctx.timing, self.office.course.patience
        longest = timing.load_seconds if self.world.takers else timing.form_seconds
        limits = dict.fromkeys((n for n in self.world.members if n not in self.ready), longest)
        for node in self._away() & limits.keys():
            limits[node] = min(longest, patience.coming(node))
        return limits

    def deadlines(self) -> list[float]:
        return [self.since + seconds for seconds in set(self._limits().values())]
