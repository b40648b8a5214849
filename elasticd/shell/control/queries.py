"""What the command line may ask (docs/protocols.md §3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from elasticd.core.jobs.status import jobs_without
from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.core.words.codec import to_plain
from elasticd.core.words.connections import NodeInfo
from elasticd.core.words.limits import PART_BYTES, most_bytes
from elasticd.core.words.records import Path
from elasticd.core.words.requests.ends import Failed
from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.requests.jobs import CancelJob, ForgetJob, PauseJob, ResumeJob, RetryJob
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.core.words.requests.nodes import DrainNode, ForgetNode, Restart, ShutDown, UndrainNode
from elasticd.errors import OperationError
from elasticd.settings.config import roles_of
from elasticd.shell.control.jobfiles import JobFiles
from elasticd.shell.control.listing import JobListing
from elasticd.shell.control.names import Names
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.control.submissions import Submissions
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.eventform import LAST_EVENTS
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId


class Ways(Protocol):
    """How this daemon reaches others."""

    def paths_of(self, node: NodeId) -> Sequence[Path]: ...
    def walled(self) -> Sequence[str]: ...
    def twins(self) -> Sequence[str]: ...


class Queries:
    """One handler for each request of the command line."""

    def __init__(
        self,
        node: Node,
        cluster: str,
        states: States,
        events: EventLog,
        neighbours: Neighbours,
        infos: Mapping[NodeId, NodeInfo],
        ways: Ways,
        post: Callable[[e.Event], None],
        shut_down: Callable[[], None],
        restart: Callable[[], Awaitable[None]],
        loop: Callable[[], Mapping[str, Any]],
        told: Callable[[], Awaitable[None]],
    ) -> None:
        """``restart``: begins anew, or raises OperationError. ``loop``: how this daemon fares.
        ``told``: waits until there is an event of all that ``status`` shows, but not for a disk
        that hangs."""
        self._node = node
        self._cluster = cluster
        self._states = states
        self._events = EventReading(events)
        self._neighbours = neighbours
        self._infos = infos
        self._ways = ways
        self._post = post
        self._shut_down, self._restart = shut_down, restart
        self._loop = loop
        self._told = told
        self._requests = 0
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self.files = JobFiles(node, states.archives, states.me)
        self.submissions = Submissions(node, states, self.files, self._ask)
        self._listing = JobListing(node, events, self._events, self.submissions.preflights)

    def handlers(self) -> Handlers:
        return {
            **on(ShowStatus, self.status),
            **on(CancelJob, self.cancel),
            **on(PauseJob, self.pause),
            **on(ResumeJob, self.resume),
            **on(RetryJob, self.retry),
            **on(DrainNode, self.drain),
            **on(UndrainNode, self.undrain),
            **on(ForgetNode, self.forget_node),
            **on(ReadEvents, self.events),
            **on(ShutDown, self.shutdown),
            **on(Restart, self.restart),
        }

    def reply(self, effect: e.Reply) -> None:
        """The control plane's answer to a request."""
        future = self._waiting.get(effect.request)
        if future is not None and not future.done():
            future.set_result(effect.body)

    # --- looking ------------------------------------------------------------------------------

    async def status(self, request: ShowStatus, stream: Stream) -> Mapping[str, Any]:
        node, view = self._node, self._node.views.view
        listed = self._listing.listed(request.ended)
        waiting = self._listing.before(request.job)
        if request.job is not None:
            listed = [] if waiting else [self.known(request.job)]
        jobs: list[dict[str, Any]] = []
        async for more in self._listing.some_at_a_time(listed):
            if request.parts and jobs and most_bytes([*jobs, *more]) > PART_BYTES:
                await stream.send({"jobs": jobs, "more": True})
                jobs = []
            jobs += more
        jobs += waiting
        if request.settings and request.job is not None:
            settings = self._listing.settings(request.job)
            jobs = [{**job, "settings": settings} for job in jobs]
        queue = node.tables.jobs.queue()
        return {
            "cluster": self._cluster,
            "view": {
                "epoch": view.epoch.counter if view is not None else 0,
                "leader": view.leader if view is not None else None,
                "members": list(view.members) if view is not None else [],
            },
            "nodes": [
                {
                    "id": name,
                    **_what_it_is(self._infos.get(name)),
                    "state": node.state_of(name),
                    "roles": list(roles_of(node.tables.nodes.role_of(name))),
                    "links": self._links_to(name),
                    "unfit": jobs_without(queue, name),
                }
                for name in sorted(self.node_names())
            ],
            "jobs": jobs,
            "loop": {"node": node.me, **self._loop()},
            "walled": list(self._ways.walled()),
            "twins": list(self._ways.twins()),
        }

    def names(self) -> Names:
        """What the ids in requests are completed from."""
        records = self._node.records
        return Names(
            self._listing.names,
            lambda: [job for job, record in records.items() if record.forgotten],
            self.node_names,
            self.known_nodes,
            self.submissions.preflights.over,
        )

    def node_names(self) -> set[NodeId]:
        """The ids of the nodes that there are, dead ones too."""
        node, view = self._node, self._node.views.view
        names = set(node.liveness.living()) | set(view.members if view is not None else ())
        # This daemon may have been started after a node that it knows of was heard last.
        return names | (set(self._infos) - node.tables.nodes.gone) | node.tables.nodes.met

    def _links_to(self, name: NodeId) -> list[dict[str, Any]]:
        """How this daemon reaches another at each of its addresses."""
        deaf = name in self._node.ctx.reach.deaf
        return [
            {
                "host": path.host,
                "state": "lost" if deaf or not path.healthy else "up",
                "round_trip_seconds": round(path.round_trip_seconds, 6),
                "bytes_per_second": round(path.bytes_per_second),
            }
            for path in self._ways.paths_of(name)
        ]

    async def events(self, request: ReadEvents, stream: Stream) -> None:
        job = self.known(request.job) if request.job is not None else None
        await self._told()
        events = self._events.follow(job) if request.follow else self._events.so_far(job)
        async for event in events:
            await stream.send(event)
            if request.follow and job is not None and event["kind"] in LAST_EVENTS:
                return

    # --- changing -----------------------------------------------------------------------------

    async def cancel(self, request: CancelJob, stream: Stream) -> Outcome:
        job = self.known(request.job)
        return await self._ask(lambda number: e.Cancel(number, job))

    async def forget(self, request: ForgetJob, stream: Stream) -> Outcome:
        # Also if it is forgotten here: a node that has joined since may not have heard of it.
        return await self._ask(lambda number: e.Forget(number, request.job))

    async def pause(self, request: PauseJob, stream: Stream) -> Outcome:
        job = self.known(request.job)
        return await self._ask(lambda number: e.Pause(number, job, True))

    async def resume(self, request: ResumeJob, stream: Stream) -> Outcome:
        job = self.known(request.job)
        return await self._ask(lambda number: e.Pause(number, job, False))

    async def retry(self, request: RetryJob, stream: Stream) -> Outcome:
        job = self.known(request.job)
        return await self._ask(lambda number: e.Retry(number, job, request.memory))

    async def drain(self, request: DrainNode, stream: Stream) -> Outcome:
        return await self._ask(lambda number: e.Drain(number, request.node, True))

    async def undrain(self, request: UndrainNode, stream: Stream) -> Outcome:
        return await self._ask(lambda number: e.Drain(number, request.node, False))

    async def forget_node(self, request: ForgetNode, stream: Stream) -> Outcome:
        name = request.node
        if name not in self.known_nodes():
            raise OperationError(f"no node {name}")
        return await self._ask(lambda number: e.Dismiss(number, name))

    def known_nodes(self) -> set[NodeId]:
        """The ids of all that there are, or were."""
        return {*self.node_names(), *self._node.tables.nodes.records}

    async def shutdown(self, request: ShutDown, stream: Stream) -> None:
        self._shut_down()

    async def restart(self, request: Restart, stream: Stream) -> None:
        """Has no end: the client waits for that of the daemon, however long it takes, and nothing
        is asked of it meanwhile.

        Raises:
            OperationError: a new process could not begin; this one goes on.
        """
        await self._restart()
        await asyncio.Event().wait()

    async def _ask(self, event: Callable[[int], e.Event]) -> Outcome:
        """What the control plane says to a request.

        Raises:
            OperationError: it says no.
        """
        self._requests += 1
        number = self._requests
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._post(event(number))
            answer = await future
        finally:
            del self._waiting[number]
        if isinstance(answer, Failed):
            raise OperationError(answer.error)
        return answer

    def away(self) -> list[NodeId]:
        """The nodes that are not here."""
        return sorted(self.known_nodes() - set(self._node.liveness.living()))

    def holders(self) -> set[NodeId]:
        """The nodes that may hold copies, dead ones too."""
        return self.node_names() - self._node.tables.nodes.standing().witnesses

    def is_known(self, job: JobId) -> bool:
        """Whether there is a record of it, also of one that was forgotten."""
        return job in self._node.records

    def known(self, job: JobId) -> JobId:
        """Raises OperationError: there is no such job."""
        return self._node.tables.jobs.known(job).id


def _what_it_is(info: NodeInfo | None) -> dict[str, Any]:
    if info is None:
        return {"address": None, "pid": None, "chip": None, "memory_bytes": 0, "version": None}
    shown: dict[str, Any] = to_plain(info)
    del shown["others"]  # each is listed itself
    return shown
