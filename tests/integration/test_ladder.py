"""Every rung with the real thing: stopped and stuck processes, memory that really runs out, poison,
losses that are not finite, parameters that drift apart."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.core.leading.patience import FLOOR_SECONDS
from elasticd.core.words.requests.chaos import StrikeRank
from elasticd.types import JobId
from tests.integration import ledgers, memorygroup
from tests.integration.cluster import STEPS, Cluster
from tests.integration.memorygroup import Hog, MemoryGroup
from tests.integration.silence import silent, times, wait_all
from tests.integration.test_digest import check

pytestmark = pytest.mark.process

Undisturbed = Callable[[str], str]
SLOW = ["--pace-seconds", "0.01"]
SLOWER = ["--pace-seconds", "0.2"]
"""For what a command strikes, which takes seconds to start on a busy machine."""
SLOWEST = ["--pace-seconds", "0.5"]
MIB = 1 << 20
DEEP = pytest.mark.deep  # test_recovery.py has the same fault


def the_fault(cluster: Cluster, job: str, fault: str, node: str = "") -> dict[str, Any]:
    """The first of its kind, of ``node`` if given: others may be late on a busy machine."""
    found = [e for e in cluster.kinds(job, "fault_detected") if e["fault"] == fault]
    found = [e for e in found if node in ("", e["node"])]
    assert found, cluster.report(f"no {fault}", job)
    return found[0]


def strike(cluster: Cluster, what: str, job: str, rank: int, process: str = "trainer") -> None:
    options = () if what == "oom" else ("--process", process)
    cluster.command("chaos", what, job, "--rank", str(rank), *options)


# Chaos and hangs.


@pytest.mark.parametrize(
    ("what", "process", "fault", "rung"),
    [
        pytest.param("kill", "trainer", "worker_exit", "regroup", marks=DEEP),
        ("kill", "reducer", "reducer_lost", "retry"),
        pytest.param("hang", "trainer", "hang", "regroup", marks=DEEP),
        ("hang", "reducer", "hang", "retry"),
        pytest.param("kill", "node", "peer_lost", "regroup", marks=DEEP),
    ],
)
def test_chaos(
    cluster: Cluster, undisturbed: Undisturbed, what: str, process: str, fault: str, rung: str
) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOWER)
    before = cluster.wait_whole(job, 3)
    strike(cluster, what, job, 1, process)
    check(cluster, job, "high.py", expected)
    found = the_fault(cluster, job, fault, before["ranks"][1]["node"])
    rungs = [e["rung"] for e in cluster.kinds(job, "recovery_finished")]
    assert rung in rungs, cluster.report(f"{rungs}", job)
    if what == "hang":
        assert "stopped (SIGSTOP)" in found["reason"]


@pytest.mark.alone
def test_a_slowed_trainer_is_given_fewer_grains(cluster: Cluster, undisturbed: Undisturbed) -> None:
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", recovery__spare="none", job__args=["--pace-seconds", "0.05"])
    before = wait_all(cluster, job, 3, 4)["ranks"]
    slow = before[2]["node"]
    cluster.client.request(StrikeRank("slow", JobId(job), 2, seconds=30.0))

    def moved() -> int | None:
        ranks = {rank["node"]: rank for rank in cluster.status(job)["ranks"]}
        fewer = slow in ranks and ranks[slow]["grains"] < before[2]["grains"]
        return ranks[slow]["pid"] if fewer else None

    stays = cluster.wait_for("fewer grains", moved) == before[2]["pid"]
    assert stays or silent(cluster, job), "its trainer stays"
    check(cluster, job, "high.py", expected)
    assert cluster.broken(job) == [], cluster.report("that breaks nothing", job)
    assert cluster.status(job)["recoveries"] in times(cluster, job, 0)


def test_chaos_on_what_there_is_not(cluster: Cluster) -> None:
    assert cluster.run("chaos", "kill", "nothing", "--rank", "0").returncode == 1
    job = cluster.submit("high.py", recovery__spare="none", job__args=SLOWEST)
    cluster.wait_whole(job, 1)
    assert cluster.run("chaos", "kill", job, "--rank", "77").returncode == 1
    assert cluster.run("chaos", "melt", job, "--rank", "0").returncode == 2
    cluster.command("cancel", job)


@pytest.mark.deep
def test_a_stuck_data_loader_is_told_from_slow_compilers(cluster: Cluster, tmp_path: Path) -> None:
    """The first grain of each trainer takes long, also that of the successor, for whom the others
    wait; this teaches nothing of how long later ones may take."""
    arguments = ["--trouble", "stuck", "--at", "25", "--folder", str(tmp_path)]
    arguments += ["--compile-seconds", str(1.1 * FLOOR_SECONDS)]
    settings: dict[str, Any] = {"world__min": 3, "world__max": 3}
    job = cluster.submit("ladder.py", job__args=arguments, **settings)
    cluster.wait_end(job)
    cluster.check_ledger(job, STEPS, cumulative=True)
    found = the_fault(cluster, job, "hang")
    assert [e["fault"] for e in cluster.faults(job)] == ["hang"], cluster.report(
        "others are blamed", job
    )
    assert "phase data of step 25" in found["reason"]
    assert "__getitem__" in found["reason"], cluster.report("no stack", job)


# Memory.


def test_a_crash_for_want_of_memory(cluster: Cluster, undisturbed: Undisturbed) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux can limit a running process's memory")
    expected = undisturbed("high.py")
    job = cluster.submit("high.py", job__args=SLOWER)
    cluster.wait_whole(job, 3)
    strike(cluster, "oom", job, 1)
    check(cluster, job, "high.py", expected)
    found = the_fault(cluster, job, "oom")
    assert "address space" in found["reason"]
    (relieved,) = cluster.kinds(job, "memory_relieved")
    assert relieved["level"] == 1
    status = cluster.status(job)
    assert (status["micro_batch"], status["relief"]) == (2, 1)


def limit_memory(cluster: Cluster, pid: int, more_bytes: int) -> None:
    """Limit a trainer to what it has between two grains, and ``more_bytes``. Linux only."""
    if sys.platform != "linux":
        raise OSError("only Linux can limit a running process's memory")
    sizes: list[int] = []

    def enough() -> bool:
        sizes.append(psutil.Process(pid).memory_info().vms)
        return len(sizes) >= 40

    cluster.wait_for("sizes of a trainer", enough)
    limit = min(sizes) + more_bytes
    resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def test_allocations_that_fail_halve_the_grain_in_place(cluster: Cluster) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux can limit a running process's memory")
    settings: dict[str, Any] = {"batch__micro": 8, "world__max": 2, "train__steps": 40}
    settings["recovery__spare"] = "none"
    plain = cluster.submit("ladder.py", **settings)
    cluster.wait_end(plain)
    curve = {line["step"]: line["loss"] for line in ledgers.lines(cluster.home, plain)}

    arguments = ["--pace-seconds", "0.1", "--sample-bytes", str(24 * MIB)]
    job = cluster.submit("ladder.py", job__args=arguments, **settings)
    before = wait_all(cluster, job, 8, 2)
    limit_memory(cluster, before["ranks"][1]["pid"], 60 * MIB)
    cluster.hurry(job)
    status = cluster.wait_end(job)
    found, unasked = cluster.broken(job), silent(cluster, job)
    assert {e["fault"] for e in found} == {"oom"}, cluster.report("other faults", job)
    assert "MemoryError" in found[0]["reason"]
    rungs = {e["rung"] for e in cluster.kinds(job, "recovery_finished")}
    assert rungs == {"relieve"} or unasked, cluster.report(f"{rungs}", job)
    shrunk = cluster.kinds(job, "batch_shrunk")
    assert [(e["micro_before"], e["micro_after"]) for e in shrunk] == [(8, 2)], (
        "by what was asked for"
    )
    assert all(e["global_batch"] == 16 and "last bits" in e["reason"] for e in shrunk)
    assert (status["micro_batch"], status["micro_batch_asked"]) == (2, 8)
    assert status["exact"] is False and status["lost_steps"] == 0
    cluster.check_ledger(job, 40, cumulative=True)
    for line in ledgers.lines(cluster.home, job):
        assert line["loss"] == pytest.approx(curve[line["step"]], rel=1e-4)
    stayed = len(ledgers.writers(cluster.home, job)) == 2
    assert stayed or unasked, "a trainer was replaced"


@pytest.fixture
def group() -> Iterator[MemoryGroup]:
    """A memory cgroup of our own."""
    if why := memorygroup.why_not():
        pytest.skip(why)
    with MemoryGroup() as made:
        yield made


def test_the_kernel_kills_for_want_of_memory(cluster: Cluster, group: MemoryGroup) -> None:
    pace = ["--pace-seconds", "0.1"]
    job = cluster.submit("ladder.py", job__args=pace, world__max=2, recovery__spare="none")
    before = cluster.wait_whole(job, 3)
    pid = before["ranks"][1]["pid"]
    group.add(pid)
    cluster.wait_step(job, before["step"] + 4)  # its daemon has seen where it is now
    assert group.exhaust(pid)
    cluster.hurry(job)
    cluster.wait_end(job)
    found = the_fault(cluster, job, "oom")
    assert "the kernel killed for want of memory" in found["reason"]
    cluster.check_ledger(job, STEPS, cumulative=True)


def trainers_of(cluster: Cluster, node: str) -> list[int]:
    return [one.pid for one in cluster.processes(node) if one.role == "trainer"]


def left_mib(sign: dict[str, Any]) -> int:
    """From "57 of 1536 MiB of memory of its cgroup are left: …"."""
    assert f"of {PRESSED_LIMIT_MIB} MiB of memory of its cgroup are left" in sign["reason"]
    return int(sign["reason"].split()[0])


PRESSED_LIMIT_MIB = 4096  # of which 4 % are 163; a reducer takes 32 as it joins a ring
ROOM_MIB, FIRST_LEFT_MIB = 420, 155  # for what a node starts for a job; at the first sign
GIFTS = (
    "its spare trainer ends",
    "its trainer gives its caches back",
    "it asks the job to need less",
)


@pytest.mark.deep
def test_memory_is_given_back_before_it_runs_out(
    cluster: Cluster, group: MemoryGroup, undisturbed: Undisturbed
) -> None:
    """On a node where a neighbour in its cgroup takes more and more."""
    expected = undisturbed("high.py")
    node = cluster.nodes[-1]
    group.add(cluster.processes(node)[0].pid)  # what it starts from now on is in there, too
    group.limit(PRESSED_LIMIT_MIB * MIB)
    with Hog(group) as hog:
        hog.leave(ROOM_MIB * MIB)
        job = cluster.submit("high.py", job__args=["--pace-seconds", "0.3"])
        before = cluster.wait_whole(job, 1)
        cluster.wait_for("a spare", lambda: len(trainers_of(cluster, node)) == 2)
        signs: list[dict[str, Any]] = []

        def another() -> bool:
            # Less than nine tenths of what was left at the last sign.
            left = 0.85 * left_mib(signs[-1]) if signs else FIRST_LEFT_MIB
            hog.leave(int(left * MIB))
            signs[:] = cluster.kinds(job, "memory_pressure")
            return len(signs) == len(GIFTS) or cluster.status(job)["state"] == "finished"

        cluster.wait_for("memory to be given back", another)
        check(cluster, job, "high.py", expected)
    told = [event["reason"] for event in signs]
    assert all(gift in reason for gift, reason in zip(GIFTS, told, strict=True)), told
    assert {event["node"] for event in signs} == {node}
    found = cluster.kinds(job, "memory_relieved")
    assert len(found) == 1, cluster.report("no relief, or more than was needed", job)
    assert "activations are computed again" in found[0]["reason"] and found[0]["level"] == 2
    assert f"on {node} " in found[0]["reason"]
    assert cluster.broken(job) == [], cluster.report("memory ran out", job)
    assert cluster.kinds(job, "batch_shrunk") == [] and group.kills == 0
    stayed = ledgers.writers(cluster.home, job) == {rank["pid"] for rank in before["ranks"]}
    assert stayed or silent(cluster, job), "in place"


# The script's own trouble.


def test_a_loss_that_is_not_finite_stops_the_job(cluster: Cluster) -> None:
    job = cluster.submit(
        "ladder.py", recovery__spare="none", job__args=["--trouble", "nan", "--at", "7"]
    )
    status = cluster.wait_end(job, "failed")
    assert "the loss of step 7 is nan" in status["reason"]


def test_a_loss_that_is_not_finite_is_skipped_alike(cluster: Cluster) -> None:
    arguments = ["--trouble", "nan", "--at", "7"]
    settings: dict[str, Any] = {"job__args": arguments, "recovery__verify_every": 5}
    settings["recovery__on_nan"] = "skip"
    digests = []
    for size in (1, 3):
        job = cluster.submit(
            "ladder.py", recovery__spare="none", world__max=size, train__steps=20, **settings
        )
        digests.append(cluster.wait_end(job)["digest"])
        (skipped,) = cluster.kinds(job, "step_skipped")
        assert skipped["step"] == 7
        assert cluster.broken(job) == []
    assert digests[0] == digests[1]


@pytest.mark.deep
def test_a_loss_that_is_not_finite_goes_back(cluster: Cluster, tmp_path: Path) -> None:
    arguments = [*SLOW, "--trouble", "nan-once", "--at", "25", "--folder", str(tmp_path)]
    job = cluster.submit("ladder.py", job__args=arguments, recovery__on_nan="restore")
    cluster.wait_end(job)
    (ended,) = cluster.kinds(job, "recovery_finished")
    assert ended["rung"] == "restore" and ended["resume_step"] in (10, 20)
    assert the_fault(cluster, job, "divergence")["reason"].endswith("the loss of step 25 is nan")

    arguments = ["--trouble", "nan", "--at", "15"]
    job = cluster.submit("ladder.py", job__args=arguments, recovery__on_nan="restore")
    status = cluster.wait_end(job, "failed")
    assert "the same data does it" in status["reason"]


@pytest.mark.parametrize("policy", ["restore", pytest.param("continue", marks=DEEP)])
def test_the_odd_one_out_takes_the_others_state(
    cluster: Cluster, tmp_path: Path, policy: str
) -> None:
    """It has added to sums before: nothing of them is left where all go back."""
    job = cluster.submit("ladder.py", world__max=3, train__steps=40, recovery__spare="none")
    expected = cluster.wait_end(job)["digest"]
    arguments = ["--pace-seconds", "0.05", "--trouble", "drift", "--at", "22"]
    arguments += ["--folder", str(tmp_path)]
    settings: dict[str, Any] = {"recovery__verify_every": 4, "world__max": 3, "train__steps": 40}
    settings["recovery__on_divergence"] = policy
    job = cluster.submit("ladder.py", job__args=arguments, **settings)
    before = wait_all(cluster, job, 5, 3)
    cluster.wait_for("a fault", lambda: cluster.broken(job))
    cluster.hurry(job)
    status = cluster.wait_end(job)
    found, unasked = the_fault(cluster, job, "divergence"), silent(cluster, job)
    odd = before["ranks"][1]["node"]
    assert found["node"] == odd or unasked, cluster.report("another node", job)
    # A rank that is still at the check of one state leaves out the next.
    at = re.search(r"differ from the majority's after step (\d+)", found["reason"])
    assert at is not None and int(at[1]) in (24, 28, 32), found
    assert status["step"] == status["digest_step"] == 40 and expected
    rungs = cluster.kinds(job, "recovery_finished")
    assert len(rungs) in times(cluster, job, 1), cluster.report("other recoveries", job)
    rung = "restore" if policy == "restore" else "regroup"
    ended = next(event for event in rungs if event["rung"] == rung)
    lost = [event["reason"] for event in cluster.kinds(job, "exact_lost")]
    if policy == "restore":
        assert ended["resume_step"] in (10, 20)
        assert (status["digest"], status["exact"], lost) == (expected, True, [])
    else:
        assert ended["lost_steps"] == 0
        assert status["digest"] != expected and not status["exact"]
        (why,) = lost
        assert why.endswith(tuple(f"since step {step}" for step in (10, 12, 16, 20)))
        assert status["exact_reason"] == why
    shown = [(event["kind"], event["reason"]) for event in status["recent"]]
    assert ("fault_detected", found["reason"]) in shown, shown


@pytest.mark.deep
def test_hardware_that_flips_a_bit_is_found_and_left_out(cluster: Cluster) -> None:
    """It does so in every grain from step 4 on; equal parameters can't show it."""
    arguments = [*SLOW, "--trouble", "flip", "--at", "4", "--node", "node-1"]
    settings: dict[str, Any] = {"recovery__recheck_every": 2, "train__steps": 24}
    job = cluster.submit("ladder.py", job__args=arguments, world__max=3, **settings)
    status = cluster.wait_end(job)
    found = cluster.faults(job)
    assert [(e["fault"], e["node"]) for e in found] == [("divergence", "node-1")] * 2
    assert "was computed again and has other bits here than on 2 others" in found[0]["reason"]
    (quarantined,) = cluster.kinds(job, "node_quarantined")
    assert quarantined["node"] == "node-1" and status["quarantined"] == ["node-1"]
    assert "node-1" not in cluster.kinds(job, "world_formed")[-1]["members"]
    assert status["lost_steps"] == 0 and status["recoveries"] == 0


@pytest.mark.deep
def test_poison_fails_the_job_with_its_evidence(cluster: Cluster) -> None:
    arguments = ["--trouble", "poison", "--at", "12"]
    job = cluster.submit("ladder.py", job__args=arguments, world__max=3)
    status = cluster.wait_end(job, "failed")
    assert "step 12 ends every trainer that computes it: signal 6" in status["reason"]
