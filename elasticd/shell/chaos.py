"""Injects real faults: signals and resource limits on a rank's own processes, or the whole node.

Any daemon takes the request; it goes on, once, to the node that runs the rank.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import structlog

from elasticd.core.node import Node
from elasticd.errors import OperationError, UsageError
from elasticd.shell.children import Child, ChildServer
from elasticd.shell.control import Handler, Stream
from elasticd.shell.states import Fetch, nameless_file
from elasticd.shell.watch import ChildWatch
from elasticd.supervision.roster import kill_group
from elasticd.types import JobId, NodeId

FAULTS = ("kill", "hang", "oom", "slow")
PROCESSES = ("trainer", "reducer", "node")
SLOW_SECONDS = 30.0
_SLOW_PERIOD_SECONDS = 0.1
_SLOW_STOPPED = 0.6
"""Of each period a slowed process is stopped for this share."""
_ANSWER_FIRST_SECONDS = 0.05
"""A daemon that is about to end itself answers first."""
_OOM_SLACK_BYTES = 1 << 20
_STRAIN_BYTES = 1 << 30
"""What the next grain of a trainer that is to run out of memory allocates besides."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Blow:
    """What to do to which process. ``pid`` is the rank's trainer or reducer, 0 for a node."""

    what: str
    process: str
    node: NodeId
    pid: int
    seconds: float
    """How long it lasts, for what passes: 0 means for ever."""


class Chaos:
    """Serves ``chaos`` requests of the command line and of other daemons."""

    def __init__(
        self,
        node: Node,
        children: ChildServer,
        watch: ChildWatch,
        fetch: Fetch,
        address_of: Callable[[NodeId], str | None],
    ) -> None:
        self._node = node
        self._children = children
        self._watch = watch
        self._fetch = fetch
        self._address_of = address_of
        self._tasks: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[str, Handler]:
        return {"chaos": self.chaos}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    # --- requests ----------------------------------------------------------------------

    async def chaos(self, request: dict[str, Any], stream: Stream) -> Mapping[str, Any]:
        """``{"do": "chaos", what, job, rank, process, seconds}``; answers with what was done.

        Raises:
            UsageError: there is no such fault or process.
            OperationError: no such job or rank now, or it can't be done here.
        """
        blow = self._aim(request)
        if blow.node == self._node.me:
            self._strike(blow)
        else:
            await self._forward(blow)
        return {**asdict(blow), "job": request["job"], "rank": request["rank"]}

    async def serve(self, request: dict[str, Any]) -> int:
        """As the node that runs the rank: a descriptor with nothing in it."""
        try:
            blow = Blow(**request["blow"])
        except (KeyError, TypeError) as error:
            raise OperationError(f"bad request: {error}") from None
        self._strike(blow)
        return nameless_file()

    def _aim(self, request: dict[str, Any]) -> Blow:
        what, process = str(request.get("what")), str(request.get("process") or "trainer")
        seconds = float(request.get("seconds") or 0.0)
        if what not in FAULTS or process not in PROCESSES:
            raise UsageError(f"can't {what} a {process}")
        if what == "oom" and process != "trainer":
            raise UsageError("only a trainer can be made to run out of memory")
        job = JobId(str(request.get("job")))
        if job not in self._node.records:
            raise OperationError(f"no job {job}")
        ranks = {rank["rank"]: rank for rank in self._node.job_status(job)["ranks"]}
        rank = ranks.get(request.get("rank"))
        if rank is None:
            raise OperationError(f"job {job} has no rank {request.get('rank')} now")
        pid = {"trainer": rank["pid"], "reducer": rank["reducer_pid"], "node": 0}[process]
        if pid is None:
            raise OperationError(f"rank {rank['rank']} of {job} has no {process} now")
        return Blow(what, process, rank["node"], pid, seconds)

    async def _forward(self, blow: Blow) -> None:
        address = self._address_of(blow.node)
        if address is None:
            raise OperationError(f"{blow.node} can't be reached")
        fd = nameless_file()
        try:
            await self._fetch(address, {"what": "chaos", "blow": asdict(blow)}, fd)
        finally:
            os.close(fd)

    # --- blows ----------------------------------------------------------------------

    def _strike(self, blow: Blow) -> None:
        log.warning("chaos", **asdict(blow))
        if blow.process == "node":
            self._run(self._strike_node(blow))
            return
        child = next((c for c in self._children.children if c.pid == blow.pid), None)
        if child is None:
            raise OperationError(f"process {blow.pid} has just ended; try again")
        match blow.what:
            case "kill":
                child.kill(signal.SIGKILL)
            case "hang":
                child.kill(signal.SIGSTOP)
                if blow.seconds:
                    self._run(self._wake(child, blow.seconds))
            case "slow":
                self._run(self._slow([child], blow.seconds or SLOW_SECONDS))
            case _:
                if sys.platform == "linux":
                    starve(child.pid)
                child.send({"t": "strain", "bytes": _STRAIN_BYTES})
                self._watch.look(child, asyncio.get_running_loop().time())

    async def _strike_node(self, blow: Blow) -> None:
        children = list(self._children.children)
        if blow.what == "slow":
            await self._slow(children, blow.seconds or SLOW_SECONDS)
            return
        await asyncio.sleep(_ANSWER_FIRST_SECONDS)
        for child in children:
            if blow.what == "kill":
                kill_group(child.pid)
            else:
                child.kill(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGKILL if blow.what == "kill" else signal.SIGSTOP)

    async def _wake(self, child: Child, seconds: float) -> None:
        await asyncio.sleep(seconds)
        child.kill(signal.SIGCONT)

    async def _slow(self, children: list[Child], seconds: float) -> None:
        """Let them run for a part of the time only, in slices too short to be taken for a hang."""
        end = asyncio.get_running_loop().time() + seconds
        try:
            while asyncio.get_running_loop().time() < end:
                for child in children:
                    child.kill(signal.SIGSTOP)
                await asyncio.sleep(_SLOW_PERIOD_SECONDS * _SLOW_STOPPED)
                for child in children:
                    child.kill(signal.SIGCONT)
                await asyncio.sleep(_SLOW_PERIOD_SECONDS * (1 - _SLOW_STOPPED))
        finally:
            for child in children:
                child.kill(signal.SIGCONT)

    def _run(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def starve(pid: int) -> None:
    """Forbid a process to map more memory than it has, so that large allocations
    fail. Linux only.

    Raises:
        OperationError: the process has ended.
    """
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        size = psutil.Process(pid).memory_info().vms + _OOM_SLACK_BYTES
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (size, hard))
        return
    raise OperationError(f"process {pid} has just ended; try again")
