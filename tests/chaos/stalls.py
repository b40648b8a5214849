"""What the daemons of a cluster have logged of stalls of their loops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_LINE = re.compile(r'event="the loop was stalled" seconds=([0-9.]+) where="?(.*?)"? unsaid=')


@dataclass(frozen=True, order=True)
class Longest:
    """Of all nodes and all runs of their daemons."""

    seconds: float = 0.0
    where: str = ""

    def __str__(self) -> str:
        if not self.where:
            return "no loop was stalled"
        return f"longest stall of a loop: {self.seconds:.3f} s, {self.where}"


def longest(home: Path) -> Longest:
    """The logs tell of daemons that have been killed since, too."""
    found = [Longest()]
    for path in sorted(home.glob("node-*/daemon.log")):
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [
            Longest(float(seconds), f"{path.parent.name}: {where}")
            for seconds, where in _LINE.findall(text)
        ]
    return max(found)
