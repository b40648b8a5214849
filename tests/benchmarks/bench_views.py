"""How long real daemons on loopback take to agree after the leader and another one are killed.

    python tests/benchmarks/bench_views.py [--nodes 2,8,32] [--kills 3]

*detection*: from the SIGKILL until the last survivor holds both for dead (a closed connection may
come back for 2 s); *agreement*: from there until the last survivor follows the view without them.
Read from the daemons' own logs.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path

from elasticd.cli import local
from elasticd.cli.daemons import LOG_FILE
from elasticd.client.connection import probe

_PATIENCE_SECONDS = 60.0
_LINE = re.compile(r"timestamp=(\S+) .*?event=(\"[^\"]*\"|\S+)(.*)")


def lines(home: Path, since: float) -> list[tuple[float, str, str]]:
    """(time, event, the rest) of each line of a daemon's log from ``since`` on."""
    found = []
    for text in (home / LOG_FILE).read_text().splitlines():
        if match := _LINE.match(text):
            at = datetime.fromisoformat(match[1]).timestamp()
            if at >= since:
                found.append((at, match[2].strip('"'), match[3]))
    return found


def dead_at(home: Path, since: float, victims: list[str]) -> float | None:
    """When the last of ``victims`` was held for dead."""
    times = []
    for victim in victims:
        named = re.compile(rf"\bnode={re.escape(victim)}(\s|$)")
        own = [at for at, event, rest in lines(home, since)
               if event == "node is dead" and named.search(rest)]  # fmt: skip
        if not own:
            return None
        times.append(own[0])
    return max(times)


def viewed_at(home: Path, since: float, survivors: list[str]) -> float | None:
    for at, event, rest in lines(home, since):
        members = re.findall(r"node-\d+", rest.partition("members=")[2])
        if event == "view" and members == survivors:
            return at
    return None


def measure(home: Path, count: int) -> tuple[float, float]:
    """(detection, agreement) in seconds, of one kill."""
    nodes = {row["id"]: row for row in local.up(home, count)}
    names = sorted(nodes)
    status = probe(home / names[0] / "control.sock")
    assert status is not None
    leader = status["view"]["leader"]
    others = [name for name in names if name != leader]
    victims = [leader, others[-1]] if count > 2 else [leader]
    survivors = [name for name in names if name not in victims]
    struck = time.time()
    for victim in victims:
        os.kill(nodes[victim]["pid"], signal.SIGKILL)
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        dead = [dead_at(home / name, struck, victims) for name in survivors]
        formed = [viewed_at(home / name, struck, survivors) for name in survivors]
        known = [at for at in dead if at is not None]
        agreed = [at for at in formed if at is not None]
        if len(known) == len(agreed) == len(survivors):
            return max(known) - struck, max(agreed) - max(known)
        time.sleep(0.2)
    raise SystemExit(f"{count} nodes did not agree in {_PATIENCE_SECONDS:.0f} s: {formed}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="2,8,32", help="sizes of clusters, by comma")
    parser.add_argument("--kills", type=int, default=3, help="how often each")
    given = parser.parse_args()
    print(f"{'nodes':>5} {'detection s':>12} {'agreement s':>12}   medians of {given.kills}")
    for count in map(int, given.nodes.split(",")):
        with tempfile.TemporaryDirectory(prefix="bench-views-") as folder:
            home = Path(folder)
            try:
                figures = [measure(home, count) for _ in range(given.kills)]
            finally:
                local.down(home)
        detection, agreement = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{count:>5} {detection:>12.2f} {agreement:>12.2f}", flush=True)


if __name__ == "__main__":
    main()
