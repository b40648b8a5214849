"""Nodes that copy main's output folder from each other, without daemons."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from elasticd.core.words.bulk import WANTS, WantOutput
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.looking import OpenOutputs
from elasticd.errors import OperationError
from elasticd.outputs import OWN_FOLDER
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.control.outputdesk import OutputDesk
from elasticd.shell.control.server import Stream
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.outputkeeper import OutputKeeper
from elasticd.shell.storage.outputs import LastWorld, Outputs
from elasticd.shell.storage.scratch import Scratch
from elasticd.types import JobId, NodeId

JOB = JobId("job")
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
LIMIT = 1000


class Net:
    """Nodes that fetch from each other; ``world`` is the job's last one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world: LastWorld | None = (1, (A, B, C))
        self.was: LastWorld | None = None
        self.lost: set[NodeId] = set()
        self.ended = False
        self.state, self.step = "running", 0
        self.fetched: list[str] = []
        self.served: Callable[[str], object] = lambda name: None
        """Called when a file has been opened for another node, before it is read."""
        self.events: list[tuple[str, Any]] = []
        """Of files that are skipped."""
        self.told: list[tuple[str, str]] = []
        """All others."""
        self.nodes = {name: Node(self, name) for name in (A, B, C)}

    async def last_world(self, job: JobId, before: int | None) -> LastWorld | None:
        """As all have heard of it; ``was`` is the world before."""
        if before is None or self.world is None or self.world[0] < before:
            return self.world
        return self.was

    async def transfer(
        self, address: str, request: dict[str, Any], sink: int, limit_bytes: int = 1 << 30
    ) -> int:
        wanted = WANTS.decode(request)
        fd = await self.nodes[NodeId(address)].outputs.serve(cast(WantOutput, wanted))
        try:
            if isinstance(wanted, WantOutput):
                self.fetched.append(wanted.name)
                self.served(wanted.name)
            data = os.pread(fd, 1 << 20, 0)
        finally:
            os.close(fd)
        return os.write(sink, data)

    def tell(self, kind: str, job: JobId, reason: str, fields: dict[str, Any]) -> None:
        if "files" in fields:
            self.events.append((reason, fields["files"]))
        else:
            self.told.append((kind, reason))

    def record(self, job: JobId) -> JobRecord:
        if job != JOB:
            raise OperationError(f"no job {job}")
        return cast(
            JobRecord,
            SimpleNamespace(id=JOB, ended=self.ended, state=self.state, step=self.step),
        )


class Node:
    def __init__(self, net: Net, name: NodeId) -> None:
        home = net.folder / name
        home.mkdir(parents=True, exist_ok=True)
        self.files = ChildFiles(home)
        self.runs = True
        self.output = self.files.output_folder(JOB)
        neighbours = Neighbours(
            name,
            net.transfer,
            lambda node: None if node in net.lost else node,
            lambda: [A, B, C],
        )
        self.outputs = Outputs(
            self.files,
            neighbours,
            net.record,
            net.last_world,
            net.tell,
        )
        self.keeper = OutputKeeper(
            self.outputs, self.files.output_folder, lambda job: self.runs, LIMIT
        )
        self.outputs.follow = self.keeper.follow

    def write(self, **files: str) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (self.output / name).write_text(text)

    async def follow(self) -> None:
        self.keeper.follow(JOB)
        await self.keeper._tasks.ended()

    def texts(self) -> dict[str, str]:
        """Of the script's own files."""
        paths = sorted(path for path in self.output.glob("*") if path.name != OWN_FOLDER)
        return {path.name: path.read_text() for path in paths}

    def copy(self) -> dict[str, str]:
        found = self.outputs.copies.newest(JOB)
        if found is None:
            return {}
        return {f.name: (found.files / f.name).read_text() for f in found.made.listing.files}


def _text(path: str | None) -> str | None:
    return None if path is None else Path(path).read_text()


class Client:
    """Reads what the daemon at ``node`` hands out."""

    def __init__(self, node: Node) -> None:
        self.head: dict[str, Any] = {}
        self.files: dict[str, str | None] = {}
        self.why: dict[str, str] = {}
        """Of those that are not handed out."""
        asyncio.run(
            OutputDesk(node.outputs, Scratch(Path())).open(OpenOutputs(JOB), cast(Stream, self))
        )

    async def send(self, frame: dict[str, Any]) -> None:
        if "path" not in frame:
            self.head = frame
        else:
            self.files[frame["name"]] = _text(frame["path"])
            self.why.update({frame["name"]: frame["why"]} if "why" in frame else {})

    async def receive(self, seconds: float | None) -> dict[str, Any]:
        return {}
