"""Kill real trainers and daemons at random moments while every step or two is checkpointed.

    python tests/checkpoint/soak.py --kills 500 --seed 7

A small job runs on three nodes. One trainer, every trainer, one node, or everything at once (a
power cut: what was never synced is then cut or taken away) is killed, over and over. After each
power cut the disks are judged: the newest announced checkpoint must be there, also without any one
node, and every byte of every final checkpoint must be right. What a restore starts from must be no
older than what was announced before, and the job's final digest that of an undisturbed run. The
last line is ``faults N violations M``; the exit status is 1 if M is not 0.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.types import JobId
from tests.checkpoint import judge
from tests.integration.cluster import ENDED, Cluster

NODES = 3
STEPS = 150
PACE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5
BLOWS = {"one trainer": 9, "every trainer": 7, "one node": 2, "power": 2}
"""How often each kind is drawn, of 20."""


@dataclass
class Tally:
    """What happened so far."""

    began: float = field(default_factory=time.monotonic)
    kills: Counter[str] = field(default_factory=Counter)
    restores: int = 0
    judged: int = 0
    torn: int = 0
    violations: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:8.1f}  {text}", flush=True)

    def violate(self, what: str) -> None:
        self.violations.append(what.splitlines()[0])
        self.say(f"VIOLATION {what}")

    def summary(self) -> None:
        """The last lines."""
        kinds = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.kills.items()))
        print(f"\nkilled: {kinds}")
        print(f"{self.restores} restores; disks judged {self.judged} times, {self.torn} torn files")
        for violation in self.violations:
            print(f"violation: {violation}")
        total = self.kills.total()
        print(f"faults {total} violations {len(self.violations)}", flush=True)


class Soak:
    """One cluster, one job after the other."""

    def __init__(self, cluster: Cluster, seed: str, tally: Tally, steps: int = STEPS) -> None:
        self._cluster, self._tally, self._steps = cluster, tally, steps
        self._dice = random.Random(seed)
        self._expected: str | None = None

    def draw(self, count: int) -> list[str]:
        """Blows at random."""
        return self._dice.choices(list(BLOWS), list(BLOWS.values()), k=count)

    def job(self, blows: Sequence[str]) -> None:
        """Run a job to its end; meanwhile one of ``blows`` after the other, while it runs."""
        cluster = self._cluster
        if self._expected is None:
            alone = cluster.submit("high.py", world__max=1, train__steps=self._steps)
            self._expected = str(cluster.wait_end(alone)["digest"])
        every = self._dice.choice((1, 2))
        job = cluster.submit(
            "high.py", job__args=["--pace-seconds", str(PACE_SECONDS)], train__steps=self._steps,
            checkpoint__every_steps=every, checkpoint__keep=self._dice.choice((1, 3)),
        )  # fmt: skip
        self._tally.say(f"{job}: a checkpoint every {every} steps")
        cluster.wait_step(job, 1)
        for blow in blows:
            if not self._kill(job, blow):
                break
        status = cluster.wait_end(job)
        events = cluster.events(job)
        if status["digest"] != self._expected:
            self._tally.violate(f"{job}: digest {status['digest']}, not {self._expected}")
        cluster.check_ledger(job, self._steps, cumulative=True)
        for text in stale_restores(events):
            self._tally.violate(f"{job}: {text}")
        restores = [e for e in events if e["kind"] == "world_formed" and e["rung"] == "restore"]
        self._tally.restores += len(restores)
        made = sum(e["kind"] == "checkpoint_committed" for e in events)
        self._tally.say(f"{job} ended with the same bits; {made} checkpoints, {len(restores)} used")

    def _kill(self, job: str, blow: str) -> bool:
        """A blow at a random moment, and wait for a step after it. False: the job has ended."""
        time.sleep(self._dice.uniform(0.0, LONGEST_PAUSE_SECONDS))
        status = self._cluster.status(job)
        if status["state"] in ENDED or status["step"] >= self._steps - 2:
            return False
        self._tally.kills[blow] += 1
        match blow:
            case "one trainer":
                self._cluster.kill_trainer(job, self._dice.randrange(NODES))
            case "every trainer":
                self._cluster.kill_trainers(job)
            case "one node":
                self._cluster.kill_node(self._dice.choice(self._cluster.nodes))
                self._cluster.revive()
            case _:
                self._power_cut(JobId(job))
        return self._wait_progress(job)

    def _power_cut(self, job: JobId) -> None:
        cluster, tally = self._cluster, self._tally
        announced = newest_announced(cluster.events(job))
        cluster.kill_nodes(cluster.nodes)
        tally.torn += judge.forget_unsynced(cluster.home, self._dice)
        tally.judged += 1
        for text in judge.problems(cluster.home, job, announced):
            tally.violate(f"{job}: {text}")
        cluster.revive()

    def _wait_progress(self, job: str) -> bool:
        """A world that was formed after the blow has committed a step."""
        before = self._cluster.status(job)
        step = before["step"]

        def look() -> dict[str, Any] | None:
            status = self._cluster.status(job)
            moved = status["state"] == "running" and status["step"] > step
            return status if moved or status["state"] in ENDED else None

        return self._cluster.wait_for(f"a step after {step}", look)["state"] not in ENDED


def newest_announced(events: list[dict[str, Any]]) -> int:
    """The newest step of a checkpoint that is called consistent; -1 if there is none."""
    return max((e["step"] for e in events if e["kind"] == "checkpoint_committed"), default=-1)


def stale_restores(events: list[dict[str, Any]]) -> list[str]:
    """Restores that started from less than had been announced, in words."""
    found, announced = [], -1
    for event in sorted(events, key=lambda event: event["time"]):
        if event["kind"] == "checkpoint_committed":
            announced = max(announced, event["step"])
            continue
        restored = event["kind"] == "world_formed" and event["rung"] == "restore"
        if restored and event["resume_step"] < announced:
            found.append(f"restored step {event['resume_step']}, though {announced} was made")
    return found


def main() -> int:
    """Kill until there were enough, the time is over or somebody interrupts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=86_400.0)
    parser.add_argument("--seed", default=secrets.token_hex(4), help="default: drawn and shown")
    given = parser.parse_args()
    tally = Tally()
    tally.say(f"seed {given.seed}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="elasticd-soak-") as folder:
        try:
            with Cluster(Path(folder), NODES) as cluster:
                soak = Soak(cluster, given.seed, tally)
                while (left := given.kills - tally.kills.total()) > 0:
                    if time.monotonic() - tally.began > given.seconds:
                        break
                    soak.job(soak.draw(left))
        except KeyboardInterrupt:
            tally.say("interrupted")
        except AssertionError as error:
            tally.violate(str(error))
    tally.summary()
    return 1 if tally.violations else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
