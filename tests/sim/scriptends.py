"""Scripts that come to their ends: a finished job says where one was not seen to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from elasticd.core.words import effects as e
from elasticd.core.words.records import World
from elasticd.types import JobId, NodeId

_SAID = "not seen to come to its end"


@dataclass(slots=True)
class ScriptEnds:
    """Those of one run."""

    come: set[tuple[JobId, NodeId]] = field(default_factory=set)

    def come_to(self, job: JobId, node: NodeId) -> None:
        """A script has come to its end there."""
        self.come.add((job, node))

    def emitted(self, emit: e.Emit, worlds: Iterable[World]) -> str:
        """What is wrong with an event of a job, or nothing."""
        if emit.kind != "job_finished" or _SAID in emit.reason:
            return ""
        last = [w for w in worlds if (w.job, w.generation.counter) == (emit.job, emit.generation)]
        # Each side of a cut may have one of that number.
        sides = [[n for n in w.members if (w.job, n) not in self.come] for w in last]
        if sides and all(sides):
            return f"{emit.job} finished, and its script never ended on {sides}"
        return ""
