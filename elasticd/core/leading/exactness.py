"""Whether one job's results are the same bits wherever its grains are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from elasticd.core.context import Context
from elasticd.core.leading.proofs import Proofs
from elasticd.core.words.records import ProbeDigests, World
from elasticd.core.words.worlds import MemberStatus, Sampled, Verdict
from elasticd.recovery.exactness import FAST, NO_REPEAT, refusal
from elasticd.types import JobId, NodeId

Probes = list[tuple[NodeId, ProbeDigests]]
Computed = Literal["gradients", "updates"]
Between = tuple[tuple[NodeId, str], tuple[NodeId, str]]
"""Two nodes, each with its chip."""


_GRADIENTS = "gradients differ between"
_UPDATES = "updates differ between"
_LAYOUTS = "state leaves differ between"
_PROBED = (NO_REPEAT, _GRADIENTS, _UPDATES, _LAYOUTS)
_POSITIONS = 16
_UNTOLD = "a world of an earlier leader was not exact; no record says why"


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
    parted: bool = False
    """Members were seen to compute different bits, after it was lost for something else."""
    judged: set[NodeId] = field(default_factory=set)
    """Members whose fresh processes were told the verdict."""
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
        return self.kept and not self.fast

    @property
    def apart(self) -> bool:
        """Whether members compute different bits, as their probes or their chips say: then states
        may differ though nobody computes wrongly."""
        return self.parted or any(word in self.lost for word in _PROBED)

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
        """Sums are rounded in another way from now on, or states differ and nobody knows why."""
        if self.lost:
            return
        self.lost = why
        if not self.fast:
            self.ctx.emit("exact_lost", why, self.job)

    def part(self, what: Computed, between: Between) -> None:
        """Members compute different bits, and that is their chips' doing."""
        named = " and ".join(f"{node} ({chip})" for node, chip in between)
        self.lose(f"{_GRADIENTS if what == 'gradients' else _UPDATES} {named}")
        self.parted = True

    def adopt(self, world: World) -> None:
        """What an earlier leader knew, if its job's record doesn't tell."""
        if not world.exact:
            self.lost = self.lost or _UNTOLD

    def judge_anew(self) -> None:
        """Processes are fresh, or what was told may have been lost."""
        self.judged.clear()
        self.proofs.judge_anew()

    def judge(self, world: World, statuses: Mapping[NodeId, MemberStatus]) -> None:
        """Tell the members whether their probes agree, before the first step of fresh processes."""
        fresh: Probes = []
        for node in world.members:
            status = statuses.get(node)
            if status is None or status.trainer is None or status.world is None:
                return
            if status.trainer.judged or node in self.judged:
                continue
            if status.trainer.probe is None or status.world.generation != world.generation:
                return
            fresh.append((node, status.trainer.probe))
        if not fresh:
            return
        same, reason = (False, FAST) if self.fast else verdict(fresh)
        if not same:
            self.lose(reason)
            self.parted = self.parted or any(word in reason for word in _PROBED)
        if self.forbids:
            return
        for node, _ in fresh:
            self.judged.add(node)
            self.ctx.send(node, Verdict(world.job, world.generation, same, reason))

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


def verdict(probes: Probes) -> tuple[bool, str]:
    """Whether fresh members compute the same bits, and what differs.

    Newcomers were prepared one by one, and only what was computed from one state can be compared.
    """
    for node, probe in probes:
        if not probe.repeats:
            return False, f"on {node} {NO_REPEAT}"
    firsts: dict[str, tuple[NodeId, ProbeDigests]] = {}
    for node, probe in probes:
        first_node, first = firsts.setdefault(probe.state, (node, probe))
        for mine, theirs, differ in (
            (probe.gradient, first.gradient, _GRADIENTS),
            (probe.update, first.update, _UPDATES),
            (probe.layout, first.layout, _LAYOUTS),
        ):
            if mine != theirs:
                return False, f"{differ} {first_node} and {node}"
    return True, ""
