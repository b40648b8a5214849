"""Fuzz every port of a real daemon while its cluster trains.

    python tests/fuzz/soak.py --frames 100000 --seed 3

Nothing may come of it: no crash, no growth, no change of view, world or job, the same digest, and a
few lines in the log that say how many frames there were. The last line is
``faults N violations M``; the exit status is 1 if M is not 0. All ``--frames`` are sent, however
long that takes; then it goes on until ``--seconds`` are over.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.core.words.requests.looking import ShowStatus
from tests.chaos.stalls import longest
from tests.fuzz.fuzzer import MIB, Fuzzer, Health
from tests.integration.alone import compile_kernels
from tests.integration.cluster import Cluster

WARM_UP = 300
"""Frames after which caches are full and growth counts."""
MAX_GROWTH_BYTES = 16 * MIB
ROUND = 20_000
"""Frames while one job trains: with rounds a job of some size is under way all the time."""
SPARE_DESCRIPTORS = 8
MAX_LOG_BYTES_PER_MINUTE = 64 * 1024


def besieged(
    cluster: Cluster, expected: str, frames: int, seed: int, steps: int, pace_seconds: float = 0.02
) -> list[str]:
    """Send ``frames`` frames to the leader while a job trains; what is wrong afterwards, in words.

    ``expected`` is the job's digest in peace.
    """
    job = cluster.submit("high.py", job__args=["--pace-seconds", str(pace_seconds)],
                         train__steps=steps)  # fmt: skip
    cluster.wait_whole(job, 2)
    leader = cluster.view()["leader"]
    home = cluster.home / leader
    others = [cluster.home / node for node in cluster.nodes if node != leader]
    fuzzer = Fuzzer(home, seed, others)
    pid = cluster.processes(leader)[0].pid
    fuzzer.run(WARM_UP)
    before, state, began = Health.of(home, pid), _state(cluster, job), time.monotonic()
    fuzzer.run(frames - WARM_UP)
    minutes = 1 + (time.monotonic() - began) / 60
    wrong = [f"the daemon was stuck on {what}" for what in fuzzer.stuck]
    living = cluster.processes(leader)[0]
    if living.pid != pid or not living.alive:
        return [*wrong, "the daemon ended"]

    def settled() -> bool:
        return Health.of(home, pid).descriptors <= before.descriptors + SPARE_DESCRIPTORS

    with contextlib.suppress(AssertionError):  # judged below
        cluster.wait_for("connections to close", settled, seconds=40)
    after, now = Health.of(home, pid), _state(cluster, job)
    wrong += _growth(before, after, minutes)
    # A daemon that a busy machine does not let run is missed, and comes back behind the others.
    bears = {"view", "members", "recoveries"} if cluster.unheard(job) else set()
    wrong += [
        f"{key} was {state[key]!r}, is {now[key]!r}"
        for key in state.keys() - bears
        if state[key] != now[key]
    ]
    if "connection refused" not in (home / "daemon.log").read_text(errors="replace"):
        wrong.append("no line in the log says that anything was refused")
    cluster.hurry(job)
    status = cluster.wait_end(job, None)
    if (status["state"], status["digest"]) != ("finished", expected):
        wrong.append(f"{status['state']} with digest {status['digest']}, not {expected}")
    return wrong


def _state(cluster: Cluster, job: str) -> dict[str, Any]:
    """What only faults change. That a node is slow may be true, and moves shares: then the same
    members are a world anew."""
    return {
        "view": cluster.view()["members"],
        "jobs": len(cluster.client.request(ShowStatus())["jobs"]),
        "members": cluster.kinds(job, "world_formed")[-1]["members"],
        "recoveries": cluster.status(job)["recoveries"],
        "faults": [e["reason"] for e in cluster.broken(job)],
    }


def _growth(before: Health, after: Health, minutes: float) -> list[str]:
    wrong = []
    if after.resident_bytes - before.resident_bytes > MAX_GROWTH_BYTES:
        wrong.append(f"memory grew from {before.resident_bytes} to {after.resident_bytes} bytes")
    if after.descriptors > before.descriptors + SPARE_DESCRIPTORS:
        wrong.append(f"descriptors grew from {before.descriptors} to {after.descriptors}")
    if after.log_bytes - before.log_bytes > MAX_LOG_BYTES_PER_MINUTE * minutes:
        wrong.append(f"the log grew by {after.log_bytes - before.log_bytes} bytes")
    return wrong


def next_round(sent: int, wanted: int, *, late: bool) -> int:
    """How many frames are to be sent now; 0: it is done.

    Args:
        wanted: so many have to be sent in any case.
        late: the time is over in which more are sent.
    """
    if sent >= wanted:
        return 0 if late else ROUND
    return max(2 * WARM_UP, min(ROUND, wanted - sent))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=100_000, help="so many at least")
    parser.add_argument("--seconds", type=float, default=0.0, help="so long at least")
    parser.add_argument("--seed", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        kernels = compile_kernels(Path(folder) / "alone")
        with Cluster(Path(folder), 3, kernels) as cluster:
            wrong: list[str] = []
            sent, end = 0, time.monotonic() + given.seconds
            while count := next_round(sent, given.frames, late=time.monotonic() >= end):
                steps = max(60, count // 60)
                calm = cluster.submit("high.py", world__max=1, train__steps=steps)
                digest = cluster.wait_end(calm)["digest"]
                began = time.monotonic()
                wrong += besieged(cluster, digest, count, given.seed + sent, steps)
                sent += count
                rate = count / (time.monotonic() - began)
                print(f"{sent} frames sent, {rate:.0f} a second, {len(wrong)} wrong", flush=True)
        stall = longest(Path(folder))
    print(stall)
    for what in wrong:
        print(f"violation: {what}")
    print(f"faults {sent} violations {len(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
