"""Jobs of mode plain in a cluster, and what their scripts say."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil

from elasticd.cli.submit import prepare
from elasticd.core.words.requests.logs import ReadLogs
from elasticd.types import JobId
from tests.integration.cluster import Cluster

SCRIPTS = Path(__file__).parent / "plain"


def submitter(cluster: Cluster, folder: Path) -> Callable[..., str]:
    """Submits one of the scripts, with arguments and lines of its ``[plain]``."""

    def submit(script: str, *args: str, plain: str = "", members: int = 3) -> str:
        text = (SCRIPTS / script).read_text()
        (folder / "job").mkdir()
        (folder / "job" / script).write_text(text)
        shutil.copy(SCRIPTS / "hold.py", folder / "job")
        job_file = folder / "job" / "job.toml"
        job_file.write_text(
            f'[job]\nname = "plain"\nmode = "plain"\nentrypoint = "{script}"\n'
            f"args = {list(args)}\n[world]\nmax = {members}\n[plain]\n{plain}\n"
        )
        return str(cluster.client.submit(*prepare(job_file, [])))

    return submit


def lines(cluster: Cluster, job: str) -> list[str]:
    """As ``elasticctl logs`` prints them, without a process: for who asks often."""
    said: dict[object, str] = {}
    for piece in cluster.client.stream(ReadLogs(JobId(job))):
        if text := piece.get("text"):
            rank = piece["node"] if piece["rank"] is None else piece["rank"]
            said[rank] = said.get(rank, "") + text
    return [f"[{rank}] {line}" for rank, text in said.items() for line in text.splitlines()]


def wait_lines(cluster: Cluster, job: str, text: str, count: int) -> list[str]:
    def look() -> list[str] | None:
        found = [line for line in lines(cluster, job) if text in line]
        return found if len(found) >= count else None

    return cluster.wait_for(f"{count} lines with {text!r}", look)


def nodes_of(cluster: Cluster, job: str, count: int = 3) -> list[str]:
    """By rank, once so many are there: who came late begins all of them anew."""

    def look() -> list[str] | None:
        found = [rank["node"] for rank in cluster.status(job)["ranks"]]
        return found if len(found) == count else None

    return cluster.wait_for(f"{count} ranks", look)


def script_of(cluster: Cluster, job: str, rank: int) -> psutil.Process:
    """The script's process, which the rank's trainer has started."""

    def look() -> psutil.Process | None:
        pids = [at["pid"] for at in cluster.status(job)["ranks"] if at["rank"] == rank]
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                for process in psutil.Process(pid).children(recursive=True):
                    environment = process.environ()
                    if environment.get("MLX_RANK") == str(rank) and job in environment.get(
                        "ELASTICD_OUTPUT_DIR", ""
                    ):
                        return process
        return None

    return cluster.wait_for(f"the script of rank {rank}", look)
