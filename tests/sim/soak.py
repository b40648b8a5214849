"""Run the simulator over many seeds: ``python tests/sim/soak.py --seconds 60``.

The last line is ``faults N violations M``; the exit code is 1 if M > 0. A failing seed is printed
with the command that replays it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    # A script belongs to no package; what follows is imported as if it did.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = "sim"

from .run import Result, simulate
from .seeds import setup_of

_PROGRESS_SECONDS = 10.0


def run(seed: int, kinds: tuple[str, ...], verbose: bool = False) -> Result:
    return simulate(setup_of(seed, kinds) if kinds else setup_of(seed), verbose)


def soak(first: int, seconds: float, kinds: tuple[str, ...]) -> tuple[int, int]:
    """(faults, violations) of as many seeds as fit into ``seconds`` of real time."""
    end, said = time.monotonic() + seconds, time.monotonic()
    seed, faults, violations = first, 0, 0
    while time.monotonic() < end:
        result = run(seed, kinds)
        faults += result.faults
        if result.problem:
            violations += 1
            replay = f"python tests/sim/soak.py --seed {seed} -v"
            print(f"seed {seed}: {result.problem}\n    replay: {replay}", flush=True)
        seed += 1
        if time.monotonic() - said > _PROGRESS_SECONDS:
            said = time.monotonic()
            print(f"{seed - first} seeds, {faults} faults", flush=True)
    return faults, violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="real time to spend")
    parser.add_argument("--seed", type=int, help="replay this one seed")
    parser.add_argument("--first", type=int, help="the first seed (default: from the clock)")
    parser.add_argument("--kinds", default="", help="only these kinds of faults, by comma")
    parser.add_argument("-v", "--verbose", action="store_true", help="print the transcript")
    given = parser.parse_args()
    kinds = tuple(filter(None, given.kinds.split(",")))
    if given.seed is not None:
        result = run(given.seed, kinds, given.verbose)
        print(result.setup)
        print(result.problem or "no violation", f"digest {result.digest}")
        faults, violations = result.faults, int(bool(result.problem))
    else:
        first = given.first if given.first is not None else int(time.time()) * 1000
        faults, violations = soak(first, given.seconds, kinds)
    print(f"faults {faults} violations {violations}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
