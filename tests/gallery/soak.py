"""Run every script of the gallery: alone, on three real daemons, and while everything is killed.

    python tests/gallery/soak.py --seconds 3600 --seed 7 --only gan --only lstm

Each script goes through all three. In the last one a trainer, a reducer, the node of rank 0 and
everything at once are killed, at steps that the seed draws. What the scripts say of themselves must
be true, and what is marked ``todo`` must still be wrong. After the last script it begins again,
with other kills, until the time is over; the first round is always made to its end. The last line
is ``faults N violations M``; the exit status is 1 if M is not 0.
"""

from __future__ import annotations

import argparse
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).parents[2]))

from elasticd.errors import ElasticdError
from tests.chaos.stalls import Longest, longest
from tests.gallery.alone import Alone, judge_alone, run_alone
from tests.gallery.blows import draw_all
from tests.gallery.cards import Card, cards
from tests.gallery.exhibit import NODES, judge, run_on
from tests.integration.alone import compile_kernels
from tests.integration.cluster import Cluster

WAYS = ("alone", "undisturbed", "killed")


@dataclass
class Tally:
    """What happened so far."""

    began: float = field(default_factory=time.monotonic)
    faults: int = 0
    held: int = 0
    todo: list[str] = field(default_factory=list)
    """What fails, and is known to."""
    violations: list[str] = field(default_factory=list)
    stall: Longest = field(default_factory=Longest)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:8.1f}  {text}", flush=True)

    def judged(self, card: Card, wrong: list[str]) -> None:
        """What is wrong with a script that went through all ways."""
        shown = "; ".join(wrong)
        if wrong and card.todo:
            self.todo.append(card.name)
            self.say(f"todo      {card.name}: {shown} ({card.todo})")
        elif wrong:
            self.violations.append(f"{card.name}: {shown}")
            self.say(f"VIOLATION {card.name}: {shown}")
        elif card.todo:
            self.violations.append(f"{card.name}: is cured, its todo must go")
            self.say(f"VIOLATION {card.name} is cured: take its todo away ({card.todo})")
        else:
            self.held += 1
            self.say(f"held      {card.name}")

    def summary(self) -> None:
        """The last lines."""
        print(
            f"\n{self.held} held, {len(self.todo)} to do in {time.monotonic() - self.began:.0f} s"
        )
        print(self.stall)
        for violation in self.violations:
            print(f"violation: {violation}")
        print(f"faults {self.faults} violations {len(self.violations)}", flush=True)


class Hall:
    """A cluster for one script after another, and a new one when one was left unusable."""

    def __init__(self, folder: Path, tally: Tally) -> None:
        self._folder, self._tally = folder, tally
        self._kernels = compile_kernels(folder / "kernels")
        self._cluster: Cluster | None = None
        self._clusters = self._runs = 0

    def fresh(self) -> Path:
        """A folder for one run."""
        self._runs += 1
        return self._folder / f"run-{self._runs}"

    def cluster(self) -> Cluster:
        """All of its nodes live."""
        if self._cluster is None:
            self._clusters += 1
            self._cluster = Cluster(self._folder / f"{self._clusters}", NODES, self._kernels)
        if len(self._cluster.living()) < NODES:
            self._cluster.up()
        return self._cluster

    def close(self) -> None:
        """End the cluster; what it leaves is a violation."""
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            # Who was interrupted while nodes were started finds some only now.
            left = cluster.down() and cluster.down()
            self._tally.violations += [f"left behind: {one}" for one in left]
            self._tally.stall = max(self._tally.stall, longest(cluster.home))

    def show(self, card: Card, seed: str, ways: list[str]) -> None:
        """One script, in all ways."""
        alone = Alone(0)
        wrong: list[str] = []
        if "alone" in ways or card.expect in ("same", "named", "left out"):
            alone = run_alone(card, self.fresh(), self._kernels)
            wrong += judge_alone(card, alone)
        for way in ways:
            # What is known to fail alone need not fail on a cluster, too.
            if way != "alone" and not (wrong and card.todo):
                wrong += [f"{way}: {one}" for one in self._on_nodes(card, seed, way, alone)]
        self._tally.judged(card, wrong)

    def _on_nodes(self, card: Card, seed: str, way: str, alone: Alone) -> list[str]:
        dice = random.Random(f"{seed}/{card.name}")
        blows = draw_all(dice, card, NODES) if way == "killed" else []
        try:
            cluster = self.cluster()
            ended = run_on(cluster, card, self.fresh(), blows, self._kernels)
        except (AssertionError, ElasticdError) as error:
            self._keep(card, str(error))
            self.close()
            return [str(error).splitlines()[0]]
        self._tally.faults += len(ended.struck)
        if blows:
            self._tally.say(f"          {card.name}: killed {', '.join(ended.struck) or 'nothing'}")
        if wrong := judge(card, alone, ended):
            self._keep(card, cluster.report("; ".join(wrong)))
        return wrong

    def _keep(self, card: Card, report: str) -> None:
        if not card.todo:
            path = self._folder.with_name(f"{self._folder.name}-{card.name}.txt")
            path.write_text(report)
            self._tally.say(f"          see {path}")


def main() -> int:
    """Show all, until the time is over or somebody interrupts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=0.0, help="begin again until then")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="default: drawn and shown")
    parser.add_argument("--only", action="append", default=[], help="this script; again for more")
    parser.add_argument("--way", action="append", choices=WAYS, help="default: all three")
    parser.add_argument("--folder", type=Path, help="where clusters live; default: a temporary one")
    given = parser.parse_args()
    known = cards()
    if unknown := set(given.only) - known.keys():
        parser.error(f"no such script: {', '.join(sorted(unknown))}")
    shown = [card for name, card in known.items() if not given.only or name in given.only]
    tally = Tally()
    tally.say(f"seed {given.seed}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="elasticd-gallery-", dir=given.folder))
    hall: Hall | None = None
    try:
        hall = Hall(folder, tally)
        rounds = 0
        while not rounds or time.monotonic() - tally.began < given.seconds:
            rounds += 1
            for card in shown:
                if rounds > 1 and time.monotonic() - tally.began >= given.seconds:
                    break
                hall.show(card, f"{given.seed}/{rounds}", given.way or list(WAYS))
    except KeyboardInterrupt:
        tally.say("interrupted")
    finally:
        # A second Ctrl-C must not leave daemons behind.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if hall is not None:
            hall.close()
        shutil.rmtree(folder, ignore_errors=True)
    tally.summary()
    return 1 if tally.violations else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
