"""Scripts that make their own ``mx.distributed`` group run unchanged, and survive."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.cli.submit import prepare
from tests import tinylm
from tests.integration.cluster import Cluster
from tests.integration.plainscripts import (
    SCRIPTS,
    lines,
    nodes_of,
    script_of,
    submitter,
    wait_lines,
)
from tests.integration.silence import silent, times
from tests.integration.test_unfit import unmounted

pytestmark = pytest.mark.process


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    return submitter(cluster, tmp_path)


def scripts(job: str) -> list[int]:
    """All processes that the job's scripts are, or have started."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if job in process.environ().get("ELASTICD_OUTPUT_DIR", ""):
                found.append(process.pid)
    return found


def test_data_parallel_training(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("parallel.py")
    ended = cluster.wait_end(job)
    assert ended["recoveries"] in times(cluster, job, 0), cluster.report("restarted", job)
    said = cluster.command("logs", job).splitlines()
    assert sorted(said) == sorted(lines(cluster, job))
    for rank in range(3):
        assert f"[{rank}] init {rank} of 3" in said
        assert f"[{rank}] weights True" in said
    assert not scripts(job)


def test_the_helpers_average_as_mlx_does(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("averages.py")
    cluster.wait_end(job)
    assert sum("averaged" in line for line in lines(cluster, job)) == 3


def test_weights_that_differ_end_the_job_by_name(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    job = submit("drifts.py")
    ended = cluster.wait_end(job, "failed")
    said = lines(cluster, job)
    assert sum("same at 4" in line for line in said) == 3
    assert not any("same at 6" in line or "never" in line for line in said)
    wrong = "layers.1.weight (float32, 2x3) is not the same: rank 1 differs from 0, 2"
    assert sum(wrong in line for line in said) == 3
    assert wrong in str(ended["reason"])


def test_a_killed_script_begins_anew_on_all_ranks(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    job = submit("sums.py", "5", "held")
    wait_lines(cluster, job, "init", 3)
    os.kill(script_of(cluster, job, 1).pid, signal.SIGKILL)
    cluster.hurry(job)
    ended = cluster.wait_end(job)
    said = lines(cluster, job)
    unasked = silent(cluster, job)
    for rank in range(3):
        assert f"[{rank}] init {rank} of 3, time 1" in said or unasked
        assert said.count(f"[{rank}] summed 3") in times(cluster, job, 1)
    (fault,) = cluster.broken(job)
    assert fault["fault"] == "reducer_lost" and "signal 9" in str(fault["evidence"])
    assert ended["recoveries"] in times(cluster, job, 1)
    assert ended["restarts"] == 1 or unasked, cluster.report("restarts", job)
    (over,) = cluster.kinds(job, "job_finished")
    assert over["reason"] == "every rank's script has exited with 0"
    assert "goodput" not in report_of(cluster, job).lower()


def test_a_killed_reducer_is_replaced_beside_the_script(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    """As docs/plain.md says: a world is lost and formed, and the script knows nothing of it."""
    job = submit("sums.py", "5", "held")
    wait_lines(cluster, job, "init", 3)
    running = [script_of(cluster, job, rank).pid for rank in range(3)]
    cluster.wait_for("rank 1", lambda: cluster.kill_reducer(job, 1))
    cluster.wait_for("a recovery", lambda: cluster.status(job)["recoveries"] >= 1)
    nodes_of(cluster, job)
    same = [script_of(cluster, job, rank).pid for rank in range(3)] == running
    cluster.hurry(job)
    ended = cluster.wait_end(job)
    said = lines(cluster, job)
    same &= all(said.count(f"[{rank}] init {rank} of 3, time 0") == 1 for rank in range(3))
    assert (same and ended["restarts"] == 0) or silent(cluster, job), said
    assert [fault["fault"] for fault in cluster.broken(job)] == ["reducer_lost"]
    assert ended["recoveries"] in times(cluster, job, 1)


def report_of(cluster: Cluster, job: str) -> str:
    cluster.command("report", job, "--markdown", "--overwrite", "--out", cluster.home / "report.md")
    return (cluster.home / "report.md").read_text()


def test_a_killed_trainer_takes_its_script_along(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    job = submit("sums.py", "5", "held", "with-three")
    wait_lines(cluster, job, "init", 3)
    script = script_of(cluster, job, 1)
    cluster.wait_for("rank 1", lambda: cluster.kill_trainer(job, 1))
    psutil.wait_procs([script], timeout=10)
    assert not script.is_running()
    cluster.hurry(job)
    wait_lines(cluster, job, "summed 3", 3)
    cluster.wait_end(job)
    assert any("of 3, time" in line for line in lines(cluster, job) if "time 0" not in line)


def test_a_lost_node(cluster: Cluster, submit: Callable[..., str]) -> None:
    """The script goes on from what it has saved, which was copied to the others."""
    job = submit("saves.py", plain="copy_seconds = 0.5")
    wait_lines(cluster, job, "init", 3)
    main, *_ = nodes_of(cluster, job)
    others = [node for node in cluster.nodes if node != main]

    def copied() -> bool:
        folders = [cluster.home / node / "output" / job for node in others]
        return all(list(folder.glob("0*.npz")) for folder in folders)

    cluster.wait_for("copies, as any may have rank 0 next", lambda: copied() or None)
    cluster.kill_node(main)
    cluster.wait_for("three ranks without it", lambda: main not in nodes_of(cluster, job))
    cluster.hurry(job)
    cluster.wait_end(job)
    begun = [line for line in lines(cluster, job) if "init" in line]
    assert any(not line.endswith("at 0") for line in begun), begun
    saved = sum("saved" in line for line in lines(cluster, job))
    assert saved == 3 or silent(cluster, job, main), cluster.report(f"saved {saved} times", job)


@pytest.fixture
def example(cluster: Cluster, tmp_path: Path) -> str:
    """The example, begun on two nodes, at a pace."""
    folder = tmp_path / "job"
    shutil.copytree(Path(__file__).parents[2] / "elasticd" / "examples" / "plain", folder)
    for script in ("paced.py", "hold.py"):
        shutil.copy(SCRIPTS / script, folder)
    words = ['job.args=["--steps", "400", "--save-every", "20"]', "world.max=2"]
    words.append('job.entrypoint="paced.py"')
    return str(cluster.client.submit(*prepare(folder / "job.toml", words)))


def test_the_example_goes_on_from_its_own_checkpoint(cluster: Cluster, example: str) -> None:
    """Its pattern keeps it; rank 1's script is killed."""
    wait_lines(cluster, example, "step 60:", 1)
    os.kill(script_of(cluster, example, 1).pid, signal.SIGKILL)
    cluster.hurry(example)
    cluster.wait_end(example)
    said = lines(cluster, example)
    begun = [line for line in said if "begins behind step" in line]
    later = sum(not line.endswith(" step 0") for line in begun)
    once = (len(begun), later) == (4, 2)
    assert once or (later >= 2 and silent(cluster, example)), begun
    assert any("step 400: loss" in line for line in said)


@pytest.mark.deep
def test_everything_is_lost_at_once(cluster: Cluster, example: str) -> None:
    """All nodes, with what they had started. The example goes on from its own checkpoint."""

    def kept() -> bool:
        folders = [cluster.home / node / "output" / example / "kept" for node in cluster.nodes]
        return all(list(folder.glob("*.json")) for folder in folders)

    cluster.wait_for("copies of what the pattern keeps", kept)
    cluster.kill_nodes(cluster.nodes)
    cluster.hurry(example)
    cluster.revive()
    cluster.wait_end(example)
    said = lines(cluster, example)
    begun = [line for line in said if "begins behind step" in line]
    assert len(begun) >= 4 and sum(not line.endswith(" step 0") for line in begun) >= 2, begun
    assert any("step 400: loss" in line for line in said)


def check_hung(cluster: Cluster, job: str, evidence: str = "") -> None:
    """One hang broke it, unless it began anew for a silence before: then it hung no more."""
    found = cluster.broken(job)
    kinds = [fault["fault"] for fault in found]
    assert kinds == ["hang"] or (silent(cluster, job) and not kinds), cluster.report("hang", job)
    assert all(evidence in str(fault["evidence"]) for fault in found), cluster.report("hang", job)


def test_a_hung_script(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("sums.py", "5", "sleeps", plain="hang_seconds = 4")
    cluster.wait_end(job)
    check_hung(cluster, job, "plain.hang_seconds")
    summed = sum("summed 3" in line for line in lines(cluster, job))
    assert summed == 3 or silent(cluster, job), cluster.report(f"summed {summed} times", job)


def test_a_hang_of_all_begins_anew_once(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("sums.py", "5", "all-sleep", plain="hang_seconds = 4")
    ended = cluster.wait_end(job)
    assert ended["recoveries"] in times(cluster, job, 1), cluster.report("once", job)
    again = any("time 2" in line for line in lines(cluster, job))
    assert not again or silent(cluster, job), cluster.report("twice", job)


def test_a_stopped_script(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("sums.py", "5", "held")
    wait_lines(cluster, job, "init", 3)
    os.kill(script_of(cluster, job, 2).pid, signal.SIGSTOP)
    cluster.hurry(job)
    cluster.wait_end(job)
    check_hung(cluster, job)


def test_a_script_that_fails_everywhere_ends_the_job(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    job = submit("sums.py", "5", "raises")
    ended = cluster.wait_end(job, "failed")
    assert "ended with exit status 1 on every rank" in ended["reason"]
    assert ended["reason"].endswith("ValueError: there is no such data set")
    assert ended["recoveries"] in times(cluster, job, 0), cluster.report("restarted", job)


def test_a_script_of_an_elastic_job_is_refused(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    """On the nodes, where the job.toml is beside it, and each would train all of it for itself."""
    ended = cluster.wait_end(job := submit("runs.py"), "failed")
    assert "ended with exit status 1 on every rank" in ended["reason"]
    assert 'UsageError: this job is mode = "plain"' in ended["reason"]
    assert not [line for line in lines(cluster, job) if "trained" in line]


def test_a_script_that_fails_on_one_rank_again_and_again_ends_the_job(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    job = submit("sums.py", "5", "one-raises")
    ended = cluster.wait_end(job, "failed")
    ((left, reason),) = [(u["node"], u["reason"]) for u in ended["unfit"]]
    assert f"3 times in a row (rank 0, {left})" in reason
    assert f"3 times in a row, as before on {left} (rank 0, " in ended["reason"]
    assert ended["reason"].endswith("ValueError: rank 0 has no room")


def test_a_node_on_which_alone_it_fails_is_left_out(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    with unmounted(cluster, "node-1") as sign:
        job = submit("sums.py", "1", "unmounted", "held", members=4)
        status = cluster.wait_for("one to be left out", lambda: unfit(cluster, job))
        ((node, reason),) = [(u["node"], u["reason"]) for u in status["unfit"]]
        assert node == "node-1" and "3 times in a row (rank " in reason
        assert reason.endswith("FileNotFoundError: /Volumes/data is not mounted")
        nodes = " ".join(cluster.command("nodes").split())
        assert f"{job} goes on without node-1" in nodes and "is not mounted" in nodes
        (told,) = cluster.kinds(job, "node_unfit")
        assert told["node"] == "node-1"
        others = nodes_of(cluster, job, 3)
        assert "node-1" not in others

        cluster.command("retry", job)
        wait_lines(cluster, job, "FileNotFoundError", 4)
        cluster.wait_for("it to be left out again", lambda: unfit(cluster, job))
        assert nodes_of(cluster, job, 3) == others
        sign.unlink()
        cluster.command("retry", job)
        nodes_of(cluster, job, 4)
    cluster.hurry(job)
    assert cluster.wait_end(job)["unfit"] == []


def unfit(cluster: Cluster, job: str) -> dict[str, Any] | None:
    status = cluster.status(job)
    return status if status["unfit"] else None


def test_who_leaves_early_is_named(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("sums.py", "500", "one-leaves")
    ended = cluster.wait_end(job, "failed")
    why = "rank 1 had exited with status 0 before the others were done"
    assert ended["reason"].startswith(why)
    twice = ended["recoveries"] in times(cluster, job, 2)
    assert twice, cluster.report("the third failure ends it where it is", job)
    assert all(why in str(fault["evidence"]) for fault in cluster.broken(job))


def test_it_is_paused_and_cancelled(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("sums.py", "10000")
    wait_lines(cluster, job, "init", 3)
    cluster.command("pause", job)
    cluster.wait_for("a pause", lambda: cluster.status(job)["state"] == "paused" or None)
    cluster.wait_for("no script", lambda: not scripts(job) or None)
    cluster.command("resume", job)
    wait_lines(cluster, job, "time 1", 3)
    cluster.command("cancel", job)
    cluster.wait_end(job, "cancelled")
    cluster.wait_for("no script", lambda: not scripts(job) or None)


def test_alone(cluster: Cluster, submit: Callable[..., str]) -> None:
    job = submit("sums.py", "5", members=1)
    cluster.wait_end(job)
    assert "[0] summed 1" in lines(cluster, job)


def test_what_is_replaced_in_arguments(cluster: Cluster, submit: Callable[..., str]) -> None:
    """And what ``init`` does alone; as docs/plain.md says."""
    words = (
        "$MLX_RANK",
        "${MLX_WORLD_SIZE}",
        "$HOME",
        "$MLX_METAL_FAST_SYNCH",
        "$$",
        "$$HOME",
        "$NOT_THERE",
        "cost $5",
        "$",
    )
    asked = '[job.env]\nMLX_METAL_FAST_SYNCH = "1"'
    job = submit("arguments.py", *words, "x-$ELASTICD_RESTARTS.txt", members=1, plain=asked)
    cluster.wait_end(job)
    said = lines(cluster, job)
    (home,) = [line.removeprefix("[0] home ") for line in said if line.startswith("[0] home ")]
    given = ["0", "1", home, "1", "$", "$HOME", "$NOT_THERE", "cost $5", "$", "x-0.txt"]
    assert f"[0] given {given}" in said
    assert "[0] init {}: 1" in said and "[0] init {'backend': 'ring'}: 1" in said
    raised = [line for line in said if line.startswith("[0] init {'strict': True")]
    assert len(raised) == 2 and not any(line.endswith(": 1") for line in raised)


@pytest.mark.deep
@pytest.mark.alone  # while ranks wait MLX's ring keeps both cores busy, and others starve it
def test_mlx_lm_lora_unchanged(cluster: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    folder = tmp_path / "tune"
    tinylm.write_job(folder, tinylm.LORA)
    (folder / "lora.py").write_text("from mlx_lm.lora import main\n\nmain()\n")
    (folder / "job.toml").write_text(
        '[job]\nname = "plain"\nmode = "plain"\nentrypoint = "lora.py"\n'
        'args = ["-c", "lora.yaml", "--iters", "12", "--adapter-path", "$ELASTICD_OUTPUT_DIR"]\n'
        "[world]\nmax = 2\n"
    )
    job = str(cluster.client.submit(*prepare(folder / "job.toml", [])))
    cluster.wait_end(job)
    cluster.command("outputs", job, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "adapters.safetensors").stat().st_size > 0
