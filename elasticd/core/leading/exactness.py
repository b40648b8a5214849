"""Whether one job's results are the same bits wherever its grains are computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from elasticd.core.context import Context
from elasticd.core.leading.oncpu import OnCpu
from elasticd.core.leading.proofs import Proofs
from elasticd.core.words.records import JobRecord, ProbeDigests, World
from elasticd.core.words.worlds import MemberStatus, Sampled, Verdict
from elasticd.recovery.exactness import (
    FAST,
    FORGOTTEN,
    GRADIENTS_DIFFER,
    LAYOUTS_DIFFER,
    NO_REPEAT,
    UNTOLD,
    UPDATES_DIFFER,
    refusal,
    tells_of_bits,
    weightier,
)
from elasticd.recovery.origin import Origin, changed, origin_of
from elasticd.types import NO_TAG, JobId, NodeId, Tag

Probes = list[tuple[NodeId, ProbeDigests]]
Computed = Literal["gradients", "updates"]
Between = tuple[tuple[NodeId, str], tuple[NodeId, str]]
"""Two nodes, each with its chip."""


_BEGAN = "not all is as when the job began"
_ALIKE = (_BEGAN, FORGOTTEN)
"""Of members that are all alike."""
_POSITIONS = 16


@dataclass(slots=True)
class Exactness:
    """As its leader has found; once lost it does not come back.

    A job that reduces in no fixed order (``fast``) has none.
    """

    ctx: Context
    job: JobId
    fast: bool
    required: bool
    """The job is to fail where it is lost."""
    lost: str = ""
    """Why; the node writes it into the job's record."""
    samples: dict[int, tuple[NodeId, str]] = field(default_factory=dict)
    """Per position of the data who told first what is there; of the newest positions only."""
    judged: set[NodeId] = field(default_factory=set)
    """Members whose fresh processes were told the verdict."""
    on_cpu: OnCpu = field(default_factory=OnCpu)
    origin: Origin = ()
    """What the job's processes were built of when its first step was taken; if nobody knows, at
    the first one that somebody does know of."""
    began: Tag = NO_TAG
    """The generation that took that step; NO_TAG: not known, so the origin is a guess."""
    compared: bool = False
    """Whether the members of this world were compared with it."""
    proofs: Proofs = field(init=False)

    def __post_init__(self) -> None:
        self.proofs = Proofs(self.ctx, self.job)

    @property
    def kept(self) -> bool:
        """Whether all that was computed so far has the bits that were promised."""
        return not self.lost

    @property
    def promised(self) -> bool:
        """Whether the job's bits do not depend on its members, so that who joins can be compared
        with who has stayed."""
        alike = self.kept or (any(why in self.lost for why in _ALIKE) and not self.apart)
        return alike and not self.fast

    @property
    def apart(self) -> bool:
        """Whether members compute different bits, as their probes or their chips say: then states
        may differ though nobody computes wrongly."""
        return tells_of_bits(self.lost)

    @property
    def reason(self) -> str:
        """What people see of why it is not there; empty while it is."""
        return FAST if self.fast else self.lost

    @property
    def forbids(self) -> str:
        """Why the job has to fail, if it has to."""
        if not (self.required and self.reason):
            return ""
        return refusal(self.reason)

    def lose(self, why: str) -> None:
        """Sums are rounded in another way from now on, or states differ and nobody knows why. That
        members compute different bits is kept also if it was lost for something else."""
        if self.lost:
            if tells_of_bits(why) and not self.apart:
                self.lost = f"{self.lost}; {why}"
            return
        self.lost = why
        if not self.fast:
            self.ctx.emit("exact_lost", why, self.job)

    def part(self, what: Computed, between: Between) -> None:
        """Members compute different bits, and that is their chips' doing."""
        named = " and ".join(f"{node} ({chip})" for node, chip in between)
        self.lose(f"{GRADIENTS_DIFFER if what == 'gradients' else UPDATES_DIFFER} {named}")

    def keeps_apart(self, late: Sequence[NodeId], others: Sequence[NodeId]) -> None:
        """Updates were to be made on the CPU, which the builds of some members can't: all make them
        elsewhere."""
        named = " and ".join(text for text in (", ".join(late), ", ".join(others)) if text)
        self.lose(
            f"{UPDATES_DIFFER} {named}: they were made on the CPU, which the older version of"
            f" elasticd on {', '.join(late)} doesn't do"
        )

    def adopt(self, world: World) -> None:
        """What an earlier leader knew, if its job's record doesn't tell."""
        if not world.exact:
            self.lost = self.lost or UNTOLD

    def recall(self, record: JobRecord, ours: World | None) -> None:
        """The record may tell what an earlier leader knew; ``ours`` is the world that we lead."""
        self.on_cpu.recall(record.on_cpu, ours)
        self.lost = weightier(self.lost, record.inexact)
        if (record.began, record.origin) > (self.began, self.origin):
            self.began, self.origin = record.began, record.origin
            self.compared = False

    def heard(self, world: World, ours: World | None) -> None:
        """A member tells of this world, which an earlier leader may have made; ``ours`` is the one
        that we lead."""
        if why := self.on_cpu.enter(world, ours):
            self.lose(why)

    def judge_anew(self) -> None:
        """Processes are fresh, or what was told may have been lost."""
        self.judged.clear()
        self.compared = False
        self.proofs.judge_anew()

    def _fresh(self, world: World, statuses: Mapping[NodeId, MemberStatus]) -> Probes | None:
        """The probes of those who were not told a verdict yet; nothing before all have told
        theirs."""
        fresh: Probes = []
        for node in world.members:
            status = statuses.get(node)
            if status is None or status.trainer is None or status.world is None:
                return None
            if status.trainer.judged or node in self.judged:
                continue
            if status.trainer.probe is None or status.world.generation != world.generation:
                return None
            fresh.append((node, status.trainer.probe))
        return fresh

    def _moves(self, world: World, fresh: Probes) -> str:
        """Why updates are to be made on the CPU from the first one on, though ``world`` makes them
        elsewhere; empty if they aren't. Once one is made, or may have been, that is settled."""
        if self.fast or self.lost or world.on_cpu or world.step > 0:
            return ""
        why = agree_on_cpu(fresh) if len(fresh) == len(world.members) else ""
        if why:
            self.on_cpu.choose(world.lineage)
            self.ctx.emit("updates_on_cpu", why, self.job, world.generation.counter)
        return why

    def judge(self, world: World, statuses: Mapping[NodeId, MemberStatus]) -> str:
        """Tell the members whether their probes agree, before the first step of fresh processes.
        Or why ``world`` is left instead, for one that makes updates on the CPU."""
        fresh = self._fresh(world, statuses)
        if fresh is None:
            return ""
        if fresh and (why := self._moves(world, fresh)):
            return why
        same, reason = (False, FAST) if self.fast else verdict(fresh, on_cpu=world.on_cpu)
        if fresh and not same:
            self.lose(reason)
        # Also where all have stayed: an earlier leader may have died with what it knew.
        if fresh or not self.compared:
            self._compare_origin(world, statuses)
        if self.forbids:
            return ""
        for node, _ in fresh:
            self.judged.add(node)
            self.ctx.send(node, Verdict(world.job, world.generation, same, reason))
        return ""

    def _compare_origin(self, world: World, statuses: Mapping[NodeId, MemberStatus]) -> None:
        """All members are built alike, which was compared before; but are they built as those that
        have taken the steps up to here?"""
        trainers = (statuses[node].trainer for node in world.members)
        told = (t for t in trainers if t is not None and t.fingerprint)
        now = next((origin_of(each.fingerprint, each.samples) for each in told), ())
        self.compared = bool(now)
        if world.step == 0 and now:
            self.origin, self.began = now, world.generation
        elif not self.origin:
            self.origin = now
        elif other := changed(self.origin, now):
            self.lose(f"from step {world.step + 1} on {_BEGAN}: {other}")

    def sampled(self, node: NodeId, told: Sampled) -> None:
        """A member shows a sample: whoever has it in its share must have the same."""
        first, digest = self.samples.setdefault(told.position, (node, told.digest))
        if len(self.samples) > _POSITIONS:
            del self.samples[min(self.samples)]
        if digest != told.digest:
            name = f", {told.name}," if told.name else ""
            self.lose(
                f"the sample at position {told.position} of the data (step {told.step}){name} is "
                f"another on {node} than on {first}: data= must give every node the same samples"
            )


def agree_on_cpu(probes: Probes) -> str:
    """Why updates are to be made on the CPU: all else is the same on all nodes, and they are if
    CPUs make them; empty if that isn't so, or not known of each."""
    same, reason = verdict(probes)
    if (
        same
        or not reason.startswith(UPDATES_DIFFER)
        or len({probe.state for _, probe in probes}) > 1
    ):
        return ""
    if not all(probe.cpu_update for _, probe in probes) or not verdict(probes, on_cpu=True)[0]:
        return ""
    return f"{reason}, and have the same bits on the CPU of every node: they are made there"


def verdict(probes: Probes, *, on_cpu: bool = False) -> tuple[bool, str]:
    """Whether fresh members compute the same bits, and what differs. ``on_cpu``: of updates those
    count that were made on the CPU.

    Newcomers were prepared one by one, and only what was computed from one state can be compared.
    """
    for node, probe in probes:
        if not probe.repeats:
            return False, f"on {node} {NO_REPEAT}"
        if on_cpu and not probe.cpu_update:
            return False, f"{UPDATES_DIFFER} {node}, which makes none on the CPU, and the others"
    firsts: dict[str, tuple[NodeId, ProbeDigests]] = {}
    for node, probe in probes:
        first_node, first = firsts.setdefault(probe.state, (node, probe))
        for mine, theirs, differ in (
            (probe.gradient, first.gradient, GRADIENTS_DIFFER),
            (
                probe.cpu_update if on_cpu else probe.update,
                first.cpu_update if on_cpu else first.update,
                UPDATES_DIFFER,
            ),
            (probe.layout, first.layout, LAYOUTS_DIFFER),
        ):
            if mine != theirs:
                return False, f"{differ} {first_node} and {node}"
    return True, ""
