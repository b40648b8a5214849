"""Which runs seeds mean, as a command line says it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from .cluster import Setup
from .seeds import setup_of

_LONG_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """As :func:`.seeds.setup_of` takes them; with ``every`` faults strike for long, so many seconds
    apart on average."""

    kinds: tuple[str, ...] | None = None
    nodes: int = 0
    every: float = 0.0

    @classmethod
    def of(cls, given: argparse.Namespace) -> Wanted:
        """What somebody gave for the arguments of :func:`add_to`."""
        kinds = tuple(filter(None, given.kinds.split(",")))
        return cls(kinds or None, given.nodes, given.every)

    @property
    def options(self) -> str:
        """The same for a command line, with a space before each."""
        said = {"kinds": ",".join(self.kinds or ()), "nodes": self.nodes, "every": self.every}
        return "".join(f" --{name} {value}" for name, value in said.items() if value)

    def setup(self, seed: int) -> Setup:
        drawn = setup_of(seed, self.kinds, self.nodes)
        if not self.every:
            return drawn
        return replace(drawn, fault_seconds=_LONG_SECONDS, mean_fault_seconds=self.every)


def add_to(parser: argparse.ArgumentParser) -> None:
    """The arguments that say which runs."""
    parser.add_argument(
        "--kinds",
        default="",
        help="only these kinds of faults, by comma; chips: on two kinds of machines",
    )
    parser.add_argument("--nodes", type=int, default=0, help="nodes of every run (default: varied)")
    parser.add_argument(
        "--every",
        type=float,
        default=0.0,
        help="seconds between two faults, on average, of every run (default: varied, and fewer)",
    )
