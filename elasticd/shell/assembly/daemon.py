"""One node's daemon: the pure control plane with the processes, sockets and disks that it needs."""

from __future__ import annotations

import asyncio
import errno
import secrets
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from elasticd.build import build
from elasticd.core.context import Station, Timing
from elasticd.core.endpoint import Endpoint
from elasticd.core.node import Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words.records import JobRecord
from elasticd.core.words.stable import Found, Stable
from elasticd.errors import DiskError
from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly import identity
from elasticd.shell.assembly.desk import Desk
from elasticd.shell.assembly.endings import Endings
from elasticd.shell.assembly.following import follow, losses_of, notices_of, preflight_of
from elasticd.shell.assembly.membership import Others, TrustedMembers
from elasticd.shell.assembly.perform import Performers
from elasticd.shell.assembly.pulse import LoopPulse
from elasticd.shell.assembly.shutdown import Shutdown
from elasticd.shell.assembly.talk import Talk
from elasticd.shell.chaos.cuts import Cutter
from elasticd.shell.chaos.firewall import firewall
from elasticd.shell.chaos.inject import Chaos
from elasticd.shell.children.children import Children
from elasticd.shell.children.server import Child, ChildServer
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.firstshares import FirstShares
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.logdesk import LogDesk
from elasticd.shell.control.outputdesk import OutputDesk
from elasticd.shell.control.queries import Queries
from elasticd.shell.control.resting import RestingJobs
from elasticd.shell.control.webdoor import WebDoor
from elasticd.shell.controlplane import ControlPlane
from elasticd.shell.inorder import InOrder
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.ownaddresses import (
    AddressWatch,
    OwnHosts,
    advertised,
    are_found,
    as_paths,
)
from elasticd.shell.network.peers import Peers
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.eventreading import EventReading
from elasticd.shell.storage.forgetting import Forgetting
from elasticd.shell.storage.homewatch import HomeWatch
from elasticd.shell.storage.outputkeeper import OutputKeeper
from elasticd.shell.storage.outputs import LastWorld, Outputs, last_world
from elasticd.shell.storage.records import StableRecords
from elasticd.shell.storage.scratch import Scratch
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.starting import refuse_hindered
from elasticd.shell.storage.states import States
from elasticd.shell.storage.sweeping import Sweeping
from elasticd.shell.storage.tidying import Tidying
from elasticd.shell.storage.verifying import ReplicaReader
from elasticd.shell.tasks import Tasks, Work, worded
from elasticd.types import SECRET_BYTES, JobId, NodeId, Secret

STOP_SECONDS = 5.0
DEPART_SECONDS = 3.0
"""A world that does not go on without our rank by then regroups after our end."""
VOTE_SECONDS = 1.0
"""Who has not asked for our vote by then has to do without."""
DISK_SECONDS = 8.0
"""A question for events waits so long for a disk that hangs; who asks waits for 10 s."""
AGAIN = -1
_AT_REST = "seeing that enough nodes have the checkpoints of jobs at rest"
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)

log = structlog.get_logger(__name__)


class Daemon:
    """One node. Made and run inside an event loop; :meth:`run` returns the exit code."""

    def __init__(
        self, home: Path, settings: NodeConfig, file: Path, said: NodeConfig, own: OwnHosts
    ) -> None:
        """``said``: what ``file`` says, if it is there. ``settings``: the same, with the addresses
        that ``own`` has found if it names none."""
        self._home, self._settings, self._said, self._own = home, settings, said, own
        self._ending = Shutdown()
        self._pulse = LoopPulse()
        boot = secrets.token_hex(8)
        me, hosts = NodeId(settings.node_id), _hosts(settings)
        credentials = identity.as_member(home, settings)
        addresses = identity.of_others(home, settings, credentials)

        def peers(call: Callbacks) -> Peers:
            mine = identity.to_peers(settings, boot)
            admit, renew = membership.admission.admit, membership.desk.renew
            return Peers(mine, settings.listen, addresses, call, credentials, admit, renew)

        self._records = StableRecords(home, InOrder("marks"))
        remembered = self._records.recover()
        ended = Endings(
            home, self._child_is_over, self._broken, lambda child: self._children.reaped(child)
        ).add
        grace = settings.grace_seconds
        self._server = ChildServer(
            home, self._child_said, ended, grace_seconds=grace, mute=lambda: self._plane.stuck()
        )
        events = _history(home, f"{me}/{boot}", remembered, self._broken)
        membership = self._make_membership(credentials)
        self._talk = Talk(settings, peers, events, self._serve, self._post, membership)
        self._children = Children(home, hosts, self._server, self._record, self._post)
        neighbours = Neighbours(
            me,
            self._talk.peers.fetch,
            self._talk.peers.address_of,
            lambda: self._node.liveness.living(),
            lambda node: self._plane.relay(node),
        )
        self._states = States(
            home, neighbours, self._children, self._record, self._post, self._tell
        )
        outputs = Outputs(
            self._children.files, neighbours, self._record, self._last_world, self._tell
        )
        folder_of, runs = self._children.files.output_folder, self._children.runs
        self._keeper = OutputKeeper(outputs, folder_of, runs, settings.copied_bytes)
        self._states.archives.prepare = self._keeper.prepare
        outputs.follow = self._keeper.follow
        leftovers = self._children.adopt(self._server.adopt())
        self._sweeping = Sweeping(self._states, self._children.runs)
        stored = self._sweeping.begin()
        who = _who(settings, boot, len(addresses), self._talk.infos[me].chip)
        self._node = Node(who, Found(remembered, stored, leftovers))
        queries = self._make_queries(neighbours, events, file)
        parts = self._children, self._states, self._keeper
        self._forgetting = Forgetting(*parts, events, self._remembered)
        self._tidying = self._make_tidying(events)
        perform = Performers(
            self._talk,
            self._records,
            *parts,
            self._forgetting,
            queries,
            FirstShares(self._node, lambda node: self._desk.preflight.ask(node), self._post),
        )
        self._plane = ControlPlane(Endpoint(self._node), perform, self._broken, perform.persist)
        self._scrubber = Scrubber(self._states, neighbours.connected, settings.quota_bytes)
        scratch = Scratch(home)
        scratch.sweep()
        self._desk = self._make_desk(neighbours, queries, OutputDesk(outputs, scratch), file)

    def _make_membership(self, credentials: Credentials) -> TrustedMembers:
        others = Others(
            lambda: self._talk,
            lambda: self._desk.queries.node_names(), lambda: self._desk.queries.known_nodes(),
            lambda: self._node.liveness.living(), self._broken,
            lambda node: self._post(e.Drain(0, node, False, out=True)),  # nobody awaits an answer
        )  # fmt: skip
        return TrustedMembers(self._home, self._settings, credentials, others)

    def _make_tidying(self, events: EventLog) -> Tidying:
        own = self._children, self._states.archives, lambda jobs: self._post(e.Discard(jobs))
        return Tidying(self._home, self._settings.keep, self._remembered, events.ended, *own)

    def _make_queries(self, neighbours: Neighbours, events: EventLog, file: Path) -> Queries:
        return Queries(
            self._node,
            self._settings.cluster,
            self._states,
            events,
            neighbours,
            self._talk.infos,
            self._talk.peers,
            self._post,
            self._ending.ask,
            partial(self._ending.begin_anew, partial(refuse_hindered, self._home, file)),
            self._pulse.plain,
            lambda: self._plane.caught_up(DISK_SECONDS),
        )

    def _remembered(self) -> Iterator[JobRecord]:
        """The jobs that are not forgotten."""
        return (record for record in self._node.records.values() if not record.forgotten)

    def _make_desk(
        self, neighbours: Neighbours, queries: Queries, output_desk: OutputDesk, file: Path
    ) -> Desk:
        inventory = Inventory(
            self._states,
            lambda: [neighbours.me, *neighbours.connected()],
            queries.holders,
            self._shown,
            EventReading(self._talk.events).of_kinds,
            ReplicaReader(neighbours.me, self._states.verifying.answer, neighbours.fetch).verify,
            output_desk.scratch,
        )
        cutter = Cutter(self._home, self._talk.peers, self._children.rings, firewall())
        chaos = Chaos(self._node, self._server, self._children.watch, neighbours, cutter)
        log_desk = LogDesk(self._node, self._states, EventReading(self._talk.events), neighbours)
        notices = notices_of(self._settings, self._node, self._talk)
        parts = self._tidying, self._keeper, self._scrubber, self._talk, notices
        settings = follow(self._home, file, self._said, *parts)
        return Desk(
            self._home,
            queries,
            inventory,
            output_desk,
            log_desk,
            chaos,
            self._states,
            self._talk.trusted.handlers(),
            settings,
            self._forgetting,
            notices,
            losses_of(self._home, self._node),
            preflight_of(self._home, self._node, self._talk, neighbours, queries, self._children),
        )

    async def run(self) -> int:
        """Serve until a signal, a request or a broken invariant. The exit code; :data:`AGAIN`: the
        process is to begin anew."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._uncaught)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.ask)
        self._pulse.stalls.start()
        self._pulse.notifier.watchdog()
        await self._begin()
        chores = Tasks("a chore of the daemon")
        chores.keep_all(self._chores())
        me, where = self._settings.node_id, self._settings.listen
        log.info("daemon runs", node=me, listen=where, version=build())
        try:
            await self._ending.asked.wait()
        finally:
            if self._ending.again:
                self._pulse.notifier.watchdog()
            else:
                self._pulse.notifier.stopping()
            chores.stop()
            await self._desk.leave_home()
            await self._end()
        if self._ending.failure is not None:
            log.error("daemon stops", reason=worded(self._ending.failure))
            return 1
        return AGAIN if self._ending.again else 0

    async def _begin(self) -> None:
        await asyncio.to_thread(self._desk.chaos.clean)
        await self._server.start()
        self._children.watch.start()
        await self._talk.peers.start()
        self._talk.trusted.start()
        await asyncio.to_thread(identity.write, self._home, self._settings)
        await self._desk.start()  # who is answered finds the process, too
        self._take_up_outputs()
        self._plane.start()
        self._scrubber.start()
        self._forgetting.go_on(self._node.records.values())
        await self._desk.watch_home()
        self._pulse.notifier.ready()

    def _take_up_outputs(self) -> None:
        """Of jobs whose trainers were taken over; for others that is done before one starts."""
        for record in self._remembered():
            if self._children.runs(record.id):
                self._keeper.go_on(record.id, _entered_world(self._node, record.id))

    def _chores(self) -> dict[str, Callable[[], Work]]:
        """What is done again and again, beside the work."""
        home = HomeWatch(self._home, self._broken)
        asking = partial(self._talk.keep_asking, lambda: self._node.ctx.reach.deaf)
        chores: dict[str, Callable[[], Work]] = {
            "telling systemd that the daemon lives": self._pulse.beat,
            "rotating logs": self._children.tend_logs,
            "removing what is kept no longer": self._tidying.rounds,
            "seeing that enough nodes have each job's files": self._desk.queries.files.rounds,
            _AT_REST: RestingJobs(self._node, self._states, self._scrubber).rounds,
            "telling people of events": self._desk.notices.rounds,
            "keeping the losses of jobs": self._desk.losses.rounds,
            "having copied what scripts keep": self._keeper.rounds,
            "asking others for events that a dead link keeps": asking,
            "seeing that the home is there": home.rounds,
            "the web page": WebDoor(self._home, self._settings).keep,
        }
        if are_found(self._said):
            watch = AddressWatch(_hosts(self._settings), self._moved, self._own.look)
            chores["following this machine's addresses"] = watch.rounds
        return chores

    def _moved(self, hosts: tuple[str, ...]) -> None:
        """This machine has other addresses: the others hear of it, and nothing is interrupted."""
        self._talk.moved(advertised(self._said, hosts))
        self._children.hosts = hosts
        self._post(e.Paths(self._node.me, as_paths(self._node.me, hosts)))
        reason = f"this node is reached at {' and '.join(hosts)} now"
        self._talk.happened("addresses_changed", reason, {"hosts": list(hosts)})

    async def _end(self) -> None:
        if self._ending.failure is None:
            # Let the world go on without our rank first, at its next step boundary.
            self._post(e.Depart())
            await self._plane.until(self._node.may_stop, DEPART_SECONDS)
        # The others need not wait for our silence, nor do without our vote.
        self._post(e.Leave("its daemon is being stopped"))
        await self._plane.until(self._node.may_end, VOTE_SECONDS)
        self._plane.stop()
        written = await self._plane.flushed(STOP_SECONDS)
        self._children.close()
        await self._scrubber.close()
        self._states.close()
        self._keeper.close()
        self._forgetting.close()
        await self._desk.stop_work()
        await self._server.stop_all(STOP_SECONDS)
        await self._server.close()
        await self._talk.close()
        await self._desk.close()
        await self._talk.events.flushed(STOP_SECONDS)
        if written:  # a disk that hangs may still write
            self._records.close()
        self._pulse.stalls.close()
        if self._ending.again:  # the process stays, and so does what names it
            self._pulse.notifier.watchdog()
        else:
            identity.remove(self._home, self._ending.failure)

    # --- what the parts call ------------------------------------------------------------------

    def _post(self, event: e.Inward) -> None:
        self._plane.post(event)

    def _record(self, job_id: JobId) -> JobRecord:
        return self._node.tables.jobs.known(job_id)

    def _shown(self, job_id: JobId) -> JobRecord | None:
        record = self._node.records.get(job_id)
        return None if record is None or record.forgotten else record

    async def _last_world(self, job: JobId, before: int | None) -> LastWorld | None:
        told = await EventReading(self._talk.events).lasting(job)
        return last_world(told, _entered_world(self._node, job), before)

    def _tell(self, kind: str, job_id: JobId, reason: str, fields: dict[str, Any]) -> None:
        self._talk.emit(e.Emit(job_id, kind, reason, None, fields))

    async def _serve(self, request: dict[str, Any]) -> int:
        return await self._desk.serve(request)

    def _child_said(self, child: Child, message: dict[str, Any], fds: list[int]) -> None:
        self._children.on_message(child, message, fds)

    def _child_is_over(self, child: Child, status: int | None) -> None:
        self._children.on_exit(child, status)
        self._sweeping.child_ended()

    # --- what must not go on ------------------------------------------------------------------

    def _broken(self, error: BaseException) -> None:
        """A control plane that broke an invariant, or can't journal, must not go on."""
        if self._ending.failure is not None:
            return
        self._ending.fail(error)
        log.error("the control plane stopped", error=worded(error), exc_info=error)
        self._plane.stop()
        if isinstance(error, OSError | DiskError):
            self._plane.last_words(e.Leave(f"its disk can't be written: {error}"))

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = self._pulse.uncaught(context)
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            self._broken(error)


def _history(
    home: Path, origin: str, stable: Stable, failed: Callable[[OSError], object]
) -> EventLog:
    """What has happened, but for what is of jobs that were forgotten."""
    events = EventLog(home / "events", origin, InOrder("events", failed))
    events.forget(record.id for record in stable.records if record.forgotten)
    return events


def _who(settings: NodeConfig, boot: str, others: int, chip: str) -> Who:
    return Who(
        NodeId(settings.node_id),
        boot,
        lambda: secrets.token_hex(4),
        others,
        Timing(return_seconds=settings.return_seconds),
        unix_seconds,
        Station(settings.failure_domain, settings.role, chip),
        settings.partition == "strict",
        _hosts(settings),
        lambda: Secret(secrets.token_bytes(SECRET_BYTES)),
    )


def _hosts(settings: NodeConfig) -> tuple[str, ...]:
    """Each once: a node may have several addresses on one."""
    return tuple(dict.fromkeys(address.rpartition(":")[0] for address in settings.addresses))


def _entered_world(node: Node, job: JobId) -> LastWorld | None:
    """The job's world that this node is in, or was in last."""
    world = node.members.worlds.get(job)
    return None if world is None else (world.generation.counter, world.members)
