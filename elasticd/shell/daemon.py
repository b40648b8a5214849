"""The daemon: ``elasticd run``. Wires the pure control plane to processes, sockets and disks."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import io
import itertools
import json
import logging
import os
import platform
import resource
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO, assert_never, cast

import psutil
import structlog

from elasticd import __version__, archive
from elasticd.core.context import Timing
from elasticd.core.endpoint import Endpoint
from elasticd.core.node import Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words.frames import decode_frame, encode_frame
from elasticd.core.words.stable import Found
from elasticd.errors import ElasticdError, ProtocolError, UsageError
from elasticd.settings import config, job
from elasticd.shell.chaos.cuts import Cutter
from elasticd.shell.chaos.firewall import firewall
from elasticd.shell.chaos.inject import Chaos
from elasticd.shell.children.ranks import Ranks
from elasticd.shell.children.server import ChildServer
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.inventory import Inventory
from elasticd.shell.control.jobsfolder import JobsFolder
from elasticd.shell.control.queries import Queries
from elasticd.shell.control.server import ControlServer, lock_home
from elasticd.shell.engine import Engine
from elasticd.shell.network.bulk import BLANK_BYTES
from elasticd.shell.network.callbacks import Callbacks
from elasticd.shell.network.hello import Identity
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.peers import Peers
from elasticd.shell.storage.durable import unwritable, write_durable
from elasticd.shell.storage.eventlog import EventLog
from elasticd.shell.storage.marks import Marks
from elasticd.shell.storage.namelessfile import nameless_file
from elasticd.shell.storage.records import Memory
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.states import States
from elasticd.supervision.notify import Notifier
from elasticd.types import JobId, NodeId

STOP_SECONDS = 5.0
DEPART_SECONDS = 3.0
"""A world that does not go on without our rank by then regroups after our end."""
VOTE_SECONDS = 1.0
"""Who has not asked for our vote by then has to do without."""
ROTATE_SECONDS = 10.0
"""Between two looks at the sizes of the ranks' logs."""
ASK_SECONDS = 1.0
"""Between two questions for the events of nodes that are not heard directly."""
_FILES = 4096
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)

log = structlog.get_logger(__name__)


class Daemon:
    """One node. Made and run inside an event loop; :meth:`run` returns the exit code."""

    def __init__(self, home: Path, settings: config.NodeConfig, insecure: bool) -> None:
        self._home = home
        self._settings = settings
        self._boot = secrets.token_hex(8)
        self._me = NodeId(settings.node_id)
        self._stop = asyncio.Event()
        self._waits: tuple[Callable[[], bool], asyncio.Event] | None = None
        """What the control plane has to come to before the daemon goes on ending."""
        """Set, while we wait for it, when no world needs us any more."""
        self._failure: BaseException | None = None
        self._infos: dict[NodeId, dict[str, Any]] = {}
        self._notifier = Notifier.from_environment()
        self._memory = Memory(home)
        self._marks = Marks(home / "reached")
        remembered = self._memory.stable
        running = {record.id for record in remembered.records if not record.ended}
        self._children = ChildServer(
            home, self._child_said, self._child_exited, grace_seconds=settings.grace_seconds
        )
        self._peers = self._make_peers(insecure)
        hosts = tuple(dict.fromkeys(a.rpartition(":")[0] for a in settings.addresses))
        self._ranks = Ranks(home, hosts, self._children, self._record, self._post)
        neighbours = Neighbours(
            self._me,
            self._peers.fetch,
            self._peers.address_of,
            lambda: self._node.liveness.living(),
            lambda node: self._engine.relay(node),
        )
        self._states = States(home, neighbours, self._ranks, self._record, self._post, self._tell)
        self._events = EventLog(home / "events", f"{self._me}/{self._boot}")
        who = Who(
            self._me,
            self._boot,
            lambda: secrets.token_hex(4),
            len(settings.peers),
            Timing(return_seconds=settings.return_seconds),
            unix_seconds,
            settings.failure_domain,
            settings.partition == "strict",
            hosts,
        )
        found = Found(
            replace(remembered, reached=self._marks.read(running)),
            self._states.stored(),
            self._ranks.adopt(self._children.adopt()),
        )
        self._node = Node(who, found)
        self._engine = Engine(Endpoint(self._node), self._perform, self._broken)
        self._queries = Queries(
            self._node,
            settings.cluster,
            self._states,
            self._events,
            neighbours,
            self._infos,
            self._peers.paths_of,
            self._post,
            self._stop.set,
        )
        self._inventory = Inventory(
            self._states,
            lambda: [self._me, *neighbours.connected()],
            lambda known: self._node.records.get(known),
        )
        self._scrubber = Scrubber(self._states, neighbours.connected, settings.quota_bytes)
        self._cutter = Cutter(home, self._peers, self._ranks.rings, firewall())
        self._chaos = Chaos(self._node, self._children, self._ranks.watch, neighbours, self._cutter)
        handlers = {
            **self._queries.handlers(),
            **self._inventory.handlers(),
            **self._chaos.handlers(),
        }
        self._control = ControlServer(home, handlers)

    async def run(self) -> int:
        """Serve until a signal, a ``shutdown`` request or a broken invariant."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._uncaught)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._cutter.clean()
        self._infos[self._me] = self._own_info()
        await self._children.start()
        self._ranks.watch.start()
        await self._peers.start()
        await self._control.start()
        self._write_identity()
        self._engine.start()
        self._scrubber.start()
        jobs = JobsFolder.start(self._home / "jobs", self._submit_file)
        self._notifier.ready()
        watchdog = asyncio.create_task(self._feed_watchdog())
        rotation = asyncio.create_task(self._rotate_logs())
        asking = asyncio.create_task(self._ask_for_events())
        log.info("daemon runs", node=self._me, listen=self._settings.listen, version=__version__)
        try:
            await self._stop.wait()
        finally:
            self._notifier.stopping()
            watchdog.cancel()
            rotation.cancel()
            asking.cancel()
            await jobs.close()
            await self._end()
        if self._failure is not None:
            log.error("daemon stops", reason=repr(self._failure))
            return 1
        return 0

    async def _feed_watchdog(self) -> None:
        """Tell systemd that the loop turns, as often as it wants to know."""
        while (seconds := self._notifier.watchdog_seconds) > 0:
            self._notifier.watchdog()
            await asyncio.sleep(seconds / 2)

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_SECONDS)
            self._ranks.rotate_logs()

    async def _ask_for_events(self) -> None:
        """While a link is dead, what its other end tells comes from those that both reach."""
        for turn in itertools.count():
            await asyncio.sleep(ASK_SECONDS)
            deaf = self._node.ctx.deaf
            near = [node for node in self._peers.connected() if node not in deaf]
            if deaf and near:
                self._compare_events(near[turn % len(near)])

    def _compare_events(self, node: NodeId) -> None:
        """Say which events are here, to be sent those that are not."""
        self._peers.send(node, {"t": "have_events", "vector": self._events.vector()})

    async def _end(self) -> None:
        await self._depart()
        # The others need not wait for our silence, nor do without our vote.
        self._post(e.Leave("its daemon is being stopped"))
        await self._until(self._node.may_end, VOTE_SECONDS)
        self._engine.stop()
        self._ranks.close()
        await self._scrubber.close()
        self._states.close()
        self._inventory.close()
        await self._chaos.close()
        await self._children.stop_all(STOP_SECONDS)
        await self._children.close()
        await self._peers.close()
        await self._control.close()
        self._memory.close()
        (self._home / IDENTITY_NAME).unlink(missing_ok=True)

    async def _depart(self) -> None:
        """Let the world go on without our rank first, at its next step boundary."""
        if self._failure is not None:
            return
        self._post(e.Depart())
        await self._until(self._node.may_stop, DEPART_SECONDS)

    async def _until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until the control plane has come to something, but not for longer."""
        if ready():
            return
        event = asyncio.Event()
        self._waits = ready, event
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    # --- wiring -------------------------------------------------------------------------------

    def _make_peers(self, insecure: bool) -> Peers:
        settings = self._settings
        path = self._home / "cluster_id"
        cluster_id = path.read_text().strip() if path.exists() else ""
        own = settings.addresses
        identity = Identity(
            cluster_id,
            settings.cluster,
            self._me,
            self._boot,
            own[0],
            settings.partition,
            own,
        )
        calls = Callbacks(
            self._peer_up,
            self._peer_down,
            self._peer_said,
            self._serve,
            moved=self._peer_up,
            paths=lambda node, paths: self._post(e.Paths(node, paths)),
        )
        return Peers(identity, settings.listen, settings.peers, calls, insecure)

    async def _submit_file(self, path: Path) -> str:
        if path.parent == self._home.absolute() / "jobs":
            # Its folder is shipped, and that would be everybody's jobs.
            raise UsageError(f"{path.name}: give it a folder of its own, with its script")
        spec = job.load(path)
        packed = await asyncio.to_thread(archive.pack, path.parent)
        answer = await self._queries.submit_archive(spec, packed.data, packed.digest)
        return str(answer["id"])

    def _write_identity(self) -> None:
        identity = {
            "pid": os.getpid(),
            "create_time": psutil.Process().create_time(),
            "address": self._settings.addresses[0],
        }
        write_durable(self._home / IDENTITY_NAME, json.dumps(identity).encode())

    def _own_info(self) -> dict[str, Any]:
        return {
            "address": self._settings.addresses[0],
            "pid": os.getpid(),
            "chip": platform.processor() or platform.machine(),
            "memory_bytes": psutil.virtual_memory().total,
        }

    def _record(self, job_id: JobId) -> Any:
        return self._node.records[job_id]

    def _tell(self, kind: str, job_id: JobId, reason: str, fields: dict[str, Any]) -> None:
        self._emit(e.Emit(job_id, kind, reason, None, fields))

    def _post(self, event: e.Inward) -> None:
        self._engine.post(event)

    def _broken(self, error: BaseException) -> None:
        """A control plane that broke an invariant, or can't journal, must not go on."""
        if self._failure is not None:
            return
        self._failure = error
        log.error("the control plane stopped", error=repr(error), exc_info=error)
        self._engine.stop()
        if isinstance(error, OSError):
            self._engine.last_words(e.Leave(f"its disk can't be written: {error}"))
        self._stop.set()

    def _uncaught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        log.error("uncaught", what=context.get("message"), error=repr(error), exc_info=error)
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            self._broken(error)

    # --- what comes in ------------------------------------------------------------------------

    def _child_said(self, child: Any, message: dict[str, Any], fds: list[int]) -> None:
        self._ranks.on_message(child, message, fds)

    def _child_exited(self, child: Any, status: int | None) -> None:
        if status and (error := unwritable(self._home)) is not None:
            # Then a script that failed has most likely failed of that, and only here.
            self._broken(error)
        self._ranks.on_exit(child, status)

    async def _serve(self, request: dict[str, Any]) -> int:
        if request.get("what") == "chaos":
            return await self._chaos.serve(request)
        if request.get("what") == "blank":
            fd = nameless_file()
            os.ftruncate(fd, BLANK_BYTES)
            return fd
        return await self._states.serve(request)

    def _peer_up(self, node: NodeId, boot: str, address: str) -> None:
        self._peers.send(node, {"t": "node_info", **self._infos[self._me]})
        self._compare_events(node)
        self._post(e.PeerUp(node, boot, address))

    def _peer_down(self, node: NodeId, boot: str, reason: str) -> None:
        self._post(e.PeerDown(node, boot, reason))

    def _peer_said(self, node: NodeId, frame: dict[str, Any]) -> None:
        match frame.get("t"):
            case "node_info":
                keys = ("address", "pid", "chip", "memory_bytes")
                self._infos[node] = {key: frame.get(key) for key in keys}
            case "have_events":
                for batch in self._events.missing(frame["vector"]):
                    self._peers.send(node, {"t": "events", "items": batch})
            case "events":
                self._add_events(frame["items"])
            case "frame":
                self._post(e.Arrived(node, decode_frame(frame)))
            case kind:
                raise ProtocolError(f"unknown frame {str(kind)[:80]!r}")

    def _add_events(self, items: list[Any]) -> None:
        try:
            for item in items:
                self._events.add(item)
        except OSError as error:  # ours, not the connection's
            self._broken(error)

    # --- what goes out ------------------------------------------------------------------------

    def _perform(self, effect: e.Outward) -> None:
        ranks, states = self._ranks, self._states
        match effect:
            case e.Transmit(to, frame):
                self._peers.send(to, encode_frame(frame))
            case e.Persist(kind, record):
                self._memory.persist(kind, record)
            case e.Reached():
                self._marks.write(effect)
            case e.Emit():
                self._emit(effect)
            case e.Log(level, text, fields):
                getattr(log, level)(text, **fields)
            case e.StartTrainer():
                ranks.start_trainer(effect)
            case e.StartReducer():
                ranks.start_reducer(effect)
            case e.KillChild():
                ranks.kill(effect)
            case e.StopReducer():
                ranks.stop_reducer(effect)
            case e.ContinueReducer():
                ranks.continue_reducer(effect)
            case e.TellTrainer():
                ranks.tell_trainer(effect)
            case e.EnterWorld():
                ranks.enter_world(effect, states.store.folder(effect.world.job))
            case e.FormReducer():
                ranks.form_reducer(effect)
            case e.PrepareState():
                states.prepare_state(effect)
            case e.FetchState():
                states.fetch_state(effect)
            case e.EnsureArchive():
                states.ensure_archive(effect)
            case e.CommitManifest():
                states.commit_manifest(effect)
            case e.PruneStore():
                states.prune_store(effect)
            case e.FetchShards():
                states.fetch_shards(effect)
            case e.Reply():
                self._queries.reply(effect)
            case _:
                assert_never(effect)
        if self._waits is not None and self._waits[0]():
            self._waits[1].set()

    def _emit(self, effect: e.Emit) -> None:
        fields = dict(effect.fields)
        event = {
            "time": unix_seconds(),
            "node": fields.pop("culprit", self._me),
            "job": effect.job,
            "generation": effect.generation,
            "kind": effect.kind,
            "reason": effect.reason,
            **fields,
        }
        log.info("event", kind=effect.kind, reason=effect.reason, job=effect.job)
        written = self._events.write(event)
        for node in self._peers.connected():
            self._peers.send(node, {"t": "events", "items": [written]})


class _Forgiving(io.TextIOBase):
    """A log that loses lines when its disk is full, since no line is worth the daemon."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str, /) -> int:
        with contextlib.suppress(OSError):
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


IDENTITY_NAME = "daemon.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """``elasticd``: exit code 0 after a deliberate stop, 1 after a failure, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="elasticd",
        description="The elasticd daemon: one runs on every node, under launchd or systemd.",
        epilog="Example: elasticd run --home ~/.local/state/elasticd",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="run in the foreground, for launchd and systemd",
        epilog="Example: elasticd run --home /tmp/mac-1",
    )
    run.add_argument("--home", type=Path, help="the state folder (default: the system's usual)")
    run.add_argument("--config", type=Path, help="elasticd.toml (default: the one in the home)")
    run.add_argument(
        "--insecure",
        action="store_true",
        help="listen where others can reach it; nothing is encrypted, nobody has to log in",
    )
    given = parser.parse_args(arguments)
    try:
        return _run(given.home or config.default_home(), given.config, given.insecure)
    except (ElasticdError, OSError) as error:
        print(f"elasticd: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)


def _run(home: Path, file: Path | None, insecure: bool) -> int:
    home = home.absolute()
    file = file.absolute() if file is not None else None
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings = config.load(home, file)
    lock = lock_home(home)
    try:
        _prepare(home)
        if insecure:
            log.warning("--insecure: whoever reaches it controls the training", at=settings.listen)
        return asyncio.run(_main(home, settings, insecure))
    finally:
        os.close(lock)


async def _main(home: Path, settings: config.NodeConfig, insecure: bool) -> int:
    return await Daemon(home, settings, insecure).run()


def _prepare(home: Path) -> None:
    os.chdir(home)  # Unix socket paths are short; ours are relative to the home
    os.umask(0o077)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=cast(TextIO, _Forgiving(sys.stderr))),
    )


if __name__ == "__main__":
    sys.exit(main())
