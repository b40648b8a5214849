"""Seconds from a fault to the next committed step, in a world of three on this machine.

One real cluster for each kind of fault; the fault comes at a random moment of a job that trains.
The clock is this machine's, read right before the fault; the next step counts when a daemon that is
asked every 10 ms says that it is committed, which ``status`` knows 0.1 s late at worst.

    trainer, reducer   SIGKILL of a rank's process
    node               SIGKILL of a daemon with all that it started, leader and follower in turns
    silent             SIGSTOP of all that, but not of the first node's, which answers our questions
    hang               SIGSTOP of a trainer; counted from when the leader knew: its deadline
    oom                an allocation that fails in a grain (RLIMIT_AS), in a job of its own each;
                       counted from when the rank's daemon heard of it
    oom-kill           the kernel kills for want of memory (cgroup of version 1), likewise
    link               the address that all use goes dead, on nodes with two (needs root)
    join               the others' pause when the successors of killed trainers enter

    python tests/benchmarks/bench_recovery.py [--samples 20] [--only trainer join] [--json FILE]
    python tests/benchmarks/bench_recovery.py --goodput FAULTS

``trainer`` and ``join`` are two figures of one fault. A sample that fails is said and made again on
another cluster. ``--goodput`` (goodput.py): what is left of the undisturbed progress in minutes
with a fault each; a fault takes a minute and a half. Nothing is asserted; the exit code is 0 when
it measured.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import random
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

import psutil

from elasticd.archive import Archive
from elasticd.cli import local, submit
from elasticd.cli.demo_watch import Watch
from elasticd.cli.output import ENDED
from elasticd.client.client import Client
from elasticd.core.words.requests.jobs import CancelJob
from elasticd.errors import ElasticdError, OperationError
from elasticd.settings.job import JobSpec
from elasticd.shell.children.watch import LOOK_SECONDS
from elasticd.types import JobId

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks import goodput
from tests.integration import memorygroup, twoways
from tests.integration.memorygroup import MemoryGroup
from tests.integration.twoways import Cut

NODES = 3
FIRST = "node-0"
SETTINGS = (
    "batch.global=12",
    "batch.micro=4",
    "train.steps=1000000",
    "checkpoint.every_steps=50",
)
SHORT_JOB = Path(__file__).parents[1] / "integration" / "jobs" / "job.toml"
MIB = 1 << 20
SHORT_SETTINGS = (
    "job.entrypoint=ladder.py",
    f'job.args=["--sample-bytes", "{24 * MIB}"]',
    "batch.micro=4",
    "train.steps=1000000",
)
WAIT_SECONDS = 60.0
MAX_FAILED = 5
"""Samples of a kind."""
POLL_SECONDS = 0.01
TARGETS = {
    "trainer": 1.0,
    "reducer": 1.0,
    "hang": 1.0,
    "node": 3.0,
    "silent": 3.0,
    "oom": 1.0,
    "oom-kill": 2.0,
    "link": 2.0,
    "join": 0.5,
}
FIGURES = {"trainer": ("trainer", "join"), "join": ()}
"""What faults of a kind give besides, or instead of, the figure of their name."""
MEANING = {
    "hang": "beyond its deadline",
    "join": "pause of the others",
    "oom": "from the exception",
}


@dataclass
class Bench:
    """A cluster with one job, to be hurt again and again."""

    home: Path
    dice: random.Random
    settle_seconds: float
    watch: Watch = field(init=False)
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.home)
        self.watch = Watch(self.client, lambda watch: None, lambda event: None)

    def submit_long(self) -> None:
        """A job of small steps that never ends by itself."""
        with resources.as_file(resources.files("elasticd.examples") / "byte_lm") as example:
            self._follow(submit.prepare(example / "job.toml", SETTINGS))

    def submit_short(self) -> None:
        """A job whose grains take memory, in place of the last one."""
        self.cancel()
        self._follow(submit.prepare(SHORT_JOB, SHORT_SETTINGS))

    def _follow(self, prepared: tuple[JobSpec, Archive]) -> None:
        self.watch.follow(self.client.submit(*prepared))
        self.watch.until("the first step", lambda: self.watch.step > 0, WAIT_SECONDS)

    def cancel(self) -> None:
        """End the job, if there is one."""
        job = self.watch.job.get("id")
        if job is not None and self.watch.job.get("state") not in ENDED:
            self.client.request(CancelJob(JobId(job)))

    def settle(self) -> None:
        """Until the world has been whole for a while, so that spares are warm, and a bit longer."""
        self.watch.until("links", self._linked, WAIT_SECONDS)
        calm = self.settle_seconds + self.dice.random()
        since, generation, deadline = time.monotonic(), -1, time.monotonic() + WAIT_SECONDS
        while time.monotonic() - since < calm:
            self.watch.look(0.05)
            if not self._whole() or self.watch.job["generation"] != generation:
                since, generation = time.monotonic(), self.watch.job["generation"]
            if time.monotonic() > deadline:
                raise OperationError(f"no whole world in {WAIT_SECONDS:.0f} s")
        before = self.watch.step
        self.watch.until(
            "a step", lambda: self.watch.step > before, WAIT_SECONDS, poll_seconds=0.01
        )

    def _linked(self) -> bool:
        """Every address lives, and the ring has taken the first ones again."""
        states = [link["state"] for node in self.watch.nodes for link in node["links"]]
        worlds = [e for e in self.watch.job_events() if e["kind"] == "world_formed"]
        return {*states} <= {"up"} and "instead of" not in str(worlds[-1:])

    def _whole(self) -> bool:
        ranks = self.watch.ranks
        return len(ranks) == NODES and all(r.get("pid") and r.get("reducer_pid") for r in ranks)

    def rank(self, *, leader: bool | None = None, computes: bool = False) -> dict[str, Any]:
        """A rank of the world; the leader's node's, or not, or one with grains, if asked for."""
        name = self.watch.view["leader"]
        ranks = [r for r in self.watch.ranks if r["grains"] or not computes]
        return self.dice.choice([r for r in ranks if leader in (None, r["node"] == name)])

    def daemon_pid(self, node: str) -> int:
        return next(int(n["pid"]) for n in self.watch.nodes if n["id"] == node)

    def recovered(self, struck_at: float, generation: int) -> float:
        """Look until a step is committed in a world after ``generation``; Unix seconds of then."""

        def committed() -> bool:
            worlds = [e for e in self._since(struck_at, "world_formed")]
            later = [e for e in worlds if int(e["generation"] or 0) > generation]
            return bool(later) and self.watch.step > int(later[-1]["resume_step"])

        self.watch.until(
            "a step after the fault", committed, WAIT_SECONDS, poll_seconds=POLL_SECONDS
        )
        seen_at = self.watch.seen_at
        self.watch.look(0.3)  # the events that close the recovery come right behind
        return seen_at

    def first(self, struck_at: float, kind: str) -> dict[str, Any]:
        """The first event of a kind since then; waits for it."""

        def found() -> bool:
            return bool(self._since(struck_at, kind))

        self.watch.until(kind, found, WAIT_SECONDS, poll_seconds=POLL_SECONDS)
        return self._since(struck_at, kind)[0]

    def joined(self, struck_at: float) -> float | None:
        """How long the others paused for the successor; None if it was there for the recovery."""

        def whole() -> list[dict[str, Any]]:
            worlds = self._since(struck_at, "world_formed")
            return [world for world in worlds if len(world["members"]) == NODES]

        self.watch.until(
            "a whole world", lambda: bool(whole()), WAIT_SECONDS, poll_seconds=POLL_SECONDS
        )
        if whole()[0]["rung"] != "grow":
            return None
        return float(self.first(struck_at, "growth_finished")["pause_seconds"])

    def parts(self, struck_at: float, seen_at: float) -> tuple[float, ...]:
        """Seconds of each of :data:`PARTS`."""
        formed = [float(e["time"]) for e in self._since(struck_at, "world_formed")]
        moments = (
            struck_at,
            float(self.first(struck_at, "fault_detected")["evidence_time"]),
            float(self.first(struck_at, "recovery_started")["time"]),
            max((moment for moment in formed if moment <= seen_at), default=seen_at),
            seen_at,
        )
        return tuple(round(end - start, 4) for start, end in itertools.pairwise(moments))

    def _since(self, struck_at: float, kind: str) -> list[dict[str, Any]]:
        events = self.watch.job_events()
        return [e for e in events if e["kind"] == kind and float(e["time"]) >= struck_at]


PARTS = ("detection", "agreement", "bring-up", "redo")
"""Of a recovery: from the fault to the earliest evidence, until every survivor has said what it
holds, until the new ring has proved itself, until the cut step is committed."""


@dataclass(frozen=True)
class Sample:
    kind: str
    seconds: float
    rung: str
    lost_steps: int
    parts: tuple[float, ...] = ()
    """As :data:`PARTS`; a fault that is found at once may be found before its signal returns."""


Samples = dict[str, list[Sample]]
"""Of each kind."""


def hurt(bench: Bench, kind: str, number: int) -> list[Sample]:
    """One fault of a kind, and what it cost."""
    if kind in ("oom", "oom-kill"):
        bench.submit_short()
    bench.settle()
    generation = int(bench.watch.job["generation"])
    with _strike(bench, kind, number) as struck_at:
        seen_at = bench.recovered(struck_at, generation)
    finished = bench.first(struck_at, "recovery_finished")
    seconds = seen_at - struck_at
    if kind == "hang":
        seconds = seen_at - float(bench.first(struck_at, "fault_detected")["detected_time"])
    if kind == "oom":
        seconds = seen_at - float(bench.first(struck_at, "fault_detected")["evidence_time"])
    rung, lost = str(finished["rung"]), int(finished["lost_steps"])
    found = [Sample(kind, round(seconds, 4), rung, lost, bench.parts(struck_at, seen_at))]
    if kind == "trainer" and (pause := bench.joined(struck_at)) is not None:
        found.append(Sample("join", pause, "growth", 0))
    return found


@contextlib.contextmanager
def _strike(bench: Bench, kind: str, number: int) -> Iterator[float]:
    """Do it, and give the Unix seconds at which it was done; what has to be cleared away afterwards
    is, at the end."""
    match kind:
        case "trainer":
            yield _signalled(int(bench.rank()["pid"]), signal.SIGKILL)
        case "reducer":
            yield _signalled(int(bench.rank()["reducer_pid"]), signal.SIGKILL)
        case "hang":
            yield _signalled(int(bench.rank()["pid"]), signal.SIGSTOP)
        case "node" | "silent":
            yield from _strike_node(bench, kind, leader=number % 2 == 0)
        case "oom":
            _limit(int(bench.rank(computes=True)["pid"]), 30 * MIB)
            yield time.time()
        case "link":
            with Cut(twoways.hosts()[0]):
                yield time.time()
        case _:
            yield from _strike_group(int(bench.rank(computes=True)["pid"]))


def _signalled(pid: int, what: signal.Signals) -> float:
    now = time.time()
    os.kill(pid, what)
    return now


def _strike_node(bench: Bench, kind: str, leader: bool) -> Iterator[float]:
    node = bench.rank(leader=leader)["node"]
    if kind == "silent":
        # A daemon that is stopped still accepts what the kernel accepts: ask the first of another.
        node = bench.dice.choice([r["node"] for r in bench.watch.ranks if r["node"] != FIRST])
    daemon = psutil.Process(bench.daemon_pid(node))
    struck_at = time.time()
    daemon.suspend()  # so that it starts nothing between our look and our signals
    family = [daemon, *daemon.children(recursive=True)]
    for process in family:
        process.send_signal(signal.SIGKILL if kind == "node" else signal.SIGSTOP)
    try:
        yield struck_at
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        local.up(bench.home, None)


def _limit(pid: int, more_bytes: int) -> None:
    """Forbid a trainer to map more than it has between grains, so that allocations fail."""
    if sys.platform != "linux":
        raise OSError("only Linux can limit a running process's memory")
    process, sizes = psutil.Process(pid), []
    for _ in range(100):
        sizes.append(process.memory_info().vms)
        time.sleep(0.005)
    resource.prlimit(pid, resource.RLIMIT_AS, (min(sizes) + more_bytes, resource.RLIM_INFINITY))


def _strike_group(pid: int) -> Iterator[float]:
    """Put a trainer into a memory cgroup, and let another process take what that has left."""
    with MemoryGroup() as group:
        group.add(pid)
        time.sleep(2 * LOOK_SECONDS)  # its daemon looks now and then where its children are
        now = time.time()
        if not group.exhaust(pid):
            raise OperationError("the kernel has not killed")
        yield now


def possible(kind: str) -> str:
    """Why a kind can't be measured here, or nothing."""
    if kind in ("oom", "oom-kill") and sys.platform != "linux":
        return "only Linux can limit a running process's memory"
    if kind == "link":
        return twoways.why_not()
    return memorygroup.why_not() if kind == "oom-kill" else ""


def measure(kind: str, options: argparse.Namespace, samples: Samples) -> None:
    """``options.samples`` faults of a kind, on a cluster of their own, or on another after each
    that failed."""
    made = failed = 0
    end = time.monotonic() + options.kind_seconds
    while made < options.samples and failed < MAX_FAILED and time.monotonic() < end:
        try:
            with _cluster(options, two_ways=kind == "link") as bench:
                if kind not in ("oom", "oom-kill"):
                    bench.submit_long()
                while made < options.samples and time.monotonic() < end:
                    for one in hurt(bench, kind, made):
                        samples.setdefault(one.kind, []).append(one)
                        text = f"{one.kind:9}{one.seconds:7.2f} s  {one.rung:9}"
                        print(f"{text} lost {one.lost_steps}", flush=True)
                    made += 1
        except (ElasticdError, psutil.Error, OSError, StopIteration, IndexError) as error:
            failed += 1
            print(f"{kind:9} failed, sample {made + 1}: {error!r}", flush=True)


@contextlib.contextmanager
def _cluster(options: argparse.Namespace, two_ways: bool = False) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder:
        bench = Bench(Path(folder), random.Random(options.seed), options.settle_seconds)
        try:
            local.up(bench.home, NODES)
            if two_ways:
                local.down(bench.home)
                twoways.furnish(bench.home)
                local.up(bench.home, None)
            yield bench
        finally:
            bench.watch.close()
            local.down(bench.home)


def left(options: argparse.Namespace) -> dict[str, float]:
    """Shares of the undisturbed progress that faults leave."""
    with _cluster(options) as bench:
        bench.submit_long()
        subject = goodput.Subject(
            bench.watch, bench.dice, bench.settle, functools.partial(_strike, bench)
        )
        return goodput.measure(subject, options.goodput)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main() -> None:
    """Measure and print."""
    parser = _Parser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=20, help="of each kind")
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), metavar="KIND", default=[],
                        help=", ".join(TARGETS))  # fmt: skip
    parser.add_argument("--kind-seconds", type=float, default=float("inf"),
                        help="begin no sample of a kind after so long")  # fmt: skip
    parser.add_argument("--goodput", type=_count, metavar="FAULTS",
                        help="measure that instead, with so many")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settle-seconds", type=float, default=2.0, help="peace before each fault")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # daemons must not stay
    load = os.getloadavg()[0]
    found: dict[str, Any] = {"load": load}
    if options.goodput is not None:
        try:
            found["goodput"] = left(options)
        except KeyboardInterrupt:
            sys.exit("interrupted: the shares need every block")
    else:
        found["seconds"] = _samples(options, load)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _samples(options: argparse.Namespace, load: float) -> dict[str, list[float]]:
    samples: Samples = {}
    for kind in TARGETS:
        figures = FIGURES.get(kind, (kind,))
        if not {*figures} & {*(options.only or TARGETS)}:
            continue
        if why := possible(kind):
            print(f"{kind}: not measured: {why}")
            continue
        try:
            measure(kind, options, samples)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            break
        for one in figures:
            print(_row(one, samples.get(one, [])), "\n", flush=True)
    print(f"\nSeconds, in a world of {NODES}; load of this machine before: {load:.1f}")
    print(f"{'':10}{'n':>4}{'min':>8}{'median':>8}{'max':>8}{'target':>9}  most often by")
    for kind, each in samples.items():
        print(_row(kind, each))
    print(f"\nMedians of its parts\n{'':10}" + "".join(f"{part:>11}" for part in PARTS))
    for kind, each in samples.items():
        if parts := [sample.parts for sample in each if sample.parts]:
            medians = (statistics.median(column) for column in zip(*parts, strict=True))
            print(f"{kind:10}" + "".join(f"{seconds:11.2f}" for seconds in medians))
    return {kind: [sample.seconds for sample in each] for kind, each in samples.items()}


def _row(kind: str, each: Sequence[Sample]) -> str:
    if not each:
        return f"{kind:10}   0"
    seconds = [sample.seconds for sample in each]
    least, median, most = min(seconds), statistics.median(seconds), max(seconds)
    rungs = " and ".join(statistics.multimode(sample.rung for sample in each))
    lost = sum(sample.lost_steps for sample in each)
    note = f"; {lost} committed steps lost" if lost else ""
    meaning = f" ({MEANING[kind]})" if kind in MEANING else ""
    return (
        f"{kind:10}{len(each):4}{least:8.2f}{median:8.2f}{most:8.2f}{TARGETS[kind]:7.1f} s"
        f"  {rungs}{note}{meaning}"
    )


if __name__ == "__main__":
    main()
