"""Replay one seed: ``python tests/sim/replay.py SEED [--shrink] [--verbose]``.

Prints the setup that the seed means, the verdict and the digest of the history, which is the same
each time. ``--shrink`` looks for the smallest run that fails alike and writes its transcript, with
the plan that makes it, to ``shrunk-SEED.txt``; ``--plan FILE`` replays such a file.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

if not __package__:
    # A script belongs to no package; what follows is imported as if it did.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    __package__ = "sim"

from .cluster import Setup
from .plans import read_plan, write_plan
from .run import Result, simulate
from .shrink import shrink
from .wanted import Wanted, add_to

_LAST_LINES = 60


def told(setup: Setup) -> str:
    """What a setup has that is not the default."""
    plain = Setup(seed=0)
    own = (
        f"{f.name}={getattr(setup, f.name)!r}"
        for f in fields(setup)
        if getattr(setup, f.name) != getattr(plain, f.name)
    )
    return "\n  ".join(["setup:", *own])


def verdict(result: Result) -> str:
    return f"{result.problem or 'no violation'}\ndigest {result.digest}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int, nargs="?", help="the seed to replay")
    parser.add_argument("--plan", type=Path, help="replay the plan at the top of this file instead")
    parser.add_argument("--shrink", action="store_true", help="look for the smallest such run")
    add_to(parser)
    parser.add_argument("--out", type=Path, help="where the shrunk transcript goes")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the transcript")
    given = parser.parse_args()
    if (given.seed is None) == (given.plan is None):
        parser.error("either a seed or --plan")
    if given.plan is not None:
        setup = read_plan(given.plan.read_text())
    else:
        setup = Wanted.of(given).setup(given.seed)
    print(told(setup))
    result = simulate(setup, given.verbose)
    if result.problem and not given.verbose:
        print("\n".join(result.transcript[-_LAST_LINES:]))
    print(verdict(result))
    if result.problem and given.shrink:
        small = shrink(result, say=print)
        path = given.out or Path(f"shrunk-{setup.seed}.txt")
        path.write_text(write_plan(small))
        print(f"\n{told(small.setup)}\n{verdict(small)}\nwritten to {path}")
    print(f"faults {result.faults.total()} violations {int(bool(result.problem))}")
    return 1 if result.problem else 0


if __name__ == "__main__":
    sys.exit(main())
