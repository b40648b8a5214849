"""Seconds from a SIGKILL to the next committed step, in a world of three on this machine.

A real cluster trains byte_lm in small steps while its trainers and reducers are killed in turns, at
random moments, and then whole nodes, leader and follower in turns, each brought back before the
next. The clock is this machine's, read right before the SIGKILL; the next step counts when a
daemon that is asked every 10 ms says that it is committed, which ``status`` knows 0.1 s late at
worst. The parts come from the events: detection until the leader's earliest evidence, agreement
until the next world is planned, bring-up until it is formed, redo until its first step.

    python tests/benchmarks/bench_recovery.py [--kills 30] [--nodes 6] [--json FILE]

Nothing is asserted; the exit code is 0 when it measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from elasticd.cli import demo_faults as faults
from elasticd.cli import local, submit
from elasticd.cli.client import Client
from elasticd.cli.demo_faults import Figures, Kind, Target
from elasticd.cli.demo_watch import Watch, time_recovery

NODES = 3
SETTINGS = (
    "batch.global=12",
    "batch.micro=4",
    "train.steps=1000000",
    "checkpoint.every_steps=50",
)
WAIT_SECONDS = 120.0
TARGET_SECONDS = {"trainer": 1.0, "reducer": 1.0, "node": 3.0}

PARTS = (
    ("next step, seen", "seconds_to_next_step"),
    ("next step, by events", "seconds_by_events"),
    ("  detection", "seconds_to_detect"),
    ("  agreement", "seconds_to_agree"),
    ("  bring-up", "seconds_to_form"),
    ("  redo", "seconds_to_redo"),
)

FIELD = """\
For orientation, not side by side: the field with 4 ranks and 4.7 M parameters (CPU, gloo, two
shared cores, medians). Above: 3 ranks, 0.08 M parameters, short steps.
  torchrun elastic, worker killed          6.9 s (one agent), 9.2 s (four agents)
  torchrun, agent and worker killed       48 s with defaults, 8.4 s tuned
  DLRover, worker killed                   5.9 s; with flash checkpoint 6.6 s
  torchft, defaults / tuned to 1 s         5.2 s / 1.1 s, and drops the lost share of the batch"""


@dataclass(frozen=True)
class Bench:
    """A cluster that trains, to be hurt again and again."""

    home: Path
    watch: Watch
    dice: random.Random
    settle_seconds: float

    def hurt(self, kind: Kind, *, leader: bool = False) -> Figures:
        """Kill something of that kind at a random moment and time the recovery."""
        self._settle()
        watch = self.watch
        target = self._node(leader) if kind == "node" else self._process(kind)
        struck = faults.strike(target, watch.job)
        figures = time_recovery(watch, struck, WAIT_SECONDS)
        if kind == "node":
            local.up(self.home, None)
        return figures

    def _process(self, kind: Kind) -> Target:
        """Of any rank, the leader's too."""
        rank = self.dice.choice(self.watch.ranks)
        pid = rank["pid"] if kind == "trainer" else rank["reducer_pid"]
        return Target(kind, str(rank["node"]), int(rank["rank"]), int(pid))

    def _node(self, leader: bool) -> Target:
        watch = self.watch
        name = watch.view["leader"]
        if not leader:
            name = self.dice.choice([r["node"] for r in watch.ranks if r["node"] != name])
        rank = next(int(rank["rank"]) for rank in watch.ranks if rank["node"] == name)
        pid = next(int(node["pid"]) for node in watch.nodes if node["id"] == name)
        return Target("node", str(name), rank, pid)

    def _settle(self) -> None:
        """Until the world has been whole for a while, so that spares are warm, and a bit longer."""
        calm = self.settle_seconds + self.dice.random()
        since, generation, deadline = time.monotonic(), -1, time.monotonic() + WAIT_SECONDS
        while time.monotonic() - since < calm:
            self.watch.look(0.05)
            if not self._whole() or self.watch.job["generation"] != generation:
                since, generation = time.monotonic(), self.watch.job["generation"]
            if time.monotonic() > deadline:
                sys.exit(f"bench_recovery: no whole world in {WAIT_SECONDS:.0f} s")
        self.watch.until("another step", self._moved(), WAIT_SECONDS, poll_seconds=0.01)

    def _moved(self) -> Any:
        before = self.watch.step
        return lambda: self._whole() and self.watch.step > before

    def _whole(self) -> bool:
        ranks = self.watch.ranks
        return len(ranks) == NODES and all(r.get("pid") and r.get("reducer_pid") for r in ranks)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=30, help="of trainers and reducers in turns")
    parser.add_argument("--nodes", type=int, default=6, help="kills of whole nodes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--settle-seconds", type=float, default=3.0, help="peace before each kill")
    parser.add_argument("--json", type=Path, help="also write every figure to this file")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="elasticd-bench-") as folder:
        measured = _measure(Path(folder), options)
    _print_tables(measured, load)
    if options.json is not None:
        rows = [figures.to_dict() for figures in measured]
        options.json.write_text(json.dumps({"load": load, "figures": rows}, indent=1) + "\n")


def _measure(home: Path, options: argparse.Namespace) -> list[Figures]:
    client = Client(home)
    watch = Watch(client, lambda watch: None, lambda event: None)
    measured: list[Figures] = []
    try:
        local.up(home, NODES)
        with resources.as_file(resources.files("elasticd.examples") / "byte_lm") as example:
            spec, archive = submit.prepare(example / "job.toml", SETTINGS)
        watch.follow(client.submit(spec, archive))
        watch.until("the first step", lambda: watch.step > 0, WAIT_SECONDS)
        bench = Bench(home, watch, random.Random(options.seed), options.settle_seconds)
        kinds: Sequence[Kind] = ("trainer", "reducer")
        for number in range(options.kills):
            measured.append(bench.hurt(kinds[number % 2]))
            _print_row(measured[-1], watch)
        for number in range(options.nodes):
            measured.append(bench.hurt("node", leader=number % 2 == 0))
            _print_row(measured[-1], watch)
    finally:
        watch.close()
        local.down(home)
    return measured


def _print_row(figures: Figures, watch: Watch) -> None:
    parts = [getattr(figures, key) for _, key in PARTS[2:]]
    shown = " + ".join("?" if part is None else f"{part:.2f}" for part in parts)
    print(
        f"{figures.fault:8} {figures.node:8} {figures.seconds_to_next_step:6.2f} s"
        f"  ({shown})  {figures.rung:8} lost {figures.steps_lost}  step {watch.step}",
        flush=True,
    )


def _print_tables(measured: Sequence[Figures], load: float) -> None:
    print(f"\nSeconds from the SIGKILL; world of {NODES}; load of this machine before: {load:.1f}")
    print(f"{'':24}{'kills':>6}{'min':>8}{'median':>8}{'max':>8}{'target':>9}")
    for kind in TARGET_SECONDS:
        chosen = [figures for figures in measured if figures.fault == kind]
        if not chosen:
            continue
        print(f"{kind} killed")
        for name, key in PARTS:
            values = [v for figures in chosen if (v := getattr(figures, key)) is not None]
            _print_part(name, values, TARGET_SECONDS[kind] if name == PARTS[0][0] else None)
        rungs = statistics.multimode(figures.rung for figures in chosen)
        lost = sum(figures.steps_lost for figures in chosen)
        print(f"  most often by {' and '.join(rungs)}; committed steps lost: {lost}")
    print()
    print(FIELD)


def _print_part(name: str, values: Sequence[float], target: float | None) -> None:
    if not values:
        print(f"  {name:22}{0:6}")
        return
    aim = "" if target is None else f"{'< ' + format(target, 'g') + ' s':>9}"
    least, median, most = min(values), statistics.median(values), max(values)
    print(f"  {name:22}{len(values):6}{least:8.2f}{median:8.2f}{most:8.2f}{aim}")


if __name__ == "__main__":
    main()
