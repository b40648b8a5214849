"""A world trains: its leader looks for better worlds, and for the last step."""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.leading import routing
from elasticd.core.leading.phases.moves import Blames, Outcome, Rest, ToClosing, ToFreezing
from elasticd.core.leading.phases.unfit import leave_out_odd
from elasticd.core.leading.phases.whole import Whole
from elasticd.core.leading.roster import HOLDING
from elasticd.core.leading.stopping import ending
from elasticd.types import NodeId


@dataclass(slots=True)
class Running(Whole):
    """Until its members have committed its last step."""

    # --- at a step's boundary ---------------------------------------------------------------------

    def at_boundary(self) -> ToFreezing | None:
        """Another step is committed: all members hold the same state, and nobody has to take it."""
        self.office.recovered()
        if self.office.account.recovery is not None:
            return None
        return self._share_again() or self._grow() or self._balance() or self._relieve()

    def _moves_on(self) -> bool:
        """Whether the world has committed a step, and is to go on for long."""
        world, wishes = self.world, self.office.wishes
        first = world.step + bool(world.unproven)  # a step later all have shown what they compute
        return self.office.course.committed > first and not wishes.paused

    def _grow(self) -> ToFreezing | None:
        """Leave out who is drained, let in who may enter, take a link that is back."""
        office, world = self.office, self.world
        if not self._moves_on() or office.all_committed:
            return None
        members = world.members
        staying = office.wishes.without_unwanted(members)
        if len(members) > len(staying) >= max(1, office.spec.world.min):
            if not office.roster.warm(staying) and len(staying) > 1:
                return None
            leaving = ", ".join(n for n in members if n not in staying)
            return ToFreezing(members, f"{leaving} is to be left out")
        entering = self._entering()
        if entering and office.roster.warm((*members, *entering)):
            return ToFreezing((*members, *entering), f"{', '.join(entering)} may enter")
        if routing.detours(office.roster, world) and office.roster.warm(members):
            return ToFreezing(members, "a better address works, and the ring takes it")
        return None

    def _entering(self) -> list[NodeId]:
        """Who could be let in now."""
        office, world = self.office, self.world
        able = [
            n
            for n in office.wishes.without_unwanted(office.roster.trainers("ready", *HOLDING))
            if n not in world.members and office.trust.fit(n)
        ]
        cut_off, _ = routing.beyond_reach(office.roster, world.members, able)
        able = [n for n in able if n not in cut_off]
        leave_out_odd(office, able, world.members)
        able = office.wishes.without_unwanted(able)
        most = office.spec.world.max or len(office.view.members)
        begun = office.growth.newcomers  # what was begun for them isn't begun again for others
        able.sort(key=lambda n: n not in begun)
        room = able[: max(0, most - len(world.members))]
        # Who holds a state of its own, of another side's world, has to be compared with us.
        holding, compared = office.roster.trainers(*HOLDING), office.growth.compared
        strangers = [n for n in able if n in holding and (n in room or n not in compared)]
        fresh = [n for n in room if n not in holding]
        return strangers or office.growth.ready(fresh, office.course.progress, office.last_step)

    def _share_again(self) -> ToFreezing | None:
        """All compute again once a step is over that one node had to compute alone."""
        if not self.office.trust.ladder.is_over or self.office.all_committed:
            return None
        return ToFreezing(self.world.members, "the step that killed is over, and all compute again")

    def _balance(self) -> ToFreezing | None:
        office, world = self.office, self.world
        if not self._moves_on() or office.trust.ladder.dealt.apart:
            return None
        warm = office.roster.warm(world.members)
        grains = office.relief.cut(world.relief).grains
        members = office.balance.look(world, grains, office.course.committed, warm)
        if not members:
            return None
        slow = len(members) < len(world.members)
        why = "a slow member is to be left out" if slow else "shares are to follow speeds"
        return ToFreezing(tuple(members), why)

    def _relieve(self) -> ToFreezing | None:
        office, members = self.office, self.world.members
        left = not office.all_committed and not office.wishes.paused
        warm = office.roster.warm(members) or len(members) == 1
        if office.relief.can_help and left and warm:
            return ToFreezing(members, "memory is to be given back")
        if office.relief.gives_back(self.world) and left and warm:
            return ToFreezing(members, "the operator asks for more memory again")
        return None

    # --- what can be done now ---------------------------------------------------------------------

    def go_on(self) -> Blames | Rest | Outcome | ToFreezing | ToClosing | None:
        """Whatever does not wait for a step's boundary."""
        office = self.office
        if office.course.committed >= self.world.ends_at(office.spec.train.steps):
            return ToClosing()
        return self.look() or self._stop()

    def _stop(self) -> ToFreezing | None:
        """Name the last step, if the script has asked to stop."""
        office, world = self.office, self.world
        course = office.course
        found = ending(world, self.asked(), course.progress, course.calls.bodies())
        if found is None:
            return None
        text = f"step {found.last} is the last: {found.reason}"
        office.ctx.emit("job_stops", text, world.job, world.generation.counter, step=found.last)
        office.course.stop(found.last)
        return ToFreezing(world.members, text)
