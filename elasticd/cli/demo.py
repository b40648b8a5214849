"""``elasticctl demo``: train a real model on this machine, break it in three ways, see it heal.

Three daemons, one job that is disturbed, the same job undisturbed, and the digests of both.
"""

from __future__ import annotations

import math
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console

from elasticd.cli import demo_faults as faults
from elasticd.cli import local as cluster
from elasticd.cli import submit
from elasticd.cli.demo_faults import Kind, StrikeCost
from elasticd.cli.demo_screen import Screen
from elasticd.cli.demo_watch import Watch, time_recovery
from elasticd.cli.interrupts import Interrupts
from elasticd.cli.output import event_line
from elasticd.cli.screen import print_json
from elasticd.client.client import Client
from elasticd.core.words.requests.jobs import CancelJob
from elasticd.counting import counted
from elasticd.errors import ElasticdError, OperationError, UsageError
from elasticd.types import JobId

NODES = 3
STEPS = 100
FEWEST_STEPS, MOST_STEPS = 40, 4000
STEPS_BETWEEN_FAULTS = 3
PACE_STEPS = 8
"""Steps from which the machine's speed is told; the first two are slower and don't count."""

START_SECONDS = 180.0
RECOVERY_SECONDS = 120.0
RETURN_SECONDS = 180.0
STILL_SECONDS = 120.0
"""How long no step may be committed where nothing was broken."""
LAST_EVENTS = 15


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What the demo does."""

    steps: int = STEPS
    fit_to_pace: bool = True
    """Take more steps on a fast machine, or the job ends unbroken; fewer on a slow one."""
    faults: tuple[Kind, ...] = ("trainer", "reducer", "node")


@dataclass(slots=True)
class DemoResult:
    """What the demo found."""

    steps: int = 0
    jobs: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    figures: list[StrikeCost] = field(default_factory=list)
    returned: dict[str, Any] | None = None
    train_seconds: list[float] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return len(self.digests) == 2 and self.digests[0] == self.digests[1]

    def to_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        names = ("disturbed", "undisturbed")
        return {
            "equal": self.equal,
            "steps": self.steps,
            "jobs": dict(zip(names, self.jobs, strict=False)),
            "digests": dict(zip(names, self.digests, strict=False)),
            "losses": dict(zip(names, self.losses, strict=False)),
            "train_seconds": dict(zip(names, self.train_seconds, strict=False)),
            "faults": [figures.to_dict() for figures in self.figures],
            "returned": self.returned,
        }


def run(home: Path | None, json: bool, plan: DemoPlan | None = None) -> int:
    """Run the demo; returns the exit code: 0 if both digests are equal.

    Args:
        home: the cluster's folder, new or empty, which is kept; None: a temporary one, which is
            removed unless the demo fails.
        json: print one JSON object at the end, and the story on stderr.

    Raises:
        UsageError: ``home`` is in use.
        KeyboardInterrupt: after everything was ended.
    """
    folder = _folder(home)
    result, failure = DemoResult(), ""
    screen = Screen(Console(stderr=json, highlight=False))
    keep = home is not None
    try:
        with Interrupts().in_force(), screen:
            try:
                _Story(folder, screen, result, plan or DemoPlan()).tell()
            except ElasticdError as error:
                failure = str(error)
            except KeyboardInterrupt:
                screen.say("interrupted; everything is being ended")
                raise
            finally:
                _end(folder, screen)
        keep = keep or bool(failure)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if failure:
        screen.say(f"failed: {failure}", "bold red")
        screen.say(f"logs are kept in {folder} (node-*/daemon.log, node-*/logs/)")
    else:
        _conclude(screen, result)
    if json:
        found = {**result.to_dict(), "seconds": round(screen.seconds, 2), "error": failure or None}
        print_json({**found, "home": str(folder) if keep else None})
    return 0 if result.equal and not failure else 1


def _folder(home: Path | None) -> Path:
    if home is None:
        return Path(tempfile.mkdtemp(prefix="elasticd-demo-"))
    folder = home.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{home}: the demo wants a folder of its own, new or empty")
    return folder


def _end(folder: Path, screen: Screen) -> None:
    """End all daemons and their children. A second Ctrl-C doesn't cut this short."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        screen.clear()
        cluster.down(folder)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Story:
    """The demo from the first daemon to the second digest."""

    def __init__(self, folder: Path, screen: Screen, result: DemoResult, plan: DemoPlan) -> None:
        self._folder = folder
        self._screen = screen
        self._result = result
        self._plan = plan
        self._label = ""
        self._watch = Watch(
            Client(folder), lambda watch: screen.show(self._label, watch.job), screen.tell
        )

    def tell(self) -> None:
        """Tell it.

        Raises:
            ElasticdError: something that should happen did not.
        """
        try:
            self._start_cluster()
            with tempfile.TemporaryDirectory(prefix="elasticd-demo-job-") as job_folder:
                job_file = _copy_example(Path(job_folder))
                self._train_disturbed(job_file)
                self._train_undisturbed(job_file)
        except ElasticdError:
            self._show_last_events()
            raise
        finally:
            self._watch.close()

    def _start_cluster(self) -> None:
        self._screen.title("Three daemons on this machine, each with its own trainer and reducer")
        nodes = cluster.up(self._folder, NODES)
        for node in nodes:
            self._screen.say(f"{node['id']} runs at {node['address']}, pid {node['pid']}")

    # --- the disturbed run ----------------------------------------------------------------------

    def _train_disturbed(self, job_file: Path) -> None:
        self._screen.title("A real model, disturbed while it trains")
        began = self._submit(job_file, self._plan.steps)
        if self._plan.fit_to_pace:
            fitting = fitting_steps(self._pace(), self._plan.steps)
            if fitting != self._plan.steps:
                self._screen.say(f"this machine's pace asks for {fitting} steps: begun anew")
                self._cancel()
                began = self._submit(job_file, fitting)
        for kind in self._plan.faults:
            self._break(kind)
            if kind == "node":
                self._bring_back()
        self._finish(began)

    def _pace(self) -> float:
        """Committed steps a second, from a few steps; the median, as the first ones are slow."""
        times: dict[int, float] = {}

        def timed() -> bool:
            times.setdefault(self._watch.step, time.monotonic())
            return self._watch.step >= PACE_STEPS

        self._watch.until("the first steps", timed, START_SECONDS)
        seen = sorted(item for item in times.items() if item[0] >= 2)
        gaps = [(later[1] - sooner[1]) / (later[0] - sooner[0]) for sooner, later in pairwise(seen)]
        return 1 / max(1e-4, statistics.median(gaps or [1.0]))

    def _cancel(self) -> None:
        Client(self._folder).request(CancelJob(JobId(self._watch.job["id"])))
        self._result.jobs.pop()

    def _break(self, kind: Kind) -> None:
        watch, calm = self._watch, self._watch.step + STEPS_BETWEEN_FAULTS
        self._label = f"trains; next a {kind} will be killed"
        watch.until(
            f"a whole world of {NODES} with step {calm} committed",
            lambda: self._whole() and watch.step >= calm,
            RECOVERY_SECONDS,
        )
        hit = [figures.node for figures in self._result.figures]
        target = faults.choose(kind, watch.view, watch.job, watch.nodes, hit)
        leads = ", which leads the cluster" if kind == "node" else ""
        self._screen.say(f"SIGKILL {target}{leads}, at step {watch.step}", "bold red")
        self._label = f"recovering from the death of {target}"
        struck = faults.strike(target, watch.job)
        figures = time_recovery(watch, struck, RECOVERY_SECONDS)
        self._result.figures.append(figures)
        self._screen.say(
            f"trains again {figures.seconds_to_next_step:.2f} s after the kill;"
            f" {counted(figures.steps_lost, 'step')} lost",
            "bold green",
        )

    def _whole(self) -> bool:
        ranks = self._watch.ranks
        return len(ranks) == NODES and all(r.get("pid") and r.get("reducer_pid") for r in ranks)

    def _bring_back(self) -> None:
        watch, node = self._watch, self._result.figures[-1].node
        self._screen.say(f"{node} is started again (elasticctl local up)", "bold")
        self._label = f"trains on two nodes; {node} is coming back"
        began, before = time.time(), watch.step
        with ThreadPoolExecutor(1) as pool:
            up = pool.submit(cluster.up, self._folder, None)
            watch.until(f"the daemon of {node}", up.done, RETURN_SECONDS)
            up.result()
        watch.until(
            f"{node} in the world again",
            lambda: any(rank["node"] == node for rank in watch.ranks),
            RETURN_SECONDS,
        )
        entered = watch.step
        watch.until(f"a step trained with {node}", lambda: watch.step > entered, RECOVERY_SECONDS)
        seconds = watch.seen_at - began
        self._result.returned = {
            "node": node,
            "seconds_to_train_again": round(seconds, 4),
            "steps_committed_meanwhile": watch.step - before,
        }
        self._screen.say(
            f"{node} trains again {seconds:.2f} s after its start; meanwhile the others committed"
            f" {counted(entered - before, 'step')}",
            "bold green",
        )

    # --- both runs ------------------------------------------------------------------------------

    def _train_undisturbed(self, job_file: Path) -> None:
        self._screen.title("The same job, undisturbed")
        began = self._submit(job_file, self._result.steps)
        self._finish(began)

    def _submit(self, job_file: Path, steps: int) -> float:
        spec, archive = submit.prepare(job_file, [f"train.steps={steps}"])
        name = Client(self._folder).submit(spec, archive)
        began = time.monotonic()
        self._result.steps = steps
        self._result.jobs.append(name)
        self._screen.say(
            f"submitted {name}: {steps} steps of {spec.batch.global_} samples"
            f" in {spec.grains} grains"
        )
        self._label = "trainers are starting"
        self._watch.follow(name)
        self._watch.until("the first committed step", lambda: self._watch.step > 0, START_SECONDS)
        self._label = "trains"
        return began

    def _finish(self, began: float) -> None:
        watch, result = self._watch, self._result
        self._label = "trains to its last step"
        watch.until(
            "the job's end",
            lambda: watch.state == "finished",
            STILL_SECONDS,
            while_it_moves=True,
        )
        seconds = time.monotonic() - began
        loss, digest = watch.job.get("loss"), watch.job.get("digest")
        if not digest or watch.job.get("digest_step") != result.steps:
            raise OperationError(f"the job finished without the digest of step {result.steps}")
        result.train_seconds.append(round(seconds, 3))
        result.digests.append(str(digest))
        if isinstance(loss, int | float):
            result.losses.append(float(loss))
            bits = f"{float(loss) / math.log(2):.2f} bits per byte"
            self._screen.say(f"finished after {seconds:.0f} s: {bits} (8 at the start)")

    def _show_last_events(self) -> None:
        self._screen.say(f"the last events, of {len(self._watch.events)}:")
        for event in self._watch.events[-LAST_EVENTS:]:
            self._screen.say(f"  {event_line(event)}")
        job = {key: value for key, value in self._watch.job.items() if key != "digest"}
        self._screen.say(f"the job as last seen: {job}")


def fitting_steps(pace: float, usual: int) -> int:
    """How many steps leave time to break the job and still end soon.

    Recovering, and a node's return most of all, take seconds, not steps.

    Args:
        pace: committed steps a second.
        usual: the answer where it fits.
    """
    fewest = math.ceil(20 + 30 * pace)
    most = max(FEWEST_STEPS, math.floor(80 * pace), fewest)
    fitting = min(max(usual, fewest), most, MOST_STEPS)
    # A job that is begun anew costs time too; a little too long is no reason for it.
    return usual if fewest <= usual <= 1.2 * most else fitting


def _copy_example(folder: Path) -> Path:
    with resources.as_file(resources.files("elasticd.examples") / "byte_lm") as source:
        shutil.copytree(
            source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    return folder / "job.toml"


def _conclude(screen: Screen, result: DemoResult) -> None:
    screen.title("What it cost")
    screen.table(("fault", "hit", "detected", "trains again", "steps lost"), fault_rows(result))
    screen.title("What came out")
    width = max(len("disturbed"), len("undisturbed"))
    for name, digest in zip(("disturbed", "undisturbed"), result.digests, strict=False):
        screen.say(f"{name:<{width}}  {digest}")
    if result.equal:
        screen.say("equal: the faults changed no bit of any parameter", "bold green")
    else:
        screen.say("NOT equal: the faults changed the result", "bold red")


def fault_rows(result: DemoResult) -> Sequence[Sequence[object]]:
    """The rows of the closing table; seconds since the SIGKILL, or since the node's start."""
    rows: list[tuple[object, ...]] = []
    for figures in result.figures:
        hit = figures.node if figures.fault == "node" else f"rank {figures.rank} on {figures.node}"
        detected = figures.seconds_to_detect
        rows.append(
            (
                f"{figures.fault} killed",
                hit,
                "-" if detected is None else f"{detected:.2f} s",
                f"{figures.seconds_to_next_step:.2f} s",
                figures.steps_lost,
            )
        )
    if (back := result.returned) is not None:
        rows.append(
            ("node started again", back["node"], "-", f"{back['seconds_to_train_again']:.2f} s", 0)
        )
    return rows


if __name__ == "__main__":
    sys.exit(run(None, False))
