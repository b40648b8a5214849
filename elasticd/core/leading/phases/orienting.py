"""A new leader finds out what an earlier one has left."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.leading.office import Office
from elasticd.core.leading.phases.evidence import against, of_lost
from elasticd.core.leading.phases.moves import (
    Blame,
    Inherited,
    Oriented,
    ToRunning,
    ToWaiting,
)
from elasticd.core.leading.phases.waiting import patience_deadlines
from elasticd.core.leading.roster import HOLDING, LEFT
from elasticd.core.words.records import World
from elasticd.core.words.worldlines import committed_before
from elasticd.core.words.worlds import Fault, Formed
from elasticd.types import NO_TAG, NodeId, Tag, counter_of


@dataclass(slots=True)
class Orienting:
    """Until the members have spoken. Whoever looks from outside sees a job that waits."""

    office: Office
    since: float
    why: str = ""

    def go_on(self) -> Oriented | Inherited | ToRunning | ToWaiting | None:
        """Take over the newest world that the members know of, if there is any."""
        office = self.office
        if silent := office.silent(self.since):
            self.why = f"waiting to hear from {', '.join(silent)}"
            return None
        worlds = office.roster.worlds(office.world)
        newest = max((w.generation for w in worlds), default=NO_TAG)
        copies = [w for w in worlds if w.generation == newest]
        if copies:
            office.take(*copies)
        course = office.course
        if self._rests(newest):
            office.account.resume()
            office.trust.ladder.forgive(newest)
            course.resume(office.wishes.record.step)
            return ToWaiting("trainers are starting to resume it")
        if not copies:
            return Oriented()
        world = copies[0]
        there = [s for s in office.statuses.values() if s.world in copies]
        whole = office.roster.is_whole(world) or any(s.formed for s in there)
        known = world.step if whole else committed_before(world)
        committed = max(known, *(s.committed for s in there))
        for node, progress in course.found(committed, office.ctx.now):
            office.saw(node, progress)
        office.trust.ladder.passed(course.committed)
        return self._found(world)

    def _rests(self, newest: Tag) -> bool:
        """Whether nobody has gone on from where the job came to rest last, as far as is known:
        ``newest`` is the newest world of the members. None of them may have been in that one."""
        office = self.office
        rested, heard = office.wishes.record.rested, office.ctx.heard.get(office.job, NO_TAG)
        if office.roster.trainers(*HOLDING, *LEFT):
            return False
        counter = counter_of(rested)
        return rested == str(newest) or newest.counter < counter >= heard.counter

    def _found(self, world: World) -> Inherited | ToRunning:
        office = self.office
        unsure = not office.roster.trainers(*HOLDING, *LEFT)
        office.account.found(office.course.committed, office.stored_step, unsure=unsure)
        if office.roster.is_whole(world):
            text = f"adopted a whole world, {world.generation}"
            office.ctx.log("info", text, job=office.job)
            for node in world.members:
                office.ctx.send(node, Formed(world.job, world.generation))
            return ToRunning()
        if office.roster.trainers(*LEFT):
            return Inherited()
        lost = [n for n in world.members if n not in office.view.members]
        blames = of_lost(office, lost)
        for node in world.members:
            if node in office.statuses:
                blames += against(node, office.statuses[node], world)
        text = "its leader was lost while a world was being formed"
        return Inherited(tuple(blames), Blame(world.members[0], "ring_broken", text))

    def note(self, node: NodeId, fault: Fault) -> None:
        """A fault of a world, perhaps, that we have yet to hear of: the node's status may have been
        sent before."""
        self.office.roster.accuse(node, fault.fault, fault.evidence)

    def on_fault(self, blame: Blame, source: str | None) -> None:
        """Nothing is to be left."""

    def on_view(self, void: bool) -> None:
        """Nothing was asked."""

    def tick(self) -> None:
        """Time changes nothing but how long we wait."""

    def deadlines(self) -> list[float]:
        return patience_deadlines(self.office, self.since)
