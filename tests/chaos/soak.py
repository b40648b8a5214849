"""Break a cluster of real daemons at random for a given time, and judge every job that it ran.

    python tests/chaos/soak.py --seconds 1800 --seed 7 --faults 200 --generations 200

Each job is one of the small ones of tests/integration/jobs. Trainers, reducers, daemons and nodes
are killed, stopped and paused while it runs, links are cut, cables pulled, clusters parted, disks
filled, memory and data taken away: some at once, some during a recovery, some for good and some to
come back, now and then all of them. Other jobs are submitted behind it, held, cancelled, or made
for more nodes than there are; each has to end as was asked. As root on Linux the nodes have
networks and disks of their own. Afterwards its digest must be that of an undisturbed run, and so
must what it wrote to run.open; every sample of every step must have been used exactly once, and no
committed step lost unless nobody was left who held it or two sides went on. Counted is what was
seen to strike while the job ran: what lived when it was killed, cuts that met connections, memory
that was told to be short. The last line is ``faults N violations M``; the exit status is 1 if M is
not 0. ``--seed S --job N`` runs one job again, if ``--script`` is as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import random
import secrets
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.core.words.requests.jobs import CancelJob
from elasticd.errors import ElasticdError
from elasticd.types import JobId
from tests.chaos import schedule, strikes
from tests.chaos.stalls import Longest, longest
from tests.chaos.traffic import QUEUED_STEPS, Traffic
from tests.integration.alone import compile_kernels
from tests.integration.cluster import Cluster
from tests.integration.netns import NetCluster, why_not

NODES = 4
DISK_MIB = 256
WARM_GENERATIONS = 50
GENERATIONS_GROWTH_BYTES = 16 << 20
DAEMON_GROWTH_BYTES = 48 << 20
"""Since the end of the first job that it saw."""
DAEMON_FDS = 256
"""A daemon with more open descriptors between two jobs leaks them."""


@dataclass(frozen=True)
class Script:
    """One of tests/integration/jobs, and how long its jobs are."""

    name: str
    steps: int = 60
    most_faults: int = 5
    """In one job."""
    cumulative: bool = True
    """Whether each line of its ledger tells of all steps so far."""
    log: str = ""
    """What it opens with run.open."""


SCRIPTS = (
    Script("high.py"),
    Script("low.py", cumulative=False),
    Script("body.py", steps=300, most_faults=15, log="body.csv"),
)
QUEUED = Script("high.py", steps=QUEUED_STEPS)
"""What is submitted while one of those runs."""


@dataclass(frozen=True)
class Outcome:
    """What a job has come to."""

    digest: str
    log: str


@dataclass
class Tally:
    """What happened so far."""

    began: float = field(default_factory=time.monotonic)
    jobs: int = 0
    queued: int = 0
    """Jobs that were submitted behind those."""
    struck: dict[str, Counter[str]] = field(default_factory=dict)
    """Faults of each kind that struck, by script."""
    violations: list[str] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Per rung, how long each recovery took."""
    stall: Longest = field(default_factory=Longest)

    @property
    def faults(self) -> int:
        return sum(counter.total() for counter in self.struck.values())

    def count(self, script: str, kind: str) -> None:
        self.struck.setdefault(script, Counter())[kind] += 1

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:8.1f}  {text}", flush=True)

    def violate(self, what: str) -> None:
        self.violations.append(what.splitlines()[0])
        self.say(f"VIOLATION {what}")

    def summary(self) -> None:
        """The last lines."""
        seconds_in_all = time.monotonic() - self.began
        print(f"\n{self.jobs} jobs, and {self.queued} behind them, in {seconds_in_all:.0f} s")
        for rung, seconds in sorted(self.seconds.items()):
            figures = min(seconds), statistics.median(seconds), max(seconds)
            shown = ", ".join(f"{figure:.2f}" for figure in figures)
            print(f"{len(seconds):5d} x {rung:8s} min, median, max: {shown} s")
        for script, counter in sorted(self.struck.items()):
            shown = ", ".join(f"{count} x {kind}" for kind, count in sorted(counter.items()))
            spared = ", ".join(kind for kind in schedule.EVERYTHING if not counter[kind])
            print(f"{script}, {counter.total()}: {shown}; never: {spared or 'nothing'}")
        print(self.stall)
        for violation in self.violations:
            print(f"violation: {violation}")
        print(f"faults {self.faults} violations {len(self.violations)}", flush=True)


@dataclass(frozen=True)
class Sample:
    """What a daemon and its trainers hold."""

    descriptors: int
    resident_bytes: int


class Soak:
    """One cluster, and another when a violation has left it unusable."""

    def __init__(
        self, folder: Path, seed: str, tally: Tally, scripts: Sequence[Script] = SCRIPTS
    ) -> None:
        self._folder, self._seed, self._tally, self._scripts = folder, seed, tally, scripts
        self._kernels = compile_kernels(folder / "alone")
        self._clusters = 0
        self._undisturbed: dict[Script, Outcome] = {}
        self._sizes: dict[int, int] = {}
        self._revival: strikes.Revival | None = None
        self.cluster: Cluster | None = None

    def undisturbed(self, script: Script) -> Outcome:
        """In a world of one."""
        if script not in self._undisturbed:
            cluster = self.ready()
            job = cluster.submit(script.name, world__max=1, train__steps=script.steps)
            digest = cluster.wait_end(job)["digest"]
            self._undisturbed[script] = Outcome(digest, self._log(cluster, job, script))
            self._tally.say(f"undisturbed {script.name}: {digest}")
        return self._undisturbed[script]

    def _log(self, cluster: Cluster, job: str, script: Script) -> str:
        """What the job has written to run.open, as people are given it."""
        if not script.log:
            return ""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            cluster.command("outputs", job, "--out", Path(folder, "outputs"))
            return Path(folder, "outputs", script.log).read_text()

    def ready(self) -> Cluster:
        """A cluster whose nodes all live."""
        if self.cluster is None:
            self._clusters += 1
            folder = self._folder / f"{self._clusters}"
            if why_not():
                self.cluster = Cluster(folder, NODES, self._kernels)
            else:
                self.cluster = NetCluster(folder, NODES, self._kernels, disk_mib=DISK_MIB)
        if len(self.cluster.living()) < NODES:
            self.cluster.up()
        return self.cluster

    def close(self) -> None:
        """End the cluster; what it leaves is a violation."""
        if self._revival is not None:
            with contextlib.suppress(AssertionError):
                self._revival.join()  # or it would start nodes behind our back
        if self.cluster is not None:
            for left in self.cluster.down():
                self._tally.violate(f"left behind: {left}")
            self._tally.stall = max(self._tally.stall, longest(self.cluster.home))
            if isinstance(self.cluster, NetCluster):
                self.cluster.unmount()
            self.cluster = None

    def job(self) -> None:
        """Run and break one job."""
        self._tally.jobs += 1
        name = f"{self._seed}/{self._tally.jobs}"
        dice = random.Random(name)
        script = dice.choice(self._scripts)
        expected = self.undisturbed(script)
        cluster = self.ready()
        pace = dice.choice((0.002, 0.005, 0.01))
        job = cluster.submit(
            script.name, job__args=["--pace-seconds", str(pace)], train__steps=script.steps,
            recovery__spare=dice.choice(("script", "script", "interpreter", "none")),
        )  # fmt: skip
        count = dice.randint(1, script.most_faults)
        faults = schedule.draw(dice, script.steps, count, harsh=True)
        self._tally.say(f"job {name} {script.name} {job}: {schedule.shown(faults)}")
        revival = self._revival = strikes.Revival(cluster)
        struck: list[strikes.Struck] = []
        traffic = Traffic(cluster, random.Random(f"{name} traffic"))
        try:
            try:
                self._break(cluster, job, faults, revival, struck)
                same = self._judge(cluster, job, script, expected, faults)
            finally:
                traffic.stop()
            strikes.undo(cluster, revival)
            self._settle(traffic)
            self._compare(expected.log, self._log(cluster, job, script), same)
            self._check_processes(cluster)
        except AssertionError as error:
            self._failed(cluster, job, error)
            self._count(cluster, job, script, struck)
            self.close()
        else:
            self._count(cluster, job, script, struck)

    def _settle(self, traffic: Traffic) -> None:
        """What was submitted meanwhile ends, too."""
        for why in traffic.refused:
            self._tally.say(f"not submitted: {why}")
        if told := traffic.settle(lambda: self.undisturbed(QUEUED).digest):
            self._tally.queued += len(traffic.taken)
            self._tally.say(f"the queue is empty after {told}")

    def _break(
        self,
        cluster: Cluster,
        job: str,
        faults: list[schedule.Fault],
        revival: strikes.Revival,
        struck: list[strikes.Struck],
    ) -> None:
        for fault in faults:
            done = strikes.inflict(cluster, job, fault, revival)
            struck += done
            if done:
                self._tally.say(f"step {fault.step}: {', '.join(map(str, done))}")

    def _count(
        self, cluster: Cluster, job: str, script: Script, struck: list[strikes.Struck]
    ) -> None:
        """Only what is seen to have hit the job while it ran."""
        events: list[dict[str, Any]] = []
        with contextlib.suppress(ElasticdError):
            events = cluster.events(job)
        for one in struck:
            if one.hit(events):
                self._tally.count(script.name, one.kind)
            else:
                self._tally.say(f"did not strike: {one}")

    def _judge(
        self,
        cluster: Cluster,
        job: str,
        script: Script,
        expected: Outcome,
        faults: list[schedule.Fault],
    ) -> bool:
        """Whether its figures must be the undisturbed run's."""
        status = cluster.wait_end(job)
        events = cluster.events(job)
        for event in events:
            if event["kind"] == "recovery_finished":
                self._tally.seconds.setdefault(event["rung"], []).append(event["seconds"])
                self._tally.say(
                    f"recovered by {event['rung']} in {event['seconds']:.2f} s"
                    f" at step {event['resume_step']}, lost {event['lost_steps']}"
                )
        same = not any(event["kind"] == "batch_shrunk" for event in events)
        if same:
            digest = status["digest"]
            assert digest == expected.digest, f"digest {digest}, not {expected.digest}"
            assert status["exact"], "the job is called inexact"
        for lost in _losses(events, faults):
            raise AssertionError(lost)
        cluster.check_ledger(job, script.steps, cumulative=script.cumulative)
        bits = "the same bits" if same else "smaller grains"
        self._tally.say(f"{job} finished with {bits}; recoveries {status['recoveries']}")
        return same

    def _compare(self, expected: str, log: str, same: bool) -> None:
        """The lines of a log; of one with other figures, its steps."""
        for number, (mine, other) in enumerate(
            itertools.zip_longest(log.splitlines(), expected.splitlines(), fillvalue=""), 1
        ):
            if not same:
                mine, other = (line.partition(",")[0] for line in (mine, other))
            assert mine == other, f"line {number} of the log: {mine!r}, not {other!r}"

    def _check_processes(self, cluster: Cluster) -> None:
        """No trainer is left, no daemon hoards descriptors, none runs that no daemon knows."""

        def known() -> bool:
            ours = {one for node in cluster.nodes for one in cluster.processes(node)}
            alive = {one for one in cluster.note() if one.alive}
            return alive <= ours and not any(one.role == "trainer" for one in alive)

        cluster.wait_for("the job's processes to end", known)
        for node in cluster.nodes:
            daemon = cluster.processes(node)[0]
            count = _descriptors(daemon.pid)
            assert count <= DAEMON_FDS, f"the daemon of {node} has {count} descriptors open"
            size = psutil.Process(daemon.pid).memory_info().rss
            first = self._sizes.setdefault(daemon.pid, size)
            assert size - first < DAEMON_GROWTH_BYTES, f"the daemon of {node}: {first} to {size} B"

    def generations(self, count: int) -> None:
        """Lose ``count`` rings in a row: neither daemons nor trainers may grow of it."""
        cluster = self.ready()
        job = cluster.submit("high.py", job__args=["--pace-seconds", "0.001"],
                             train__steps=1_000_000, checkpoint__every_steps=100_000)  # fmt: skip
        early: dict[int, Sample] = {}
        try:
            for number in range(count):
                status = cluster.wait_whole(job, cluster.status(job)["step"] + 1)
                if cluster.kill_reducer(job, number % len(status["ranks"])) is not None:
                    self._tally.count("generations", "reducer")
                if number == min(WARM_GENERATIONS, count // 4):
                    early = self._samples(cluster, job)
            cluster.wait_whole(job, cluster.status(job)["step"] + 1)
            late = self._samples(cluster, job)
            for pid, before in early.items():
                after = late[pid]  # no process may have been replaced
                grown = after.resident_bytes - before.resident_bytes
                self._tally.say(f"process {pid}: {before} to {after}")
                assert after.descriptors <= before.descriptors + 8, f"{pid}: {before} to {after}"
                assert grown < GENERATIONS_GROWTH_BYTES, f"{pid} grew by {grown} bytes"
        except (AssertionError, KeyError) as error:
            self._failed(cluster, job, AssertionError(f"generations: {error}"))
        cluster.client.change(CancelJob(JobId(job)))  # it may have ended meanwhile

    def _samples(self, cluster: Cluster, job: str) -> dict[int, Sample]:
        pids = [rank["pid"] for rank in cluster.status(job)["ranks"]]
        pids += [cluster.processes(node)[0].pid for node in cluster.nodes]
        found = {pid: psutil.Process(pid) for pid in pids}
        return {pid: Sample(p.num_fds(), p.memory_info().rss) for pid, p in found.items()}

    def _failed(self, cluster: Cluster, job: str, error: AssertionError) -> None:
        path = Path(tempfile.gettempdir()) / f"soak-{self._seed}-{self._tally.jobs}"
        report = str(error)
        if "\n" not in report:
            report = cluster.report(report, job)
        path.with_suffix(".txt").write_text(report)
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(cluster.home, path, ignore=_no_sockets, dirs_exist_ok=True)
        self._tally.violate(f"{report.splitlines()[0]} (see {path}.txt and {path})")


def _losses(events: Sequence[dict[str, Any]], faults: Sequence[schedule.Fault]) -> Iterator[str]:
    """Committed steps that should not have been lost, in words."""
    may_lose = any(fault.total or fault.parts for fault in faults)
    # A job without enough nodes gives its turn to one that has them, and its trainers end.
    may_lose = may_lose or any(event["kind"] == "job_yielded" for event in events)
    parted = False
    for event in events:
        if event["kind"] == "lineage_opened" and event["parent"] is not None:
            parted = any(fault.parts for fault in faults)
        elif event["kind"] == "recovery_finished" and event["lost_steps"]:
            # A side of a parted cluster may have nothing left but the start. And where sides have
            # met, those who hold the other side's state may be all that live.
            if not may_lose or not (parted or event["rung"] in ("rescue", "restore", "start")):
                yield f"{event['lost_steps']} steps were lost: {event['reason']}"
        elif event["kind"] == "world_formed" and event["rung"] == "restore" and not may_lose:
            yield f"restored although a trainer held the state: {event['reason']}"


def _descriptors(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0  # no such thing on macOS


def _no_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket() or name == "cache"]


def main() -> int:
    """Soak until the time is over or somebody interrupts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", default=secrets.token_hex(4), help="default: drawn and shown")
    parser.add_argument("--faults", type=int, default=0, help="end after so many, too")
    parser.add_argument("--job", type=int, help="only this one of the seed's jobs, from 1")
    names = [script.name for script in SCRIPTS]
    parser.add_argument("--script", choices=names, action="append", help="default: all")
    parser.add_argument(
        "--generations", type=int, default=0, help="first lose so many rings, and look for leaks"
    )
    given = parser.parse_args()
    tally = Tally()
    tally.say(f"seed {given.seed}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="elasticd-soak-") as folder:
        scripts = [each for each in SCRIPTS if each.name in (given.script or names)]
        soak = Soak(Path(folder), given.seed, tally, scripts)
        try:
            if given.generations:
                soak.generations(given.generations)
            while given.job is None and not _over(tally, given):
                soak.job()
            if given.job is not None:
                tally.jobs = given.job - 1
                soak.job()
        except KeyboardInterrupt:
            tally.say("interrupted")
        finally:
            # A second Ctrl-C must not leave daemons behind.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            soak.close()
    tally.summary()
    return 1 if tally.violations else 0


def _over(tally: Tally, given: argparse.Namespace) -> bool:
    late = time.monotonic() - tally.began >= given.seconds
    return late or bool(given.faults and tally.faults >= given.faults)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
