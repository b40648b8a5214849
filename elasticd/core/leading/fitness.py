"""The nodes that one job goes on without, as its leader knows them, and when they are tried again.

Why a node is left out is judged elsewhere (phases/unfit.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from elasticd.core.context import Context
from elasticd.core.words.records import JobRecord
from elasticd.recovery import fitness
from elasticd.recovery.fitness import Entries, Unfit, clipped, merged
from elasticd.types import JobId, NodeId


@dataclass(slots=True)
class Fitness:
    """Of one job, while its driver lives; the node writes ``entries`` into the job's record."""

    ctx: Context
    job: JobId
    entries: Entries
    costly: bool = False
    """Who joins costs the others what they have computed: a plain job. So a node on which its
    script has failed is tried again when somebody asks for it, or its daemon is new."""
    served: frozenset[NodeId] = frozenset()
    """Where it runs: all on which its script is known to have come to its ``Run``."""
    since: dict[NodeId, tuple[int, float]] = field(default_factory=dict)
    """Who is left out: in which turn, and since when we know it."""
    failing_since: float = inf
    """Since when a script fails of which nobody knows whether it works anywhere."""

    @property
    def left_out(self) -> frozenset[NodeId]:
        """The nodes that the job goes on without."""
        return frozenset(fitness.left_out(self.entries))

    def turn_of(self, node: NodeId) -> int:
        """How often it was left out and tried again."""
        return fitness.turn_of(self.entries, node)

    def serve(self, nodes: Iterable[NodeId]) -> None:
        """Its script has come to its ``Run`` on these."""
        self.served = self.served.union(nodes)

    def recall(self, record: JobRecord) -> None:
        """It may know more: an operator, or the node's own new start, has it tried again, or an
        earlier leader has left it out."""
        self.serve(record.served)
        before, self.entries = self.left_out, merged(self.entries, record.unfit)
        for node in sorted(before - self.left_out):
            self._tell_again(node)

    def counted(self, found: Unfit) -> Unfit:
        """The same, with the turn that begins if its node is left out."""
        turn = self.turn_of(found.node) + 1
        foreseen = fitness.foreseen(self.entries, found.node)
        return replace(found, turn=turn, reason=clipped(found.reason), foreseen=foreseen)

    def leave_out(self, found: Unfit) -> None:
        """From now on, until it is tried again; it counts its turn itself."""
        found = self.counted(found)
        self.entries = merged(self.entries, (found,))
        self.ctx.emit("node_unfit", found.reason, self.job, culprit=found.node)

    def try_again(self, nodes: Iterable[NodeId]) -> None:
        """Let these take part again."""
        for node in sorted(set(nodes) & self.left_out):
            self.entries = merged(self.entries, [e.again() for e in self.entries if e.node == node])
            self._tell_again(node)

    def _tell_again(self, node: NodeId) -> None:
        self.ctx.emit("node_tried_again", f"{node} is tried again", self.job, culprit=node)

    def stumbled(self, step: int) -> list[NodeId]:
        """Whose script raised in the loop since that step was committed."""
        return [u.node for u in self.entries if u.out and u.looping and u.step >= step]

    def raised_behind(self, last: int) -> str:
        """What a script has raised when the job's ``last`` step was the newest committed one, or
        nothing. Where the job went further, and back, it was in the loop."""
        out = (u for u in self.entries if u.out and u.looping and u.step == last)
        return next((u.reason for u in out), "")

    def second_chances(self, step: int) -> frozenset[NodeId]:
        """Those that were left out before ``step`` was committed, or for one odd result: what was
        wrong may have passed, and without them the job would end."""
        return frozenset(
            u.node
            for u in self.entries
            if u.has_another_chance(step) and not (self.costly and u.looping)
        )

    @property
    def outnumbered(self) -> frozenset[NodeId]:
        """Those that were left out before their script came to its loop: if it is for what they
        have built, others that build the same may have come since."""
        return frozenset(u.node for u in self.entries if u.out and not (u.looping or u.unlike))

    @property
    def unlike(self) -> frozenset[NodeId]:
        """Those that were left out as they computed something else than who had stayed."""
        return frozenset(u.node for u in self.entries if u.out and u.unlike)

    def knows(self) -> None:
        """Of no script that fails is it open any more whether it works anywhere."""
        self.failing_since = inf

    def may_wait(self) -> bool:
        """Whether that can still be waited for."""
        self.failing_since = min(self.ctx.now, self.failing_since)
        return self.ctx.now - self.failing_since < self.ctx.timing.start_seconds

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Try again those whose pause is over."""
        self.try_again(node for node, at in self._ends() if at <= self.ctx.now)

    def deadlines(self) -> list[float]:
        waits = self.failing_since + self.ctx.timing.start_seconds
        return [*(at for _, at in self._ends()), waits]

    def _ends(self) -> list[tuple[NodeId, float]]:
        ends = []
        for entry in self.entries:
            if not entry.out:
                continue
            if self.since.get(entry.node, (0, 0.0))[0] != entry.turn:
                self.since[entry.node] = entry.turn, self.ctx.now
            pause = entry.pause_seconds(self.ctx.timing.unfit_seconds)
            if self.costly and entry.looping:
                pause = inf
            ends.append((entry.node, self.since[entry.node][1] + pause))
        return ends
