"""What is on the disks of a cluster that was killed: nothing announced may be gone, nothing final
may be wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from elasticd.checkpoints import choose
from elasticd.checkpoints.disk import TEMPORARY
from elasticd.checkpoints.manifest import Stored
from elasticd.checkpoints.store import LocalStore
from elasticd.types import JobId, NodeId


def stores(home: Path) -> dict[NodeId, LocalStore]:
    """The store of every node of a local cluster."""
    return {
        NodeId(path.parent.name): LocalStore(path, NodeId(path.parent.name))
        for path in sorted(home.glob("node-*/checkpoints"))
    }


def forget_unsynced(home: Path, dice: random.Random) -> int:
    """Do to files that were never synced what a power cut may do: cut them, or take them away.

    What has a final name was synced before it got that name. Returns how many there were.
    """
    found = sorted(home.glob(f"node-*/checkpoints/*/*/*{TEMPORARY}"))
    for path in found:
        if dice.random() < 0.5:
            path.unlink()
        else:
            with path.open("r+b") as file:
                file.truncate(dice.randint(0, path.stat().st_size))
    return len(found)


def problems(home: Path, job: JobId, announced: int) -> list[str]:
    """What is wrong on the disks of nodes that are all dead, in sentences.

    ``announced`` is the newest step whose checkpoint was said to be consistent; -1 if none was.
    """
    found, reports = [], {}
    for node, store in stores(home).items():
        stored = store.stored(job)
        reports[node] = stored
        for item in stored:
            m = item.manifest
            found += [
                f"{node}: {problem.path} {problem.reason}"
                for problem in store.verify(job, m.step, m.stamp)
            ]
    at = reach(reports)
    if at < announced:
        found.append(f"step {announced} was announced, and step {at} is the newest within reach")
    for node in reports:
        rest = {other: stored for other, stored in reports.items() if other != node}
        if len(reports) > 1 and (at := reach(rest)) < announced:
            found.append(f"step {announced} was announced; without {node} there is step {at}")
    return found


def reach(reports: Mapping[NodeId, list[Stored]]) -> int:
    """The newest step all of whose shards are there; -1 if there is none."""
    choice = choose.newest(reports)
    return choice.manifest.step if choice is not None else -1
