"""Makes a home with years of life: jobs that have ended, and their events.

python tests/benchmarks/aged_home.py DIR [--jobs 20000] [--events 1000000] [--origins 20000]
    [--long 0.05]

Daemons are started again and again: each start is an origin of events. Of some jobs that failed
the reasons are as long as they may be.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from elasticd.core.words.codec import to_plain
from elasticd.core.words.limits import MAX_REASON_LETTERS
from elasticd.core.words.records import JobRecord, JobState
from elasticd.recovery.fitness import LONGEST_REASON, Unfit
from elasticd.settings.job import JobSpec
from elasticd.shell.storage.journal import frame, frames
from elasticd.types import JobId, NodeId

BEGAN = 1_700_000_000.0
YEARS_SECONDS = 2 * 365 * 86_400.0
ENDS: tuple[JobState, ...] = ("finished", "finished", "finished", "failed", "cancelled")
KINDS = ("world_formed", "checkpoint_consistent", "fault_detected", "recovery_finished")
NODES = tuple(NodeId(f"mac-{n}") for n in range(4))
JOBS, EVENTS, ORIGINS, LONG = 20_000, 1_000_000, 20_000, 0.05
"""Of two years; and the share of jobs with reasons as long as they may be."""


def records(count: int, chance: random.Random, long: float) -> Iterator[JobRecord]:
    """Jobs that have ended, the oldest first."""
    for number in range(1, count + 1):
        name = chance.choice(("byte-lm", "vae", "lora", "digits"))
        spec = JobSpec.from_dict(
            {
                "job": {"name": name, "entrypoint": "train.py", "args": ["--seed", str(number)]},
                "world": {"min": 1},
                "batch": {"global": 64, "micro": 8},
                "train": {"steps": chance.choice((100, 1000, 5000))},
            }
        )
        state = chance.choice(ENDS)
        record = JobRecord(
            JobId(f"{name}-{number}-{chance.randrange(36**3):04x}"),
            number,
            spec.to_dict(),
            f"{chance.getrandbits(256):064x}",
            state,
            "ValueError: the loss is nan\n" * 8 if state == "failed" else None,
            step=100,
            digest=f"{chance.getrandbits(256):064x}" if state == "finished" else None,
            account={"generation": number, "loss": chance.random(), "recoveries": 2, "exact": True},
            turn=1,
            served=NODES,
        )
        yield _long(record) if chance.random() < long else record


def _long(record: JobRecord) -> JobRecord:
    """It failed, on some nodes before the others, with all that Python had to say."""
    line = "  File 'train.py', line 17, in loss\n"
    out = tuple(Unfit(node, 1, line * (LONGEST_REASON // len(line))) for node in NODES[1:])
    reason = line * (MAX_REASON_LETTERS // len(line))
    return replace(record, state="failed", reason=reason, unfit=out, digest=None)


def events(
    job: JobRecord, count: int, numbers: dict[str, int], began: float, starts: int
) -> Iterator[Any]:
    """What happened to one job, told by any of the nodes, each of which was started so often."""
    kinds = [KINDS[n % len(KINDS)] for n in range(count - 1)]
    for n, kind in enumerate([*kinds, f"job_{job.state}"]):
        start = int((began - BEGAN) * starts / YEARS_SECONDS)
        origin = f"{NODES[n % 4]}/{start:016x}"
        numbers[origin] = numbers.get(origin, 0) + 1
        yield {
            "time": began + n,
            "node": NODES[n % 4],
            "job": job.id,
            "generation": n,
            "kind": kind,
            "reason": f"step {n} was the last that every member had committed",
            "members": list(NODES),
            "origin": origin,
            "number": numbers[origin],
        }


def make(
    home: Path, jobs: int, all_events: int, origins: int = ORIGINS, long: float = LONG
) -> None:
    """Fill ``home``, which has no journal yet, with one as a compaction leaves it."""
    (home / "events").mkdir(parents=True)
    with (home / "journal").open("xb") as journal:
        journal.writelines(frames(_lived(home, jobs, all_events, origins, long)))


def _lived(
    home: Path, jobs: int, all_events: int, origins: int, long: float
) -> Iterator[dict[str, Any]]:
    """Each job as the journal has it, which its events are written before."""
    chance = random.Random(1)
    numbers: dict[str, int] = {}
    for record in records(jobs, chance, long):
        began = BEGAN + record.number * YEARS_SECONDS / jobs
        told = events(record, all_events // jobs, numbers, began, origins // 4)
        path = home / "events" / f"{record.id}.events"
        path.write_bytes(b"".join(frame([event]) for event in told))
        os.utime(path, (began, began))  # what was just written is read again, for notices
        yield {"kind": "job", "record": to_plain(record)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--origins", type=int, default=ORIGINS)
    parser.add_argument("--long", type=float, default=LONG)
    options = parser.parse_args()
    make(options.home, options.jobs, options.events, options.origins, options.long)


if __name__ == "__main__":
    main()
