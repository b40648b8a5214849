"""What commands are tried on: a cluster with jobs, and folders of one round's own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tempfile
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ShowStatus
from tests.integration.alone import JOBS
from tests.integration.cluster import ELASTICCTL, WAIT_SECONDS, Cluster
from tests.ports import free_address

NARROW = 60
RUN_SECONDS = 2 * WAIT_SECONDS
"""Nodes of one machine take turns to be measured, and each gives way to all that runs there."""
_ASCII = {
    "TERM": "dumb", "NO_COLOR": "1", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
}  # fmt: skip
_KEPT = ("elasticd.toml", "cluster/*", "checkpoints/*/*", "jobs/*")


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Stage:
    """A round of commands. Its names are what :mod:`~tests.integration.commandtable` fills in."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        folder.mkdir()
        self._made = 0
        self.said: dict[str, Ran] = {}
        self.toml = JOBS / "job.toml"
        self.home, self.first, self.second = (cluster.home / at for at in ("", "node-0", "node-1"))
        self.bare, self.small, self.joiner = (self._folder / at for at in ("bare", "small", "join"))
        self.guest = "guest"
        self.full = self._folder / "full"
        self.full.mkdir()
        (self.full / "file").write_text("mine")
        self.hosts = self._folder / "hosts.txt"
        self.hosts.write_text("mac-2\nme@mac-3 slots=2\n")
        self.done = cluster.submit(
            "writes.py", world__max=1, train__steps=3, recovery__spare="none"
        )
        cluster.wait_end(self.done)

    @property
    def new(self) -> Path:
        """A path that nothing is at; what is to lie in it has a folder."""
        self._made += 1
        return Path(tempfile.mkdtemp(prefix=f"new-{self._made}-", dir=self._folder))

    @property
    def listen(self) -> str:
        return free_address()

    @property
    def token(self) -> str:
        """What 'cluster token' has printed."""
        return self._told("cluster token", "token")

    @property
    def job(self) -> str:
        """What 'submit' has submitted."""
        return self._told("submit", "id")

    def _told(self, command: str, key: str) -> str:
        out = self.said[command].out
        return str(json.loads(out)[key]) if out.startswith("{") else out.split()[0]

    @property
    def idle(self) -> str:
        """A node that has no rank of the job."""
        return self.sides.partition("|")[2]

    @property
    def busy(self) -> str:
        """A node that has one."""
        return self.sides.partition(",")[0]

    @property
    def sides(self) -> str:
        """The two nodes that have one, and one that has none, as they are at one time."""
        living = self.together()
        busy = [rank["node"] for rank in self.whole()["ranks"]]
        idle = next(each for each in reversed(living) if each not in busy)
        return f"{','.join(busy)}|{idle}"

    @property
    def dead(self) -> str:
        """A node that has been killed, and is in no view any more."""
        node = self.together()[-1]
        self._cluster.kill_node(node)

        def gone() -> bool:
            status = self._status()
            states = {each["id"]: each["state"] for each in status["nodes"]}
            return states[node] == "dead" and node not in status["view"]["members"]

        self._cluster.wait_for(f"{node} is dead", gone)
        return node

    def whole(self) -> dict[str, Any]:
        """The status of the job once two ranks train."""
        step = self._cluster.status(self.job)["step"] + 1

        def look() -> dict[str, Any] | None:
            status = self._cluster.wait_whole(self.job, step)
            return status if len(status["ranks"]) == 2 else None

        return self._cluster.wait_for("two ranks", look)

    def together(self) -> list[str]:
        """The nodes that live, once all of them share a view, and are connected."""
        living = self._cluster.living()

        def look() -> bool:
            told = [Client(self.home / node).request(ShowStatus()) for node in living]
            views = [each["view"] for each in told]
            linked = [
                {node["id"] for node in each["nodes"] if node["links"]} | {own}
                for own, each in zip(living, told, strict=True)
            ]
            together = all(v == views[0] and sorted(v["members"]) == living for v in views)
            return together and all(each.issuperset(living) for each in linked)

        self._cluster.wait_for("a view of all, connected", look)
        return living

    def _status(self) -> dict[str, Any]:
        return self._cluster.client.request(ShowStatus())

    def run(self, words: Sequence[str], *, narrow: bool = False) -> Ran:
        """Run ``elasticctl`` to its end. ``narrow``: into a terminal of 60 columns that knows
        neither colours nor anything but ASCII."""
        command = [str(ELASTICCTL), "--home", str(self.home), *words]
        environment = {**self._cluster.environment, **(_ASCII if narrow else {})}
        return (_in_terminal if narrow else _in_pipe)(command, environment)

    def picture(self) -> dict[str, Any]:
        """What no command that was used wrong may change."""
        status = self._status()
        found: dict[str, Any] = {
            "jobs": [(each["id"], each["state"]) for each in status["jobs"]],
            "nodes": [(each["id"], each["state"], each["pid"]) for each in status["nodes"]],
        }
        inside = [path for each in _KEPT for path in self.home.glob(f"node-*/{each}")]
        beside = [*self._folder.rglob("*")]
        for path in sorted(inside + beside):
            found[str(path)] = path.read_bytes() if path.is_file() else None
        return found


def _in_pipe(command: Sequence[str], environment: Mapping[str, str]) -> Ran:
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=RUN_SECONDS, check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


def _in_terminal(command: Sequence[str], environment: Mapping[str, str]) -> Ran:
    """Only what it prints on stdout goes to the terminal: nobody is there to be asked."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, NARROW))
    with tempfile.TemporaryFile() as errors, open(ours, "rb", buffering=0) as terminal:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=its, stderr=errors
        ) as process:
            os.close(its)
            out = b"".join(_pieces(terminal))
            code = process.wait(RUN_SECONDS)
        errors.seek(0)
        return Ran(code, out.decode().replace("\r\n", "\n"), errors.read().decode())


def _pieces(terminal: Any) -> Any:
    while True:
        try:
            piece = terminal.read(1 << 16)
        except OSError:  # so Linux says that the other end is closed
            return
        if not piece:
            return
        yield piece
