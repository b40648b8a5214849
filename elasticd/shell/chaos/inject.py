"""Injects real faults: signals and resource limits on a rank's own processes or the whole node,
cuts of links between nodes.

Any daemon takes the request; it goes on, once, to the nodes that it concerns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import assert_never

import psutil
import structlog

from elasticd.core.jobs.table import how_ended
from elasticd.core.node import Node
from elasticd.core.words.bulk import Blow, CutHere, CutOrder, OfChaos, StrikeHere
from elasticd.core.words.requests.chaos import (
    CutHow,
    CutLinks,
    LinksCut,
    RankStruck,
    StrikeKind,
    StrikeRank,
    StruckProcess,
)
from elasticd.core.words.trainers import TO_TRAINER, StrainMemory
from elasticd.errors import OperationError, UsageError
from elasticd.pasting import pasted
from elasticd.shell.chaos.cuts import Cutter, LinkCut
from elasticd.shell.children.server import Child, ChildServer
from elasticd.shell.children.watch import ChildWatch
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.retries import attempts
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.shell.tasks import Tasks
from elasticd.supervision.roster import kill_group
from elasticd.types import NodeId

SLOW_SECONDS = 30.0
MAX_CUT_SECONDS = 3600.0
_CUT_AFTER_SECONDS = 0.3
"""Between a node's consent and its cut: the orders for the others must arrive before."""
_ANSWER_AFTER_SECONDS = _CUT_AFTER_SECONDS + 0.1
"""Behind the last consent: each node has cut by then, also with a packet filter."""
_REACH_SECONDS = 3.0
"""So long a node that lives is waited for where its own link is down, as one that was cut just
now: who doesn't answer for so long is known to be dead by then."""
_SLOW_PERIOD_SECONDS = 0.1
_SLOW_STOPPED = 0.75
"""Of each period a slowed process is stopped for this share."""
_ANSWER_FIRST_SECONDS = 0.05
"""A daemon that is about to end itself answers first."""
_OOM_SLACK_BYTES = 1 << 20
_STRAIN_BYTES = 1 << 30
"""What the next grain of a trainer that is to run out of memory allocates besides."""

Groups = tuple[tuple[NodeId, ...], ...]

log = structlog.get_logger(__name__)


class Chaos:
    """Serves ``chaos`` requests of the command line and of other daemons."""

    def __init__(
        self,
        node: Node,
        children: ChildServer,
        watch: ChildWatch,
        neighbours: Neighbours,
        cutter: Cutter,
    ) -> None:
        self._cutter = cutter
        self._node = node
        self._children = children
        self._watch = watch
        self._neighbours = neighbours
        self._tasks = Tasks("a blow of chaos")

    def handlers(self) -> Handlers:
        return {**on(StrikeRank, self.strike), **on(CutLinks, self.cut)}

    def clean(self) -> None:
        """Take away what an earlier daemon of this home has left."""
        self._cutter.clean()

    async def close(self) -> None:
        await self._tasks.cancel()

    # --- requests ----------------------------------------------------------------------

    async def strike(self, request: StrikeRank, stream: Stream) -> RankStruck:
        """Answers with what was done.

        Raises:
            UsageError: that can't be done to such a process.
            OperationError: no such job or rank now, or it can't be done here.
        """
        blow = self._aim(request)
        if blow.node == self._node.me:
            self._strike(blow)
        else:
            await self._reach(blow.node)
            await self._tell(blow.node, StrikeHere(blow))
        return RankStruck(
            blow.what, blow.process, blow.node, blow.pid, blow.seconds, request.job, request.rank
        )

    async def serve(self, wanted: OfChaos) -> int:
        """As the node that runs the rank, or has the link: a descriptor with nothing in it."""
        match wanted:
            case CutHere(order):
                _require_sense(order)
                await self._obey(order)
            case StrikeHere(blow):
                self._strike(blow)
            case _:
                assert_never(wanted)
        return nameless_file()

    def _aim(self, request: StrikeRank) -> Blow:
        job, process = request.job, request.process
        _require_possible(request.what, process)
        if (record := self._node.records.get(job)) is None:
            raise OperationError(f"no job {job}")
        if record.ended:
            raise OperationError(how_ended(record))
        ranks = {rank["rank"]: rank for rank in self._node.job_status(job)["ranks"]}
        rank = ranks.get(request.rank)
        if rank is None:
            raise OperationError(f"job {job} has no rank {request.rank} now")
        pid = {"trainer": rank["pid"], "reducer": rank["reducer_pid"], "node": 0}[process]
        if pid is None:
            raise OperationError(f"rank {rank['rank']} of {job} has no {process} now")
        return Blow(request.what, process, rank["node"], pid, request.seconds)

    async def _reach(self, node: NodeId) -> None:
        async for attempt in attempts(_REACH_SECONDS):
            with attempt:
                if not self._neighbours.reaches(node):
                    raise OperationError(f"{node} is not connected")

    async def _tell(self, node: NodeId, wanted: OfChaos) -> None:
        fd = nameless_file()
        try:
            await self._neighbours.fetch(node, wanted, fd)
        finally:
            os.close(fd)

    # --- links ------------------------------------------------------------------------

    async def cut(self, request: CutLinks, stream: Stream) -> LinksCut:
        """Answers when the links are cut.

        Raises:
            UsageError: it would be no cut.
            OperationError: there is no such node now, or a node can't do it.
        """
        groups, seconds, how = request.groups, request.seconds, request.how
        _require_apart(groups)
        if not 0 < seconds <= MAX_CUT_SECONDS:
            raise UsageError(f"seconds must be more than 0 and at most {MAX_CUT_SECONDS:g}")
        known = {self._node.me, *self._node.liveness.living()}
        for node in (node for group in groups for node in group):
            if node not in known:
                raise OperationError(f"there is no living node {node}")
        orders = _orders(groups, how, seconds)
        away = [order for order in orders if order.node != self._node.me]
        # All are reached before the first agrees, so that they cut at one time.
        await asyncio.gather(*(self._reach(order.node) for order in away))
        # Both ends must agree; what one has agreed to passes by itself.
        await asyncio.gather(*(self._tell(order.node, CutHere(order)) for order in away))
        for order in orders:
            if order.node == self._node.me:
                await self._obey(order)
        await asyncio.sleep(_ANSWER_AFTER_SECONDS)
        return LinksCut(request.what, groups, how, seconds)

    async def _obey(self, order: CutOrder) -> None:
        cuts: list[LinkCut] = []
        try:
            for node in order.from_:
                cuts.append(await self._cutter.prepare(node, order.how, order.seconds))
        except BaseException:
            for cut in cuts:
                self._cutter.abandon(cut)
            raise
        for cut in cuts:
            self._tasks.start(self._hold(cut, order.seconds))

    async def _hold(self, cut: LinkCut, seconds: float) -> None:
        try:
            await asyncio.sleep(_CUT_AFTER_SECONDS)
        except asyncio.CancelledError:
            self._cutter.abandon(cut)
            raise
        await self._cutter.hold(cut, seconds)

    # --- blows ----------------------------------------------------------------------

    def _strike(self, blow: Blow) -> None:
        _require_possible(blow.what, blow.process)
        log.warning("chaos", **asdict(blow))
        if blow.process == "node":
            self._tasks.start(self._strike_node(blow))
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
                    self._tasks.start(self._wake(child, blow.seconds))
            case "slow":
                self._tasks.start(self._slow([child], blow.seconds or SLOW_SECONDS))
            case "oom":
                if sys.platform == "linux":
                    starve(child.pid)
                child.send(TO_TRAINER.encode(StrainMemory(_STRAIN_BYTES)))
                self._watch.look(child, asyncio.get_running_loop().time())
            case _:
                assert_never(blow.what)

    async def _strike_node(self, blow: Blow) -> None:
        children = list(self._children.children)
        match blow.what:
            case "slow":
                await self._slow(children, blow.seconds or SLOW_SECONDS)
            case "kill":
                await asyncio.sleep(_ANSWER_FIRST_SECONDS)
                for child in children:
                    kill_group(child.pid)
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                await asyncio.sleep(_ANSWER_FIRST_SECONDS)
                for child in children:
                    child.kill(signal.SIGSTOP)
                if blow.seconds:
                    wake_later([os.getpid(), *(child.pid for child in children)], blow.seconds)
                os.kill(os.getpid(), signal.SIGSTOP)
            case "oom":
                pass  # not of a node
            case _:
                assert_never(blow.what)

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


def _require_possible(what: StrikeKind, process: StruckProcess) -> None:
    if what == "oom" and process != "trainer":
        raise UsageError("only a trainer can be made to run out of memory")


def _require_apart(groups: Groups) -> None:
    nodes = [node for group in groups for node in group]
    if len(groups) < 2 or not all(groups) or len(set(nodes)) < len(nodes):
        raise UsageError("a cut is between two or more groups, each node in one of them")


def _orders(groups: Groups, how: CutHow, seconds: float) -> list[CutOrder]:
    """One for each node that does something; one way, only the later groups stop hearing."""
    orders = []
    for number, group in enumerate(groups):
        others = groups[:number] if how == "one-way" else groups[:number] + groups[number + 1 :]
        away = tuple(node for other in others for node in other)
        orders += [CutOrder(node, away, how, seconds) for node in group if away]
    return orders


def _require_sense(order: CutOrder) -> None:
    if not 0 < order.seconds <= MAX_CUT_SECONDS:
        raise OperationError("bad order")


def wake_later(pids: Sequence[int], seconds: float) -> None:
    """Have a process of its own let these go on after so long, for a daemon that stops itself."""
    wake = pasted("kill -CONT", *map(str, pids))
    subprocess.run(
        ["/bin/sh", "-c", f"(sleep {seconds:f}; {wake}) &"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def starve(pid: int) -> None:
    """Forbid a process to map more memory than it has, so that large allocations
    fail. Linux only.

    Raises:
        OperationError: the process has ended, or this is not Linux.
    """
    if sys.platform != "linux":
        raise OperationError("only Linux can limit a running process's memory")
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        size = psutil.Process(pid).memory_info().vms + _OOM_SLACK_BYTES
        _, hard = resource.prlimit(pid, resource.RLIMIT_AS)
        resource.prlimit(pid, resource.RLIMIT_AS, (size, hard))
        return
    raise OperationError(f"process {pid} has just ended; try again")
