"""A plain job's script goes on from what it has saved, whichever node is rank 0's by then."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.shell.storage.outputplacing import Placed
from tests.integration.cluster import Cluster
from tests.integration.plainscripts import lines, nodes_of, script_of, submitter, wait_lines
from tests.integration.silence import silent

pytestmark = pytest.mark.process


@pytest.fixture
def submit(cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    return submitter(cluster, tmp_path)


def test_every_rank_finds_rank_0s_newest_checkpoint(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    """Which no copy by the clock has brought there."""
    job = submit("newest.py", plain="copy_seconds = 3600")
    wait_lines(cluster, job, "saved 10", 1)
    os.kill(script_of(cluster, job, 1).pid, signal.SIGKILL)
    cluster.hurry(job)
    cluster.wait_end(job)
    begun = [line for line in lines(cluster, job) if "at 10" in line]
    assert len(begun) == 3 or (silent(cluster, job) and len(begun) > 3), cluster.report("at", job)


@pytest.mark.parametrize(
    ("args", "keep", "place"),
    [((), 'keep = ["ckpt/*.npz"]\nkeep_last = 2', "kept"), (("call",), "", "kept/calls")],
    ids=["a pattern", "a call"],
)
def test_its_own_files_outlive_the_node_of_rank_0(
    cluster: Cluster,
    submit: Callable[..., str],
    tmp_path: Path,
    args: tuple[str, ...],
    keep: str,
    place: str,
) -> None:
    """It writes in its working folder, and goes on from there on another node."""
    job = submit("keeps.py", *args, plain=f"copy_seconds = 0.5\n{keep}")
    wait_lines(cluster, job, "init", 3)
    main, *_ = nodes_of(cluster, job)
    others = [node for node in cluster.nodes if node != main]

    def copied() -> bool:
        return all(
            list((cluster.home / node / "output" / job / place).glob("*.json")) for node in others
        )

    cluster.wait_for("a copy", lambda: copied() or None)
    cluster.kill_node(main)
    cluster.hurry(job)
    cluster.wait_end(job)
    said = lines(cluster, job)
    begun = [line for line in said if "init" in line]
    assert begun and not begun[-1].endswith("at 0"), begun
    assert any("it has the files that were kept: ckpt/000" in line for line in said)
    assert sum("saved" in line for line in said) >= 2
    cluster.command("outputs", job, "--out", tmp_path / "out")
    assert list((tmp_path / "out" / place / "files").glob("*-00100.npz"))


def test_what_only_one_survivor_has_comes_to_the_next_rank_0(
    cluster: Cluster, submit: Callable[..., str]
) -> None:
    """No copy is made by the clock: ``keep`` alone has it made."""
    job = submit("once.py", plain="copy_seconds = 3600")
    wait_lines(cluster, job, "kept", 1)
    main, heir, other = nodes_of(cluster, job)

    def copied() -> bool:
        homes = [cluster.home / node for node in (heir, other)]
        there = all(list((home / "output" / job / "kept/calls").glob("*.json")) for home in homes)
        notes = [Placed.read(home / "outputs" / job / "placed.msgpack") for home in homes]
        return there and all(each.marks and not each.coming for each in notes)  # written last

    cluster.wait_for("copies of what was kept", lambda: copied() or None)
    shutil.rmtree(cluster.home / heir / "outputs" / job)
    shutil.rmtree(cluster.home / heir / "output" / job / "kept")
    cluster.kill_node(main)
    cluster.wait_end(job)
    if silent(cluster, job, main):
        return  # a survivor that was silent is not rank 0 next
    worlds = [world["members"] for world in cluster.kinds(job, "world_formed")]
    assert worlds[0][0] == main and {world[0] for world in worlds[1:]} == {heir}, worlds
    begun = [line for line in lines(cluster, job) if "init" in line]
    # What the first rank 0 printed is on the node that is gone.
    assert sum("found 0" in line for line in begun) == 2, begun
    assert sum("found 1" in line for line in begun) >= 2, begun
    # Copies that were under way when their source was killed may have been told of.
    told = [event["reason"] for event in cluster.kinds(job, "output_not_copied")]
    assert not [reason for reason in told if "which is main now" in reason]
