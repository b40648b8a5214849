"""A world that all of its members are in: what its leader hears, and what breaks it.

Be steps left (running.py) or not (closing.py): scripts still run, states are stored and compared,
and the job may be paused.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticd.core.leading.office import Office
from elasticd.core.leading.phases import differing, evidence
from elasticd.core.leading.phases.moves import Blame, Blames, Outcome, Rest, ToFreezing, ToWaiting
from elasticd.core.leading.phases.unfit import leave_out
from elasticd.core.words.records import StopAsked, World
from elasticd.core.words.worldlines import stayed
from elasticd.core.words.worlds import Hung, MemberStatus, Rechecked
from elasticd.recovery import divergence, recheck
from elasticd.recovery.divergence import Unlike
from elasticd.types import NodeId


@dataclass(slots=True)
class Whole:
    office: Office
    since: float
    world: World
    why: str = ""

    # --- what is heard ----------------------------------------------------------------------------

    def on_status(self, node: NodeId, status: MemberStatus) -> Blames | None:
        """A member, or another node, says how it is."""
        if node not in self.world.members:
            return None
        return Blames(tuple(evidence.against(node, status, self.world)))

    def compare(self) -> differing.Left | None:
        """The members' parameters, once all have told of the same step."""
        return differing.compared(self.office, self.world)

    def on_rechecked(self, node: NodeId, told: Rechecked) -> ToFreezing | None:
        """A grain that several have computed. The step goes on: its bits are everybody's by now."""
        office, world, spec = self.office, self.world, self.office.spec
        if told.generation != world.generation:
            return None
        shares = world.shares_now if told.step == world.step + 1 else world.shares
        every = spec.recovery.recheck_every
        check = recheck.choose(spec.train.seed, told.step, every, shares)
        # Where grains don't repeat, or members differ, different bits say nothing.
        if check is None or not office.exactness.promised:
            return None
        found = office.trust.recheck(node, told, world, check)
        if found is None or office.parted_by_chips("gradients", office.trust.rechecks):
            return None
        if found.odd is None:
            generation = world.generation.counter
            office.ctx.emit("recheck_differs", found.reason, world.job, generation)
            return None
        office.account.tell(found.odd, "divergence", found.reason, world, office.trust.rechecked_at)
        office.trust.quarantine(found.odd)
        fit = [n for n in world.members if office.trust.fit(n)]
        if len(fit) < len(world.members) and len(fit) >= max(1, spec.world.min):
            return ToFreezing(tuple(fit), f"{found.odd} has computed wrongly")
        return None

    # --- what can be done now ---------------------------------------------------------------------

    def look(self) -> Blames | Rest | Outcome | ToFreezing | None:
        """What ends this world, or lets it rest, and does not wait for a step's boundary."""
        office, world = self.office, self.world
        if why := office.exactness.judge(world, office.statuses):
            return ToFreezing(world.members, why)
        if office.exactness.forbids:
            return Outcome("failed", office.exactness.forbids)
        if (left := self._leave_unlike()) is not None:
            return left
        if stuck := office.course.calls.stuck(office.course.progress):
            return Outcome("failed", stuck)
        rest = self._halt()
        office.wishes.discharge(world, office.roster)
        return rest or self._leave_different() or self._write_again()

    def asked(self) -> dict[NodeId, StopAsked]:
        """Whose script has asked to stop in this world."""
        office, world = self.office, self.world
        # What is behind everybody, or beyond the job, no sound trainer asks for.
        sound = range(office.course.committed, office.spec.train.steps + 1)
        asked = office.roster.asking(world.members).items()
        here = office.roster.is_here
        return {n: stop for n, stop in asked if stop.step in sound and here(n, world)}

    @property
    def watches(self) -> bool:
        """Whether what comes next depends on how far the members are."""
        office = self.office
        return office.wishes.paused or bool(self.asked()) or office.course.calls.watches

    def _leave_unlike(self) -> ToFreezing | Outcome | None:
        """Go on without members that have joined and compute something else, if enough are left."""
        office, world, exactness = self.office, self.world, self.office.exactness
        odd = exactness.proofs.look(
            world,
            office.statuses,
            counts=exactness.promised,
            committed=office.course.committed,
        )
        if isinstance(odd, Unlike):
            return differing.refused(office, world, odd, world.step + 1)
        odd = {n: left for n, why in odd.items() if (left := self._why_odd(n, why))}
        if not odd:
            return None
        office.trust.taint(odd, world)
        for node, why in odd.items():
            if (end := leave_out(office, node, why, unlike=True)) is not None:
                return end
        return ToFreezing(world.members, f"{', '.join(odd)} is left out")

    def _why_odd(self, node: NodeId, why: str) -> str:
        """Why a member that computes something else is left out. Nothing if that is its chip's
        doing, or if those who have stayed differ by their chips: it has its state from one of them.
        Then the job does without the promise of its bits, or fails. No chip's doing it is where
        updates are made on the CPU, which have the same bits on all."""
        office, keeper = self.office, stayed(self.world)[0]
        if self.world.on_cpu:
            return why
        if office.parted_by_chips(
            "updates", office.exactness.proofs.of_stayed(self.world, office.statuses)
        ):
            return ""
        bits = {keeper: "its own", node: "others"}
        chips = office.roster.chips(bits)
        if divergence.by_chip(bits, chips) is None:
            return why
        if office.exactness.required:
            return (
                f"its chip ({chips[node]}) computes other bits than {keeper}'s ({chips[keeper]}),"
                " and the job requires the same ([world] require_exact = true)"
            )
        office.parted_by_chips("gradients", bits)
        return ""

    def _halt(self) -> Rest | None:
        """Stop a job that shall be paused at a step whose checkpoint is consistent."""
        office, world, newest = self.office, self.world, self.office.newest
        halting, progress = office.halting, office.course.progress
        if not office.wishes.paused:
            halting.lift(world, progress)
        elif not halting.reached(world, progress):
            halting.order(world, progress, office.last_step)
        elif newest is not None and (newest.lineage, newest.step) == (world.lineage, halting.step):
            return Rest(newest.step, str(world.generation))
        return None

    @property
    def _rest_step(self) -> int:
        """At which the members rest, or will."""
        office = self.office
        halted = office.halting.reached(self.world, office.course.progress)
        return office.halting.step if halted else office.last_step

    def _leave_different(self) -> differing.Left | None:
        """Go back if states differ at which the members rest: no later one will show it."""
        office, world = self.office, self.world
        found = differing.disputed(office, world)
        return found or differing.contested(office, world, self._rest_step)

    def _write_again(self) -> ToFreezing | None:
        """Have the state at which the members rest written again if a shard of it is gone: no later
        checkpoint will take its place."""
        step = self._rest_step
        if not self.office.checkpoints.survey.lost(step):
            return None
        return ToFreezing(self.world.members, f"the state of step {step} is to be written again")

    def on_fault(self, blame: Blame, source: str | None) -> ToWaiting | None:
        """``source`` says where the culprit has its state from, if it is a member."""
        return None if source is None else ToWaiting("a member failed")

    def on_view(self, void: bool) -> None:
        """A world outlives a view that has all its members."""

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> Blames | None:
        """End a reduction that hangs, or trainers that stay in a phase for too long."""
        office, world = self.office, self.world
        if self._reduction_hangs():
            step, seconds = office.course.committed + 1, office.reduce_seconds()
            step = min(step, office.last_step)  # a world that starts there waits, too
            text = f"every member delivered step {step}, nothing moved for {seconds:.1f} s"
            office.course.patience.give_up(seconds)
            # Which of them keeps the ring from moving, nobody knows.
            return Blames((Blame(world.members[0], "hang", text, confidence="possible"),))
        for late in office.course.patience.late(office.ctx.now, world.generation):
            # Who waits for them is not late.
            why = (
                f"its trainer was in phase {late.phase} of step {late.step} for"
                f" {late.seconds:.1f} s; {late.limit_seconds:.1f} s are allowed"
            )
            hung = Hung(office.job, world.generation, why, late.seconds)
            office.ctx.send(late.node, hung)
        for node in office.growth.overdue():
            office.trust.bench(node, "it was prepared for too long")
        return None

    def _reduction_hangs(self) -> bool:
        office, course = self.office, self.office.course
        stands = office.ctx.now - course.moved_at
        return course.exchanges and stands >= office.reduce_seconds()

    def deadlines(self) -> list[float]:
        office = self.office
        return [
            office.course.moved_at + office.reduce_seconds(),
            *office.course.patience.deadlines(),
            *office.trust.benched.values(),
            *office.growth.deadlines(),
            *office.course.calls.deadlines(),
        ]
