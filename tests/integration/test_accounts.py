"""Another account of the same machine reads nothing of a daemon's home, and commands nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import NoDaemonError
from tests.integration.cluster import Cluster, everything
from tests.integration.otheraccount import as_other, need_root, tried

pytestmark = pytest.mark.process


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every account can reach, as pytest's own can't be."""
    need_root()
    folder = Path(tempfile.mkdtemp(prefix="elasticd-accounts-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_another_account_reads_and_commands_nothing(
    make_cluster: Callable[[Path, int], Cluster], open_folder: Path
) -> None:
    """The home was made by its owner, who left it open to be looked at, with elasticd.toml."""
    cluster = make_cluster(open_folder, 1)
    home = cluster.home / "node-0"
    home.mkdir(parents=True)
    for folder in (cluster.home, home):
        folder.chmod(0o755)
    with cluster:
        (home / "cache").chmod(0o700)  # laid there for the daemon, which makes its own so
        config = home / "elasticd.toml"
        config.chmod(0o644)
        pace = ["--pace-seconds", "0.02"]
        job = cluster.submit("high.py", train__steps=60, checkpoint__every_steps=5, job__args=pace)
        cluster.wait_step(job, 12)
        cluster.wait_for("a checkpoint", lambda: cluster.kinds(job, "checkpoint_committed"))
        paths, pids = everything(open_folder), [one.pid for one in cluster.processes("node-0")]
        assert {"checkpoints", "jobs", "clones", "output", "logs"} <= set(os.listdir(home))
        # The job prunes meanwhile: of what is gone it says no.
        assert any(path.is_socket() for path in paths), "none of its sockets is seen"
        names = named_memory(pids)
        found = as_other(lambda: tried(paths, pids))
        assert found == {
            # Names, as its owner wants it; and what the owner has made so.
            "listed": sorted(map(str, (open_folder, cluster.home, home, cluster.temporary))),
            "read": [str(config)],
            "written": [],
            "connected": [],
            "signalled": [],
        }, found
        assert not names

        def ask() -> str:
            try:
                return str(Client(home).request(ShowStatus()))
            except NoDaemonError as error:
                return f"refused: {error}"

        said = as_other(ask)
        assert said.startswith("refused: ") and "ermission" in said, said
        cluster.hurry(job)
        assert cluster.wait_end(job)["step"] == 60
        assert as_other(lambda: tried(everything_known(paths), []))["read"] == [str(config)]


def named_memory(pids: Sequence[int]) -> set[str]:
    """What these processes have open or mapped of the shared memory that has names, on Linux."""
    texts: list[str] = []
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            texts += Path(f"/proc/{pid}/maps").read_text().splitlines()
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    texts.append(str(link.readlink()))
    names = {text[text.index("/dev/shm/") :] for text in texts if "/dev/shm/" in text}
    return {name for name in names if not name.endswith(" (deleted)")}


def everything_known(paths: list[Path]) -> list[Path]:
    """Those that are there still."""
    return [path for path in paths if os.path.lexists(path)]
