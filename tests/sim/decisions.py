"""What the control plane decides, to see that a change of the code changes none of it.

The first is said with the code as it was, the second with the code as it is. The third writes one
seed's log, to look for a difference.

    python tests/sim/decisions.py record before.json
    python tests/sim/decisions.py compare before.json
    python tests/sim/decisions.py show SEED > after.txt

A log has the views, worlds, steps, commits, faults, checkpoints, events and ends of a run, each
with its simulated time. It has no encodings and no class names, and random names are numbered in
the order in which they appear. ``record`` keeps a digest a seed. ``compare`` makes the same seeds
again and names those that differ; its last line is ``N seeds, M differ``, the exit code 1 if M > 0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

if not __package__:
    # A script belongs to no package, nor does it in a worker; what follows is imported as if.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    __package__ = "sim"

from elasticd.core.words import effects as e

from .cluster import Setup
from .run import Result, simulate
from .seeds import setup_of

SEEDS = 2000
_LARGE_EVERY, _MANY_EVERY, _STRICT_EVERY = 400, 20, 4
_LARGE_NODES, _MANY_NODES = 66, (6, 8, 12)
_RANDOM_NAME = re.compile(r"(?<![\w.])[0-9a-f]{6}(?:[0-9a-f]{2})?(?!\w)")


def setup_for(seed: int) -> Setup:
    """A seed's run: clusters of all sizes, many of them strict, some with large views."""
    if seed % _LARGE_EVERY == _LARGE_EVERY - 1:
        drawn = setup_of(seed, nodes=_LARGE_NODES + seed % 5)
        jobs = tuple(replace(j, world_max=j.world_max or 3, spare="none") for j in drawn.jobs)
        return replace(drawn, slowness=(), jobs=jobs)
    nodes = _MANY_NODES[seed % len(_MANY_NODES)] if seed % _MANY_EVERY == 1 else 0
    drawn = setup_of(seed, nodes=nodes)
    return replace(drawn, partition="strict") if seed % _STRICT_EVERY == 2 else drawn


def decisions(result: Result) -> list[str]:
    """The log of one run, a line each."""
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"#{len(names)}")

    lines = [_RANDOM_NAME.sub(named, line) for line in _lines(result)]
    return [*lines, f"{result.seconds:.6f} {result.problem or 'sound'}"]


def _lines(result: Result) -> Iterator[str]:
    for seconds, who, what in result.cluster.moments:
        match what:
            case e.Log():
                continue
            case e.Emit(job, kind, reason, generation, fields):
                told = json.dumps(fields, sort_keys=True, default=str)
                yield f"{seconds:.6f} {who} event {kind} {job} {generation} {reason} {told}"
            case _:
                yield f"{seconds:.6f} {who} {what}"
    for seconds, who, what in result.cluster.marks:
        yield f"{seconds:.6f} {who} {what}"
    for request, answer in sorted(result.cluster.answers.items()):
        yield f"answer {request} {json.dumps(answer, sort_keys=True, default=str)}"


def digest(seed: int) -> tuple[int, str]:
    lines = decisions(simulate(setup_for(seed)))
    return seed, hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()


def digests(seeds: Iterable[int], workers: int) -> Iterator[tuple[int, str]]:
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(digest, seeds, chunksize=4)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("do", choices=("record", "compare", "show"))
    parser.add_argument("what", help="the file of digests; of show the seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"so many (default: {SEEDS})")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    given = parser.parse_args()
    if given.do == "show":
        print("\n".join(decisions(simulate(setup_for(int(given.what))))))
        return 0
    path, seeds = Path(given.what), range(given.first, given.first + given.seeds)
    if given.do == "record":
        found = dict(sorted(digests(seeds, given.workers)))
        path.write_text(json.dumps(found, indent=0) + "\n")
        print(f"{len(found)} seeds recorded in {path}")
        return 0
    known = {int(seed): told for seed, told in json.loads(path.read_text()).items()}
    made = digests([seed for seed in seeds if seed in known], given.workers)
    count, differ = 0, []
    for seed, told in made:
        count += 1
        if told != known[seed]:
            differ.append(seed)
            print(f"seed {seed} differs: python tests/sim/decisions.py show {seed}", flush=True)
    print(f"{count} seeds, {len(differ)} differ")
    return 1 if differ or not count else 0


if __name__ == "__main__":
    sys.exit(main())
