"""The same figures wherever they are told: events, status, monitor, metrics, web page, report."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from elasticd.cli.tables import shown
from elasticd.core.words.requests.jobs import CancelJob
from elasticd.types import FaultKind, JobId
from tests.integration.cluster import Cluster
from tests.integration.keptcurves import wait_kept

pytestmark = pytest.mark.process

Rows = Sequence[Mapping[str, Any]]


def test_a_fault_has_the_same_seconds_everywhere(cluster: Cluster, tmp_path: Path) -> None:
    job = paced(cluster)
    broken(cluster, job, lambda: pids(cluster.kill_trainer(job, 1)))
    broken(cluster, job, lambda: pids(cluster.kill_reducer(job, 0)))
    cluster.client.change(CancelJob(JobId(job)))
    cluster.wait_end(job, None)
    # With those of nodes that are slow, as they may be on a busy machine.
    faults = cluster.kinds(job, "fault_detected")
    recoveries = cluster.kinds(job, "recovery_finished")
    assert len(recoveries) >= 2

    lines = [*told(cluster.command("events", job, "--json"))]
    assert [e["seconds_to_detect"] for e in of(lines, "fault_detected")] == seconds_of(faults)
    timeline = json.loads(cluster.command("monitor", job, "--json"))["faults"]
    assert of(timeline, "fault_detected") == faults
    assert of(timeline, "recovery_finished") == recoveries
    status = json.loads(cluster.command("status", job, "--json"))["jobs"][0]
    assert status["recoveries"] == len(recoveries)
    assert status["lost_steps"] == sum(each["lost_steps"] for each in recoveries)

    page, metrics = served(cluster, job)
    assert [each["seconds"] for each in page["faults"]] == seconds_of(faults)
    assert [(e["rung"], e["seconds"]) for e in page["recoveries"]] == [
        (e["rung"], e["seconds"]) for e in recoveries
    ]
    assert summed(metrics, "elasticd_job_detection_seconds") == agreed(
        (each["fault"], each["seconds_to_detect"]) for each in faults
    )
    assert summed(metrics, "elasticd_job_recovery_seconds") == agreed(
        (each["rung"], each["seconds"]) for each in recoveries
    )
    out = tmp_path / "report.md"
    cluster.command("report", job, "--markdown", "--out", out)
    rows = [line.strip("| ").split(" | ") for line in out.read_text().splitlines()]
    assert [row[4] for row in rows if len(row) == 6 and row[1].replace("\\", "") in FAULTS] == [
        shown(each) for each in seconds_of(faults)
    ]
    assert [row[1:3] for row in rows if len(row) == 5 and row[1] in RUNGS] == [
        [e["rung"], shown(e["seconds"])] for e in recoveries
    ]


FAULTS = get_args(FaultKind)
SPAN = 16
"""So many steps are kept everywhere before some are lost: most of them stay."""
RUNGS = ("retry", "regroup", "relieve", "rescue", "restore")


def test_what_a_script_tells_goes_back_with_its_job(cluster: Cluster, tmp_path: Path) -> None:
    """The job tells the number of its step."""
    job = paced(cluster, checkpoint__every_steps=5)
    # A node that looks late sees fewer steps, and goes back by as many as were lost.
    kept = wait_kept(cluster, job, "number", SPAN)
    broken(cluster, job, lambda: cluster.kill_trainers(job))
    step = cluster.status(job)["step"]

    def told_again() -> dict[str, Any] | None:
        value = cluster.status(job)["values"].get("number")
        return value if value is not None and value["step"] > step + 5 else None

    value = cluster.wait_for("values of the steps since then", told_again)
    assert value["value"] == value["step"]
    cluster.client.change(CancelJob(JobId(job)))
    end = cluster.wait_end(job, None)
    last = end["values"]["number"]["step"]
    for node in cluster.living():
        points = cluster.wait_for(
            f"{node} has heard of the end", partial(values, cluster, node, job, last)
        )
        steps = [step for step, _ in points]
        assert steps == sorted(set(steps)) and steps[-1] >= last
        assert steps[0] == kept[node][0] or end["lost_steps"] > SPAN // 2, (points, kept)
        assert all(step == value for step, value in points), points
    out = tmp_path / "report.md"
    # Each node has the values of what it has looked at, once a second.
    cluster.command("report", job, "--markdown", "--out", out, "--home", cluster.home / node)
    assert f"number: from {points[0][1]:.4g} (step {points[0][0]}) to" in out.read_text()


def paced(cluster: Cluster, **settings: Any) -> str:
    """A job that tells values and doesn't end by itself."""
    args = ["--pace-seconds", "0.1"]
    job = cluster.submit(
        "writes.py", train__steps=100_000, job__args=args, recovery__spare="none", **settings
    )
    cluster.wait_whole(job, 3)
    return job


def broken(cluster: Cluster, job: str, kill: Callable[[], list[int]]) -> None:
    """Until processes were killed, a later world has others in their place, and all that broke
    meanwhile is recovered from."""
    before = cluster.status(job)["generation"]
    killed = cluster.wait_for("somebody to kill", kill)

    def look() -> bool:
        status = cluster.status(job)
        found = {rank[key] for rank in status["ranks"] for key in ("pid", "reducer_pid")}
        later = status["state"] == "running" and status["generation"] > before
        there = found and None not in found and found.isdisjoint(killed)
        told = len(cluster.kinds(job, "recovery_finished"))
        return bool(later and there and status["recoveries"] == told)

    cluster.wait_for(f"a world without {killed}", look)
    cluster.wait_whole(job, cluster.status(job)["step"] + 1)


def pids(killed: int | None) -> list[int]:
    return [] if killed is None else [killed]


def values(cluster: Cluster, node: str, job: str, last: int) -> list[tuple[int, float]] | None:
    """The script's values as the node tells them, at least up to that step: who is asked to cancel
    a job may have heard of fewer than another node."""
    told = cluster.command("monitor", job, "--json", "--home", cluster.home / node)
    points: list[tuple[int, float]] = json.loads(told)["values"].get("number", [])
    return points if points and points[-1][0] >= last else None


def told(text: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in text.splitlines())


def of(events: Rows, kind: str) -> list[Mapping[str, Any]]:
    return [each for each in events if each["kind"] == kind]


def seconds_of(faults: Rows) -> list[float]:
    return [each["seconds_to_detect"] for each in faults]


def served(cluster: Cluster, job: str) -> tuple[dict[str, Any], str]:
    """What the page is told of the job's course, and the metrics."""
    address, _, token = json.loads(cluster.command("dashboard", "--json"))["url"].partition("/#")
    headers = {"Authorization": f"Bearer {token.partition('=')[2]}"}
    live = urllib.request.Request(f"{address}/api/live?job={job}", headers=headers)
    course: dict[str, Any] = {}
    with urllib.request.urlopen(live, timeout=60) as answer:
        while not course.get("ended"):
            line = answer.readline().decode()
            if line.startswith("data: ") and "recoveries" in line:
                course = json.loads(line.removeprefix("data: ")).get("course") or {}
    scraped = urllib.request.Request(f"{address}/metrics", headers=headers)
    with urllib.request.urlopen(scraped, timeout=60) as answer:
        return course, "\n".join(
            line for line in answer.read().decode().splitlines() if f'job="{job}"' in line
        )


def summed(metrics: str, name: str) -> dict[str, tuple[int, float]]:
    """Of a summary, by its label beside the job: how many, and their sum."""
    found: dict[str, dict[str, float]] = {}
    for part in ("count", "sum"):
        for line in metrics.splitlines():
            if line.startswith(f"{name}_{part}{{"):
                label = re.search(r'(?:fault|rung)="(\w+)"', line)
                assert label is not None, line
                found.setdefault(label[1], {})[part] = float(line.split()[-1])
    return {label: (int(each["count"]), round(each["sum"], 9)) for label, each in found.items()}


def agreed(pairs: Iterator[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    found: dict[str, list[float]] = {}
    for label, seconds in pairs:
        found.setdefault(label, []).append(seconds)
    return {label: (len(each), round(sum(each), 9)) for label, each in found.items()}
