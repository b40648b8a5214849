"""Inputs that kill whoever computes them: tell them from bad luck, and stop before every node died
of them again and again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from elasticd.recovery.signatures import FATAL_SIGNALS
from elasticd.types import NodeId

_LEAST_DEATHS = 3


@dataclass(slots=True)
class Deaths:
    """Ends of trainers by a signal of their own doing, since the last committed step."""

    step: int = -1
    by_signal: dict[int, list[NodeId]] = field(default_factory=dict)

    def took(self, node: NodeId, status: int, step: int) -> None:
        """The trainer of ``node`` ended with ``status`` while ``step`` was computed."""
        if step != self.step:
            self.step, self.by_signal = step, {}
        signal = -status if status < 0 else status - 128
        if signal in FATAL_SIGNALS:
            self.by_signal.setdefault(signal, []).append(node)

    def verdict(self, nodes: Collection[NodeId]) -> str:
        """Why the job can't go on, or nothing.

        The same signal ended a trainer on every one of ``nodes``, at the same step.
        """
        for signal, died in self.by_signal.items():
            if len(died) >= _LEAST_DEATHS and set(nodes) <= set(died):
                where = ", ".join(sorted(set(died)))
                return (
                    f"step {self.step} ends every trainer that computes it: signal {signal} on"
                    f" {where}, {len(died)} times without progress"
                )
        return ""
