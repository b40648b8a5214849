"""A step that kills whoever computes it, or does so on one node only, or while memory is short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticd.core.words.records import JobRecord, World
from elasticd.recovery.poison import OLDER
from elasticd.recovery.signatures import LastMemory
from elasticd.types import JobId, Lineage, NodeId, Point

from .process import SIGKILL
from .threads import Until, Wait

if TYPE_CHECKING:
    from .cluster import Cluster
    from .host import Host
    from .trainer import Trainer

_FULL = LastMemory(available_bytes=1 << 20, total_bytes=1 << 34)
_AWAY = LastMemory(waited_seconds=20.0)
_SHORT = "RuntimeError: [malloc] Unable to allocate 999999999 bytes. [room 10000 bytes]"
_HUGE = "RuntimeError: [malloc] Unable to allocate 999999999999 bytes. [room 8589934592 bytes]"
_DEADLY = ("poison", "trainer", "trainers", "hang", "oom", "stop_trainer")
SECONDS = 900.0
"""So long it may take until a job ends for it."""
_AWAY_SECONDS = (1.0, 4.0, 15.0)
"""So long a machine may be down that has computed it."""
_MOST_FALLS = 120
"""So often a step may take a machine down until its job ends, or all faults do."""


@dataclass(frozen=True, slots=True)
class Poison:
    """Of every job of a run."""

    step: int
    how: str
    """One of kill, crash, hang, memory, node: the whole machine goes down, and comes back."""
    nodes: tuple[int, ...]
    """Where it does that."""
    short: bool = False
    """Memory is short there meanwhile; of a hang: a file server is away."""
    whole: bool = False
    """Whatever is computed of the step, be it nothing; else the batch's first grain."""

    def lasts(self, cluster: Cluster) -> bool:
        """Whether it is to end the job; else it passes when faults do. Where all machines go down
        at once nobody is left to say at which step, and builds of before don't tell later leaders
        what was tried."""
        setup, names = cluster.setup, list(cluster.hosts)
        train = {n for n, name in enumerate(names) if cluster.drawn_role(name) == "train"}
        # A build that knows no roles trains everywhere.
        may = {*range(len(names))} if setup.releases else train
        told = self.how != "node" or not (self.whole or setup.releases)
        return len(train) > 1 and may <= {*self.nodes} and not self.short and told


@dataclass(slots=True)
class Poisons:
    """What came of it in a run."""

    cluster: Cluster
    over: bool = False
    left: set[Lineage] = field(default_factory=set)
    """Histories that were gone back behind."""
    died: dict[JobId, set[NodeId]] = field(default_factory=dict)
    """Where."""
    falls: Counter[JobId] = field(default_factory=Counter)
    """How often it took a machine down."""
    hung: set[str] = field(default_factory=set)
    """Trainers whose threads hang for it."""

    def pass_by(self) -> None:
        """Faults are over."""
        poison = self.cluster.setup.poison
        self.over = poison is not None and not poison.lasts(self.cluster)

    def meets(self, trainer: Trainer, step: int, grain: int | None) -> Generator[Wait, None, bool]:
        """``trainer`` is about to compute a grain, or nothing, of that step. Whether memory ran
        out in it."""
        poison, host = self.cluster.setup.poison, trainer.host
        if poison is None or self.over or step != poison.step:
            return False
        here = int(host.name[1:]) in poison.nodes
        computes = grain is not None or poison.how != "memory"
        if not here or not (grain == 0 or (poison.whole and computes)):
            return False
        self.died.setdefault(trainer.job, set()).add(host.name)
        self.cluster.faults["poison"] += 1
        self.cluster.say("poison", f"{poison.how} of {trainer.name} at step {step}")
        if poison.how == "memory":
            with trainer.turn() as protocol:
                protocol.out_of_memory(_SHORT if poison.short else _HUGE)
            return True
        if poison.how == "node":
            self.falls[trainer.job] += 1
            self._take_down(host)
        elif poison.how != "hang":
            trainer.memory = _FULL if poison.short else None
            trainer.die(SIGKILL if poison.how == "kill" else -11)
        else:
            self.hung.add(trainer.name)
            trainer.memory = _AWAY if poison.short else None
        yield Until(lambda: False)
        return False

    def _take_down(self, host: Host) -> None:
        away = self.cluster.chances.of("poison", host.name).choice(_AWAY_SECONDS)
        self.cluster.after(0.0, host.crash)
        self.cluster.after(away, host.start)

    def ended(self, record: JobRecord) -> str:
        """Why a job may not have ended in that way, or nothing."""
        poison, reason = self.cluster.setup.poison, record.reason or ""
        called = "ends every trainer that computes it" in reason
        if poison is None:
            return f"{record.id} failed for a poison that isn't there: {reason}" if called else ""
        if (falls := self.falls[record.id]) > _MOST_FALLS:
            return f"machines went down for {record.id} {falls} times"
        nodes = self.died.get(record.id, set())
        if called and (poison.short or len(nodes) < 2):
            return (
                f"a death on {sorted(nodes)} alone, or for want of memory, is no poison: {reason}"
            )
        if called and f"step {poison.step} ends" not in reason:
            return f"another step is blamed: {reason}"
        lasts = poison.lasts(self.cluster)
        if (
            lasts
            and record.state == "finished"
            and record.step >= poison.step  # its script may have stopped before
        ):
            return f"{record.id} has finished, though nobody outlives step {poison.step}"
        return ""

    def goes_back(self, world: World, held: Point) -> bool:
        """Whether a world may start from an older state than is held, since a step kills."""
        deaths = sum(self.cluster.faults[kind] for kind in _DEADLY)
        if "may be why that kills" in world.reason and deaths >= OLDER:
            self.left.add(held.lineage)
        return held.lineage in self.left

    def excuses(self, record: JobRecord) -> bool:
        """Whether a job may have failed for it."""
        return "ends every trainer that computes it" in (record.reason or "")
