"""Jobs as users see them: queued, cancelled, failing, followed."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from elasticd.core.words.requests.looking import ShowStatus
from tests.integration.alone import JOBS
from tests.integration.cluster import ELASTICCTL, STEPS, WAIT_SECONDS, Cluster

pytestmark = pytest.mark.process

SLOW = ["--pace-seconds", "0.05"]
BAD = {
    "bad_raises.py": "ValueError: no such luck",
    "bad_exits.py": "exit status 3",
    "bad_binary.py": "strange",
    "bad_import.py": "ModuleNotFoundError: No module named 'no_such_module_here'",
    "bad_no_run.py": "without calling elasticd.Run",
    "bad_early.py": "rank 0 has left its loop after step 5",
    "bad_late.py": "KeyError: 'five is too many'",
    "bad_unguarded.py": 'below `if __name__ == "__main__":`',
}
ALIKE = ("bad_exits.py", "bad_import.py", "bad_binary.py", "bad_late.py")
"""As bad_raises.py, but for what the trainer says last: tried by make deep."""


@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=pytest.mark.deep) if s in ALIKE else s for s in BAD]
)
def test_bad_scripts_fail_with_their_last_words(cluster: Cluster, script: str) -> None:
    job = cluster.submit(script)
    status = cluster.wait_end(job, "failed")
    assert BAD[script] in status["reason"], cluster.report("another reason", job)
    failed = cluster.kinds(job, "job_failed")
    assert len(failed) == 1 and BAD[script] in failed[0]["reason"]
    for node in cluster.nodes:
        logs = list((cluster.home / node / "logs" / job).glob("*.log"))
        assert len(logs) <= 3, cluster.report(f"a restart loop on {node}: {logs}", job)
    cluster.wait_for("its trainers to end", lambda: not trainers(cluster))


def trainers(cluster: Cluster) -> list[int]:
    living = [p for node in cluster.nodes for p in cluster.processes(node)[1:] if p.alive]
    return [one.pid for one in living if one.role == "trainer"]


@pytest.mark.deep
def test_a_job_ends_where_all_ranks_leave_their_loop(cluster: Cluster) -> None:
    job = cluster.submit("bad_early.py", job__args=["--all"])
    status = cluster.wait_end(job)
    assert (status["step"], status["digest_step"]) == (5, 5), cluster.report("another end", job)
    (told,) = cluster.kinds(job, "job_stops")
    assert told["step"] == 5
    assert not cluster.broken(job)


def test_cancel_ends_the_trainers(cluster: Cluster) -> None:
    job = cluster.submit("high.py", train__steps=10_000, job__args=SLOW)
    cluster.wait_step(job, 3)
    assert trainers(cluster)
    answer = json.loads(cluster.command("cancel", job, "--json"))
    assert answer == {"id": job, "state": "cancelled"}
    assert cluster.wait_end(job, "cancelled")["ranks"] == []
    cluster.wait_for("its trainers to end", lambda: not trainers(cluster))


def test_jobs_run_in_the_order_of_the_queue(cluster: Cluster) -> None:
    first = cluster.submit("high.py", recovery__spare="none", train__steps=10, job__args=SLOW)
    second = cluster.submit("high.py", recovery__spare="none", train__steps=5)
    state = cluster.status(second)["state"]
    if cluster.status(first)["state"] == "running":
        assert state == "queued"
    cluster.wait_end(first)
    cluster.wait_end(second)
    ends = cluster.kinds(first, "job_finished")
    begins = cluster.kinds(second, "world_formed")
    assert ends[0]["time"] < begins[0]["time"]


@pytest.mark.deep
@pytest.mark.parametrize("struck", ["trainer", "reducer", "node", "everything"])
def test_fast_reduction_survives_a_kill(struck: str, cluster: Cluster) -> None:
    """With another loss than the exact one by rounding alone, and each sample used once."""
    exact = cluster.wait_end(cluster.submit("high.py", world__max=2))
    pace = ["--pace-seconds", "0.15"]
    job = cluster.submit("high.py", world__reduction="fast", job__args=pace)
    ranks = cluster.wait_whole(job, 12)["ranks"]
    match struck:
        case "trainer":
            cluster.wait_for("rank 1", lambda: cluster.kill_trainer(job, 1))
        case "reducer":
            cluster.wait_for("rank 1's", lambda: cluster.kill_reducer(job, 1))
        case "node":
            cluster.kill_node(ranks[1]["node"])
        case _:
            cluster.kill_nodes(cluster.nodes)
            cluster.revive()
    cluster.hurry(job)
    status = cluster.wait_end(job)
    broken = status["recoveries"] + cluster.moves(job)
    assert broken >= 1 or struck == "everything", cluster.report("a kill broke nothing", job)
    assert status["lost_steps"] == 0 or struck == "everything"
    assert (status["exact"], exact["exact"]) == (False, True)
    assert status["loss"] == pytest.approx(exact["loss"], rel=0.05)
    cluster.check_ledger(job, STEPS, cumulative=True)


def test_why_bits_can_not_be_promised_is_said_or_fails_the_job(cluster: Cluster) -> None:
    job = cluster.submit("unsteady.py", recovery__spare="none", train__steps=3)
    status = cluster.wait_end(job)
    assert status["exact"] is False
    assert "one grain computed twice gave different bits" in status["exact_reason"]
    (told,) = cluster.kinds(job, "exact_lost")
    assert told["reason"] == status["exact_reason"]
    job = cluster.submit(
        "unsteady.py", recovery__spare="none", train__steps=3, world__require_exact=True
    )
    status = cluster.wait_end(job, "failed")
    assert status["step"] == 0
    assert "one grain computed twice gave different bits" in status["reason"]


@pytest.mark.deep
def test_a_sample_that_differs_on_one_node_is_named(cluster: Cluster) -> None:
    job = cluster.submit("odd_data.py", train__steps=6, recovery__verify_every=1)
    status = cluster.wait_end(job)
    assert status["exact"] is False
    assert "the sample at position" in status["exact_reason"]


@pytest.mark.deep
def test_a_sample_of_a_list_that_differs_is_named_before_the_first_step(cluster: Cluster) -> None:
    job = cluster.submit("odd_list.py", train__steps=6)
    assert cluster.wait_end(job)["exact"] is True
    (told,) = cluster.kinds(job, "node_unfit")
    assert told["node"] == "node-1" and told["reason"].startswith("data/sample 70 is ")


def test_followed_streams_end_with_the_job(cluster: Cluster) -> None:
    job = cluster.submit("high.py", recovery__spare="none", train__steps=20)
    cluster.wait_step(job, 1)
    streams = {
        "logs": follow(cluster, "logs", job),
        "rank": follow(cluster, "logs", job, "--rank", "1", "--json"),
        "events": follow(cluster, "events", job, "--json"),
    }
    said = {}
    for name, stream in streams.items():
        with stream:
            said[name], errors = stream.communicate(timeout=WAIT_SECONDS)
            assert stream.returncode == 0, cluster.report(f"{name}: {errors}", job)
    cluster.wait_end(job)
    assert "step 20 loss" in said["logs"]
    lines = [json.loads(line) for line in said["rank"].splitlines()]
    assert {line["rank"] for line in lines} == {1}
    text = "".join(line["text"] for line in lines)
    assert "step 20 loss" in text and "digest" in text
    events = [json.loads(line) for line in said["events"].splitlines()]
    assert events[0]["kind"] == "job_submitted" and events[-1]["kind"] == "job_finished"
    again = cluster.command("events", job, "--json").splitlines()
    assert in_order([json.loads(line) for line in again]) == in_order(events)


def in_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By their times: who follows hears them as they arrive. What other nodes tell of checkpoints
    that they skip may arrive after the job's last event."""
    told = (event for event in events if event["kind"] != "checkpoint_skipped")
    return sorted(told, key=lambda event: (event["time"], json.dumps(event)))


def follow(cluster: Cluster, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ELASTICCTL, "--home", cluster.home, *words, "-f"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cluster.environment,
    )


@pytest.mark.deep
def test_folders_and_bare_files_renamed_into_jobs_are_submitted(cluster: Cluster) -> None:
    jobs, beside = cluster.home / "node-1" / "jobs", cluster.home / "beside"
    text = (JOBS / "job.toml").read_text().replace(f"steps = {STEPS}", "steps = 2")
    beside.write_text(text)
    beside.rename(jobs / "bare.toml")
    refused, taken = jobs / "bare.refused", jobs / "bare.submitted"
    cluster.wait_for("the refusal", lambda: refused.exists() and refused.read_text())
    assert 'bare.toml:5: job.entrypoint: there is no "high.py"' in refused.read_text()
    for name in ("high.py", "common.py"):
        shutil.copy(JOBS / name, jobs)
    beside.write_text(text.replace("[job]\n", '[job]\nfiles = ["common.py"]\n'))
    beside.rename(jobs / "bare.toml")
    cluster.wait_for("the id", lambda: taken.exists() and taken.read_text())
    cluster.wait_for("the refusal to go", lambda: not refused.exists())
    cluster.wait_end(taken.read_text().strip())
    shutil.copytree(JOBS, beside)
    description = beside / "job.toml"
    description.write_text(description.read_text().replace(f"steps = {STEPS}", "steps = 2"))
    known = {each["id"] for each in cluster.client.request(ShowStatus())["jobs"]}
    beside.rename(jobs / "whole")

    def submitted() -> list[str]:
        every = cluster.client.request(ShowStatus())["jobs"]
        return [each["id"] for each in every if each["id"] not in known]

    (job,) = cluster.wait_for("the job", submitted)
    cluster.wait_end(job)
