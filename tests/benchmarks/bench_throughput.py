"""Seconds of a step without faults, 2 ranks: under elasticd, exact and fast, and as a plain script.

All three train byte_lm with the same batch and micro-batches and float32 gradients, in turns, round
by round, with nothing else running meanwhile: a local cluster of two daemons, or ``mlx.launch``
with tests/benchmarks/plain_byte_lm.py. Under elasticd a step counts from one turn of the script's
loop to the next and checkpoints are written every 10 steps, as the example's job.toml says; the
plain script writes none. Memory is read once in the middle of each job; PSS divides shared pages
among those who share them (where the system has no PSS: USS, the pages of that process alone).

Only an idle machine gives ratios that mean something. Linux deals out a contended CPU by session
(sched_autogroup): measured here, two processes with a session each got twice what two in one
session got. elasticd's children have a session each, so the plain ranks are given one each too; but
reducers are two more, so under load the ratio still favours elasticd. CPU seconds a step, of all
ranks (trainers, reducers and daemons), hardly depend on the load and are printed beside.

``--model 25m`` takes a model of 25 million parameters and 64 bytes a step.

    python tests/benchmarks/bench_throughput.py [--rounds 3] [--model 25m] [--json FILE]

Nothing is asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from elasticd import examples
from elasticd.cli import local, submit
from elasticd.cli.demo_watch import Watch
from elasticd.client.client import Client
from elasticd.core.words.requests.logs import ReadLogs
from elasticd.types import JobId

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.benchmarks.overhead_train import LARGE

RANKS = 2
WARM_UP_STEPS = 15
"""Left out of each turn: first steps are slow, and spares start beside them."""
WAIT_SECONDS = 180.0
TARGET_RATIO = 0.95
IDLE_LOAD = 0.5
"""Above this load others compete for the CPU, and speeds can't be compared."""
MEGABYTE = 1 << 20
PLAIN = Path(__file__).with_name("plain_byte_lm.py")

SCRIPT = '''\
"""byte_lm, printing when each step was done."""
import sysconfig, time
from pathlib import Path

import elasticd
import train as example

for name, value in {constants}.items():
    setattr(example, name, value)
text, _ = example.split_sources(example.python_sources(Path(sysconfig.get_path("stdlib"))))
run = elasticd.Run(
    model=example.ByteLM(), optimizer=example.make_optimizer(), loss=example.loss_fn,
    data=example.Windows(text), clip_norm=1.0,
)
for step in run:
    if run.is_main:
        print("turn", step.number, time.perf_counter(), flush=True)
'''


@dataclass(frozen=True)
class Model:
    """Which of the example's constants are others, and how many samples a step has."""

    constants: Mapping[str, Any]
    global_batch: int
    micro_batch: int


MODELS = {"byte_lm": Model({}, 64, 8), "25m": Model(LARGE, 4, 2)}


@dataclass(frozen=True)
class Memory:
    """One process: resident bytes, and its proportional or unique share of them."""

    role: str
    rss_bytes: int
    share_bytes: int


@dataclass
class Way:
    """All turns of one way to train."""

    name: str
    seconds: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Of all ranks, a step; one figure a turn."""
    bytes_per_step: int = 0
    memory: list[Memory] = field(default_factory=list)

    def add(self, seconds: Sequence[float]) -> None:
        """Take in the steps of one turn."""
        self.seconds += seconds
        self.medians.append(statistics.median(seconds))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="measured in each turn")
    parser.add_argument("--model", choices=MODELS, default="byte_lm")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    model = MODELS[options.model]
    load = os.getloadavg()[0]
    ways = [Way("plain"), Way("exact"), Way("fast")]
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder:
        job_file = _job(Path(folder, "job"), model)
        for number in range(options.rounds):
            # Every round begins with another way: what a round does to the machine hits all alike.
            for way in ways[number % 3 :] + ways[: number % 3]:
                seconds = (
                    _plain_turn(way, model, options.steps)
                    if way.name == "plain"
                    else _elastic_turn(way, model, Path(folder, "home"), job_file, options.steps)
                )
                way.add(seconds)
                print(
                    f"round {number + 1}  {way.name:6} {way.medians[-1] * 1e3:8.1f} ms"
                    f"  (median of {len(seconds)} steps), CPU {way.cpu_seconds[-1] * 1e3:.0f} ms",
                    flush=True,
                )
    _print_tables(ways, load)
    if options.json is not None:
        found = {"load": load, "ways": [asdict(way) for way in ways]}
        options.json.write_text(json.dumps(found, indent=1) + "\n")


# --- under elasticd -----------------------------------------------------------------------------


def _job(folder: Path, model: Model) -> Path:
    example = Path(examples.__file__).parent / "byte_lm"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "bench.py").write_text(SCRIPT.format(constants=dict(model.constants)))
    return folder / "job.toml"


def _elastic_turn(way: Way, model: Model, home: Path, job_file: Path, steps: int) -> list[float]:
    total = WARM_UP_STEPS + steps
    settings = (
        "job.entrypoint=bench.py",
        f"world.reduction={way.name}",
        f"train.steps={total}",
        f"batch.global={model.global_batch}",
        f"batch.micro={model.micro_batch}",
    )
    client = Client(home)
    watch = Watch(client, lambda watch: None, lambda event: None)
    try:
        local.up(home, RANKS)
        job = client.submit(*submit.prepare(job_file, settings))
        watch.follow(job)
        first = "the end of the warm-up"
        watch.until(first, lambda: watch.step >= WARM_UP_STEPS, WAIT_SECONDS, poll_seconds=0.2)
        pids = [rank[key] for rank in watch.ranks for key in ("pid", "reducer_pid")]
        clock = CpuClock([*pids, *(node["pid"] for node in watch.nodes)], watch.step)
        half = WARM_UP_STEPS + steps // 2
        watch.until(f"step {half}", lambda: watch.step >= half, WAIT_SECONDS, poll_seconds=0.5)
        way.cpu_seconds.append(clock.seconds_a_step(watch.step))
        way.bytes_per_step = int(watch.job["bytes_per_step"])
        way.memory = list(_memory(home, watch.ranks))
        ended = "the job's end"
        watch.until(ended, lambda: watch.state == "finished", WAIT_SECONDS, poll_seconds=1.0)
        text = "".join(str(piece["text"]) for piece in client.stream(ReadLogs(JobId(job))))
    finally:
        watch.close()
        local.down(home)
    turns = [line.split() for line in text.splitlines() if line.startswith("turn ")]
    times = {int(number): float(seconds) for _, number, seconds in turns}
    return [times[n] - times[n - 1] for n in range(WARM_UP_STEPS + 1, total + 1)]


def _memory(home: Path, ranks: Iterable[Mapping[str, Any]]) -> Iterable[Memory]:
    """Of every child of every daemon; those that no rank uses are spares."""
    used = {rank[key] for rank in ranks for key in ("pid", "reducer_pid")}
    for path in sorted(home.glob(f"node-*/{local.CHILDREN_FILE}")):
        for entry in json.loads(path.read_bytes()):
            role = entry["role"] if entry["pid"] in used else f"spare {entry['role']}"
            try:
                yield _resident(role, psutil.Process(entry["pid"]))
            except psutil.Error:
                continue  # it has ended since it was written down


def _resident(role: str, process: psutil.Process) -> Memory:
    info = process.memory_full_info()
    return Memory(role, int(info.rss), int(getattr(info, "pss", info.uss)))


# --- plain --------------------------------------------------------------------------------------


def _plain_turn(way: Way, model: Model, steps: int) -> list[float]:
    total = WARM_UP_STEPS + steps
    launch = Path(sys.executable).with_name("mlx.launch")
    script = [sys.executable, "-c", OWN_SESSION, str(PLAIN), "--steps", str(total)]
    script += ["--global", str(model.global_batch), "--micro", str(model.micro_batch)]
    script += ["--model", json.dumps(model.constants)]
    found: dict[int, float] = {}
    clock: CpuClock | None = None
    with subprocess.Popen(
        [str(launch), "-n", str(RANKS), "--backend", "ring", "--", *script],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        ranks: list[psutil.Process] = []
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if '"seconds"' not in line:
                    continue
                step = json.loads(line[line.index("{") :])
                found[int(step["step"])] = float(step["seconds"])
                if len(found) == WARM_UP_STEPS:
                    ranks = _plain_ranks(process.pid)
                    clock = CpuClock([rank.pid for rank in ranks], len(found))
                elif len(found) == WARM_UP_STEPS + steps // 2 and clock is not None:
                    way.cpu_seconds.append(clock.seconds_a_step(len(found)))
        finally:
            _end([*_plain_ranks(process.pid), *ranks, *_processes([process.pid])])
    if len(found) < total:  # mlx.launch ends with 0 whatever happens
        sys.exit(f"bench_throughput: mlx.launch trained {len(found)} of {total} steps")
    return [found[number] for number in range(WARM_UP_STEPS + 1, total + 1)]


OWN_SESSION = (
    "import contextlib, os, runpy, sys\n"
    "with contextlib.suppress(PermissionError): os.setsid()\n"
    "sys.argv = sys.argv[1:]\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
)
"""Runs a script in a session of its own, as elasticd runs its children."""


def _plain_ranks(launcher: int) -> list[psutil.Process]:
    """The launcher's ranks: interpreters that run the script, and not what wraps them."""
    ranks = []
    for child in _children(launcher):
        with contextlib.suppress(psutil.Error):
            if OWN_SESSION in child.cmdline():
                ranks.append(child)
    return ranks


def _children(pid: int) -> list[psutil.Process]:
    """None where it has ended."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _processes(pids: Iterable[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found.append(psutil.Process(pid))
    return found


def _end(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


class CpuClock:
    """CPU seconds that processes use from now on; a figure that load hardly changes."""

    def __init__(self, pids: Iterable[int], step: int) -> None:
        self._processes = _processes(pids)
        self._step, self._began = step, self._used()

    def _used(self) -> float:
        times = [process.cpu_times() for process in self._processes]
        return float(sum(each.user + each.system for each in times))

    def seconds_a_step(self, step: int) -> float:
        """Of all processes, a step, up to ``step``."""
        return (self._used() - self._began) / max(1, step - self._step)


# --- what was found -----------------------------------------------------------------------------


def _print_tables(ways: Sequence[Way], load: float) -> None:
    plain = statistics.median(ways[0].seconds)
    print(f"\nA step; {RANKS} ranks; load of this machine before: {load:.1f}")
    titles = ("median ms", "fastest ms", "CPU ms", "speed", "by round", "bytes a step")
    print(f"{'':8}" + "".join(f"{title:>14}" for title in titles))
    for way in ways:
        rounds = [p / own for p, own in zip(ways[0].medians, way.medians, strict=True)]
        median = statistics.median(way.seconds)
        cells = (
            f"{median * 1e3:.1f}",
            f"{min(way.seconds) * 1e3:.1f}",
            f"{statistics.median(way.cpu_seconds) * 1e3:.0f}",
            f"{plain / median:.2f}",
            " ".join(f"{ratio:.2f}" for ratio in rounds),
            f"{way.bytes_per_step:,}" if way.bytes_per_step else "-",
        )
        print(f"{way.name:8}" + "".join(f"{cell:>14}" for cell in cells))
    print(f"speed: plain's median by the own one; the target for both is {TARGET_RATIO:g}")
    if load > IDLE_LOAD:
        print("NOT VALID: others used this machine; the speeds say nothing, CPU ms a little")
    share = "PSS" if sys.platform == "linux" else "USS"
    print(f"\n{'resident memory, MB':22}{'count':>6}{'RSS':>8}{share:>8}   (the largest; exact)")
    for role in ("trainer", "reducer", "spare trainer", "spare reducer"):
        found = [memory for memory in ways[1].memory if memory.role == role]
        if found:
            rss = max(memory.rss_bytes for memory in found) / MEGABYTE
            own = max(memory.share_bytes for memory in found) / MEGABYTE
            print(f"{role:22}{len(found):6}{rss:8.0f}{own:8.0f}")


if __name__ == "__main__":
    main()
