"""What a node's disk and packages are to scripts that run there, and who may be blamed for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.worldlines import stayed
from elasticd.recovery import fitness
from elasticd.types import JobId, NodeId

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host

_CALM_STEPS = 3
"""Between two nodes whose script raises so many steps are committed: else it is the script's."""
_HEARD_SECONDS = 10.0
"""So late a leader may hear of what a script has met with."""


@dataclass(slots=True)
class Environment:
    """Of one node."""

    unmounted: bool = False
    """Whoever reads a sample raises, and so does who begins."""
    other: bool = False
    """What a script builds that begins here is not what it builds elsewhere."""

    @property
    def bad(self) -> bool:
        return self.unmounted or self.other

    def fingerprint(self, usual: dict[str, str]) -> dict[str, str]:
        return {**usual, "dataset": "900"} if self.other else usual


@dataclass(slots=True)
class Environments:
    """What came of bad ones in a run."""

    cluster: Cluster
    raised: set[NodeId] = field(default_factory=set)
    differed: set[NodeId] = field(default_factory=set)
    lonely: set[JobId] = field(default_factory=set)
    """Jobs that were ended by a leader that saw too few good nodes."""
    ignorant: set[JobId] = field(default_factory=set)
    """Those of them whose leader's build doesn't keep where a job has run."""
    dismissed: set[JobId] = field(default_factory=set)
    """Those of them whose leader was told by an operator that the good nodes are gone for good."""
    met_at: dict[NodeId, float] = field(default_factory=dict)
    """When a script last met with a bad one there."""
    seen: int = -_CALM_STEPS
    """The newest step when a script last met with a bad one."""

    def met(self, host: Host, among: set[NodeId]) -> None:
        among.add(host.name)
        self.met_at[host.name] = self.cluster.now
        self.seen = max(self.seen, self._newest())

    def _newest(self) -> int:
        commits = self.cluster.checkers.commits.values()
        return max((step for c in commits for _, step in c.times), default=0)

    @property
    def calm(self) -> bool:
        """Whether another node may become bad without anybody having to think that the script is:
        none is, the job has gone on since, and enough good ones are left."""
        specs = self.cluster.specs.values()
        hosts = [host for host in self.cluster.hosts.values() if self._trains(host)]
        wanted = [spec.world.min for spec in specs if spec.world.min <= len(hosts)]
        least = max(wanted, default=1)
        bad = any(host.environment.bad for host in hosts)
        out = {
            node
            for host in hosts
            if host.node is not None
            for record in host.node.records.values()
            if not record.ended
            for node in fitness.left_out(record.unfit)
        }
        enough = len(hosts) - len(out) > least
        return not bad and enough and self._newest() >= self.seen + _CALM_STEPS

    def _trains(self, host: Host) -> bool:
        return self.cluster.drawn_role(host.name) == "train"

    def _was_bad(self, host: Host) -> bool:
        """It is bad, or was when a script met with it, of which a leader that was stopped hears
        late."""
        met = self.met_at.get(host.name, -_HEARD_SECONDS)
        return host.environment.bad or self.cluster.now < met + _HEARD_SECONDS

    # --- who is blamed ----------------------------------------------------------------------------

    def told(self, host: Host, emit: e.Emit, view: tuple[NodeId, ...]) -> str:
        """Why a leader of ``view`` may not say so, or nothing."""
        if emit.kind == "job_failed" and emit.job is not None:
            assert host.node is not None
            out = (
                fitness.left_out(host.node.records[emit.job].unfit).keys()
                | host.node.tables.nodes.unwanted()
            )
            hosts = [self.cluster.hosts[name] for name in view if name not in out]
            here = [each for each in hosts if each.node is not None and self._trains(each)]
            good = [each for each in here if not self._was_bad(each)]
            if len(good) < self.cluster.specs[emit.job].world.min:
                self.lonely.add(emit.job)
                if "served" in host.release.lacks.get(JobRecord, ()):
                    self.ignorant.add(emit.job)
                gone = host.node.tables.nodes.gone
                there = {h.name for h in self.cluster.hosts.values() if not h.environment.bad}
                left = there - gone - set(out)
                if there & gone and len(left) < self.cluster.specs[emit.job].world.min:
                    self.dismissed.add(emit.job)
        if emit.kind != "node_unfit":
            return ""
        node, reason = emit.fields["culprit"], emit.reason
        if "outside of run.state" in reason and emit.job is not None:
            shape = self.cluster.shapes[emit.job]
            keeps = shape.outside or self.cluster.faults["diverge"]
            keeps = keeps or (shape.by_rank and self._has_one_witness(emit.job))
            return "" if keeps else f"{node} is left out, and nothing differs: {reason}"
        if "every rank must build" in reason:
            return "" if self.differed else f"{node} is left out though all are alike: {reason}"
        return "" if node in self.raised else f"{node} is left out and never failed: {reason}"

    def _has_one_witness(self, job: JobId) -> bool:
        """Whether in the newest world only one member has stayed, so that nobody can tell whether
        all differ."""
        worlds = [w for w in self.cluster.checkers.forms.values() if w.job == job]
        return len(stayed(max(worlds, key=lambda world: world.generation))) < 2

    def formed(self, host: Host, world: World) -> str:
        """A leader made a world."""
        record = host.node.records[world.job] if host.node is not None else None
        there = set(world.members) & (
            fitness.left_out(record.unfit).keys() if record is not None else set()
        )
        return f"{world.generation} has {sorted(there)}, which are left out" if there else ""

    def excuses(self, job: JobId, formed: bool) -> bool:
        """Whether a job may fail because of them: who sees too few good nodes, before any world was
        formed, knows of no better ones; nor does an early build, of none that it doesn't see; nor
        is there one where the script leaves some out, or an operator has said of too many good
        ones that they never come back."""
        early = not formed or job in self.ignorant or bool(self.cluster.shapes[job].outside)
        early = early or job in self.dismissed
        return job in self.lonely and bool(self.raised) and early
