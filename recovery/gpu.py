"""How often the GPU of one machine may fail in a job before that goes on without the machine."""

from __future__ import annotations

from dataclasses import dataclass, field

RESTARTS = 3
"""So many failures cost a new trainer and nothing else."""
WITHIN_SECONDS = 600.0
"""... if they fall into so short a time; older ones are forgotten."""


@dataclass(slots=True)
class GpuBudget:
    """Of one node and job."""

    failures: list[float] = field(default_factory=list)
    """When it failed."""

    def spend(self, now: float) -> str:
        """It has failed again. Why no trainer is to be started for that any more; empty: one is."""
        self.failures = [at for at in self.failures if now - at < WITHIN_SECONDS] + [now]
        if len(self.failures) <= RESTARTS:
            return ""
        minutes = WITHIN_SECONDS / 60
        return f"the GPU of this machine has failed {len(self.failures)} times in {minutes:g} min"

    def forget(self) -> None:
        """The node is tried again."""
        self.failures.clear()
