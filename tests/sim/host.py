"""A node: its disk, its daemon (the code under test) and a shell that performs the effects."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, assert_never

from elasticd.core.duties import Duties, Flush, Mark
from elasticd.core.endpoint import Endpoint
from elasticd.core.membership.sessions import Session
from elasticd.core.node import Node, Who
from elasticd.core.words import effects as e
from elasticd.core.words import reducers, ring, trainers
from elasticd.core.words.codec import Words, to_plain
from elasticd.core.words.frames import Frame
from elasticd.core.words.hearers import Hearers
from elasticd.core.words.messages import Message
from elasticd.core.words.records import World
from elasticd.core.words.stable import Found
from elasticd.types import SECRET_BYTES, JobId, NodeId, Role, Secret

from .clock import Clock
from .cluster import Cluster, Violation
from .disk import Disk
from .environments import Environment
from .process import Process
from .releases import PRESENT, Release
from .ring import Reducer
from .stores import Stores
from .trainer import Trainer

_RESTART_SECONDS = 2.0
"""After so long the service manager starts a daemon again that has failed."""
_GRACE_SECONDS = 30.0
SYNC_SECONDS = (0.0005, 0.02)
"""What a sync of the journal takes, least and most, where the disk is not slow."""
_LOOK_SECONDS = 0.05
"""Between two looks whether a disk that hangs has come back."""
_ASKING_SECONDS = (2.0, 3.0)
"""Until a daemon has asked others in vain for files of a job, as shell/storage/archives.py does."""
BEAT_SECONDS = 0.25
"""As in shell/controlplane.py."""


class Crash(Exception):
    """The daemon was killed between two effects."""


class Watched(Endpoint):
    """Shows the checkers what the node inside says and hears."""

    def __init__(self, host: Host, node: Node) -> None:
        super().__init__(node)
        self.host = host

    def _step_node(self, now: float, event: e.Event) -> list[e.Effect]:
        self.host.cluster.checkers.steps(self.host, event)
        effects = super()._step_node(now, event)
        self.host.cluster.checkers.stepped(self.host, event, effects)
        return effects

    def _take(
        self, now: float, node: NodeId, session: Session, frame: Frame, effects: list[e.Outward]
    ) -> Sequence[Message]:
        """Of whatever way it came: it is read as the build here reads it."""
        return super()._take(now, node, session, self.host.release.read(frame), effects)

    def _frames(self, now: float, node: NodeId, frames: list[Frame]) -> list[e.Outward]:
        """Whatever way they go, they say what the build here knows. Cut before another node
        carries them: what is kept of a later version can't be told from that once it is encoded."""
        return super()._frames(now, node, [self.host.release.cut(each) for each in frames])


class Host:
    """Performs effects in order and posts their results, as the asyncio shell does."""

    def __init__(self, cluster: Cluster, name: NodeId, peers: int) -> None:
        self.cluster, self.name, self.peers = cluster, name, peers
        self.disk = Disk()
        self.environment = Environment()
        self.release: Release = PRESENT
        self.next_release: Release = PRESENT
        """What is installed: the next daemon is of that."""
        self.hearers = Hearers()
        self.stores = Stores(self)
        self.node: Node | None = None
        self.endpoint: Endpoint | None = None
        self.boot = ""
        self.children: dict[int, Process] = {}
        self.crash_in: int | None = None
        """Die before the n-th effect from now on."""
        self.paused = False
        self.replies: dict[int, dict[str, Any]] = {}
        self._boots = 0
        drift = cluster.setup.drift
        clock = self.chance("clock")
        self.usual_rate = clock.uniform(1 - drift, 1 + drift)
        """Of its clock."""
        self.clock = Clock(cluster, clock.uniform(0, 1000), self.usual_rate)
        self._duties: Duties | None = None
        self._flush: Flush | None = None
        """What is on its way to the disk."""
        self._busy = False
        self._timer = 0

    def chance(self, what: str) -> random.Random:
        """The stream of chance for one thing that befalls this node."""
        return self.cluster.chances.of(what, self.name)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.node is not None:
            return
        self._boots += 1
        self.boot = f"{self.name}.{self._boots}"
        self.disk.sweep({t.job for t in self.trainers()})
        node_type = self.cluster.mixture.node_type(self)
        chance = self.chance("nonces")
        who = Who(
            self.name,
            self.boot,
            lambda: f"{chance.getrandbits(32):08x}",
            self.peers,
            self.cluster.setup.timing,
            self.clock.wall,
            self.cluster.station_of(self.name),
            strict=self.cluster.setup.partition == "strict",
            hosts=self.cluster.addresses.of(self.name),
            secret=lambda: Secret(self.chance("secrets").randbytes(SECRET_BYTES)),
        )
        jobs = sorted({job for job, _, _ in self.disk.finals})
        stored = {job: self.disk.stored(job) for job in jobs}
        self.node = node_type(who, Found(self.disk.stable(), stored, self._leftovers()))
        self.endpoint = Watched(self, self.node)
        self._duties = Duties(self.endpoint)
        self.cluster.say(self.name, "starts")
        self.cluster.network.appeared(self.name)
        self.cluster.ageing.started(self)
        self.post(e.Tick())
        self.cluster.addresses.notice(self)
        for child in list(self.children.values()):
            meets = partial(child.meet, self.boot)
            dice = self.chance("introductions")
            # A busy process is late: the view is formed before.
            child.later(dice.uniform(0.001, dice.choice((0.06, 0.06, 0.6))), meets)

    def _leftovers(self) -> tuple[e.Leftover, ...]:
        """Children that outlived the daemon before this one."""
        found = []
        for number, child in sorted(self.children.items()):
            child.adopted = True
            trainer = isinstance(child, Trainer)
            job = child.job if isinstance(child, Trainer) else None
            spare = isinstance(child, Trainer) and child.spare
            role: Role = "trainer" if trainer else "reducer"
            found.append(e.Leftover(number, role, job, spare, 1000 + number))
        return tuple(found)

    def kill_daemon(self) -> None:
        """The daemon alone dies: its children go on, for as long as their dead-man lets them."""
        if self.node is None:
            return
        self.cluster.say(self.name, "loses its daemon")
        self._forget()
        boots = self._boots

        def dead_man() -> None:
            if self._boots == boots:
                for child in list(self.children.values()):
                    child.die(-14)

        self.cluster.after(_GRACE_SECONDS, dead_man)

    def restart_daemon(self, seconds: float = 1.0) -> None:
        """Kill the daemon; another takes over its children after so many seconds."""
        self.kill_daemon()
        self.cluster.after(seconds, self.start)

    def _forget(self) -> None:
        self.node, self.boot, self.crash_in, self.paused = None, "", None, False
        self.endpoint = self._duties = None
        if self._flush is not None:
            # Its write may have been made, in part or as a whole; nobody was told of it.
            flush, self._flush = self._flush, None
            records = [
                replace(each, record=self.release.cut(each.record)) for each in flush.records
            ]
            self.disk.tear(records, self.chance("torn writes"))
        for number in [n for n, child in self.children.items() if not child.alive]:
            del self.children[number]
        self.cluster.network.crashed(self.name)

    def crash(self, power: bool = True) -> None:
        """Daemon and children end at once; what the disk has not synced goes with ``power``."""
        if self.node is None and not self.children:
            return
        self.cluster.say(self.name, "crashes")
        if power:
            self.disk.power_cut(self.chance("power cuts"))
        children, self.children = self.children, {}
        for child in children.values():
            child.die(-9)
        self._forget()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._drain()

    @property
    def done(self) -> bool:
        """Nothing waits to be performed, not even for the disk."""
        return self._duties is None or self._duties.done

    def now(self) -> float:
        """This node's own monotonic clock."""
        return self.clock.monotonic()

    def session_boot(self, node: NodeId) -> str:
        """The run of another daemon that this one's session is with."""
        session = self.endpoint.sessions.get(node) if self.endpoint is not None else None
        return session.boot if session is not None else ""

    # --- events -----------------------------------------------------------------------------------

    def post(self, event: e.Inward) -> None:
        if self._duties is None:
            return
        self._duties.post(event)
        self._drain()

    def _drain(self) -> None:
        if self._busy or self.paused or self._flush is not None:
            return
        self._busy = True
        try:
            while (duties := self._duties) is not None:
                if (todo := duties.next(self.now())) is None:
                    break
                if isinstance(todo, Flush):
                    self._begin(todo)
                elif not isinstance(todo, Mark):  # those are for who asks a daemon for events
                    self._maybe_crash(todo)
                    self._perform(todo)
        except Crash:
            self.crash()
        finally:
            self._busy = False
        self._arm()

    def _maybe_crash(self, todo: e.Outward | None = None) -> None:
        if self.crash_in is None or isinstance(todo, e.Reached):
            return
        self.crash_in -= 1
        if self.crash_in < 0:
            raise Crash

    # --- the journal ------------------------------------------------------------------------------

    def _begin(self, flush: Flush) -> None:
        """Another thread writes; the loop goes on."""
        self._flush = flush
        self._maybe_crash()
        seconds = self.chance("syncs").uniform(*SYNC_SECONDS)
        if self.disk.sync_seconds:
            seconds += self.chance("syncs").uniform(0.0, self.disk.sync_seconds)

        def over() -> None:
            if self._flush is not flush:
                return
            if self.disk.hangs:
                self.cluster.after(_LOOK_SECONDS, over)
            else:
                self._written(flush)

        self.cluster.after(seconds, over)

    def _written(self, flush: Flush) -> None:
        if self.disk.full:
            self._flush = None
            self._fail("no space left on device")
            return
        for persist in flush.records:
            self.cluster.checkers.persists(self, persist.kind, persist.record)
            record = self.release.cut(persist.record)
            self.disk.append(persist.kind, record)
            self.cluster.persisted(self, record)
        self._flush = None
        assert self._duties is not None
        self._duties.flushed()
        self._drain()

    def _fail(self, reason: str) -> None:
        """A daemon that can't write its journal ends, and is started again."""
        self.cluster.say(self.name, f"gives up: {reason}")
        self.crash(power=False)
        self.cluster.after(_RESTART_SECONDS, self.start)

    def _arm(self) -> None:
        self._timer += 1
        endpoint, timer, duties = self.endpoint, self._timer, self._duties
        if endpoint is None or duties is None:
            return

        def fire() -> None:
            if self._timer == timer and self.endpoint is endpoint:
                self.post(e.Tick())

        def beat() -> None:
            if self._timer != timer or self.endpoint is not endpoint:
                return
            for effect in () if self.paused else duties.beats(self.now()):
                self._perform(effect)
            self._arm()

        if duties.flushing:
            self.cluster.after(self.clock.true_seconds(BEAT_SECONDS), beat)
            return
        wait = self.clock.true_seconds(endpoint.next_deadline() - self.now())
        self.cluster.after(max(0.001, wait), fire)

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effect: e.Outward) -> None:
        match effect:
            case e.Transmit(to, frame):
                if frame.message is not None:
                    self.cluster.checkers.speaks(self, frame.message)
                self.cluster.network.send(self.name, to, frame)
            case e.Persist():
                raise Violation(f"{self.name} performs a record unwritten")
            case e.Reached(job):
                self.disk.reached[job] = effect
            case e.Emit():
                self.cluster.say(self.name, effect)
                self.cluster.checkers.emitted(self, effect)
            case e.Log():
                self.cluster.say(self.name, effect)
            case e.Reply(request, body):
                self.replies[request] = to_plain(body)
                self.cluster.answers.setdefault(request, to_plain(body))
            case e.EnsureArchive(record):
                there = record.id not in self.cluster.missing_archives
                why = "" if there else "no peer has it"
                seconds = (0.001, 0.05) if there else _ASKING_SECONDS
                self._soon(seconds, e.ArchiveReady(record.id, there, why))
            case e.CommitManifest():
                self.stores.commit(effect)
            case e.PruneStore():
                self.stores.prune(effect)
            case e.FetchShards():
                self.stores.fetch_shards(effect)
            case e.FetchState():
                self.stores.fetch_state(effect)
            case e.PrepareState():
                self.stores.prepare_state(effect)
            case ring.StopReducer() | ring.ContinueReducer():
                if effect.child in self.children:
                    self._reducer(effect.child).perform(effect)
            case _:
                self._perform_on_child(effect)

    def _perform_on_child(
        self,
        effect: e.StartTrainer
        | e.StartReducer
        | e.KillChild
        | e.TellTrainer
        | e.EnterWorld
        | e.FormReducer,
    ) -> None:
        match effect:
            case e.StartTrainer(child, job, spare):
                spec = self.cluster.specs[job]
                self.disk.files.add(job)
                self._started(Trainer(self, child, job, spec, spare))
            case e.StartReducer(child):
                self._started(Reducer(self, child))
            case e.KillChild(child, reason, graceful):
                if child in self.children:
                    self.cluster.say(self.name, f"kills {child}: {reason}")
                    self._kill(self.children[child], graceful)
            case e.TellTrainer(child, message):
                if child in self.children:
                    self._trainer(child).hear(message)
            case e.EnterWorld(trainer, reducer, world, rank):
                self._enter(trainer, reducer, world, rank)
            case e.FormReducer(child, world, rank, order):
                if child in self.children:
                    self._reducer(child).form(world, rank, order)
            case _:
                assert_never(effect)

    def _started(self, process: Process) -> None:
        if process.child in self.children:
            raise Violation(f"{self.name} uses child number {process.child} twice")
        self.children[process.child] = process
        kind = type(process).__name__.lower()
        self.cluster.say(self.name, f"starts {kind} {process.child}")
        self.post(e.ChildStarted(process.child, 1000 + process.child))

    def _enter(self, trainer: int, reducer: int | None, world: World, rank: int) -> None:
        if trainer not in self.children or reducer not in (None, *self.children):
            return
        place = None if reducer is None else self._reducer(reducer)
        self._trainer(trainer).enter(world, rank, place)

    def runs(self, job: JobId) -> bool:
        """Whether a process of the job is here."""
        return any(trainer.job == job for trainer in self.trainers())

    def trainers(self) -> list[Trainer]:
        return [child for child in self.children.values() if isinstance(child, Trainer)]

    def _trainer(self, child: int) -> Trainer:
        process = self.children[child]
        assert isinstance(process, Trainer)
        return process

    def _reducer(self, child: int) -> Reducer:
        process = self.children[child]
        assert isinstance(process, Reducer)
        return process

    def _soon(self, bounds: tuple[float, float], event: e.Event) -> None:
        boot = self.boot

        def happen() -> None:
            if self.boot == boot:
                self.post(event)

        self.cluster.after(self.chance("archives").uniform(*bounds), happen)

    # --- from the children ------------------------------------------------------------------------

    def said(self, process: Process, word: e.FromChild) -> None:
        if self.cluster.setup.on_the_wire:
            trains = isinstance(process, Trainer)
            words: Words[Any] = trainers.FROM_TRAINER if trains else reducers.FROM_REDUCER
            word = words.decode(words.encode(word))
        self._from_child(process, e.ChildSaid(process.child, word))

    def reducer_ready(self, process: Reducer) -> None:
        first = next(iter(self.cluster.addresses.of(self.name)), self.name)
        ring_host = f"{first}:{process.child}.{self.boot}"
        proves = process.proves and self.release.knows_secrets
        along = self.release.knows_secrets  # which came before it
        self._from_child(process, e.ReducerReady(process.child, ring_host, proves, along, along))

    def reducer_listens(self, process: Reducer) -> None:
        self._from_child(process, ring.ReducerListens(process.child))

    def reducer_taken(self, process: Reducer) -> None:
        if self.release.knows_secrets:  # the version before does not look for that
            self._from_child(process, ring.ReducerTaken(process.child))

    def exited(self, process: Process, status: int) -> None:
        if self.children.get(process.child) is not process:
            return
        self.cluster.say(self.name, f"child {process.child} ended with {status}")
        boot = self.boot
        if self.node is None:
            del self.children[process.child]
            return
        process.status = status

        def reaped() -> None:
            if self.boot == boot and self.children.get(process.child) is process:
                self._reap(process)

        wait = process.chance("reaped").uniform(*self.cluster.setup.reap_seconds)
        self.cluster.after(wait, reaped)

    def _kill(self, process: Process, graceful: bool) -> None:
        if process.alive or graceful:
            process.kill(-15 if graceful else -9)
        else:
            self._reap(process, before=True)

    def _reap(self, process: Process, before: bool = False) -> None:
        del self.children[process.child]
        # An adopted process says how it ends, if it can.
        known = None if process.adopted and process.status < 0 else process.status
        words, memory = process.last_words, process.memory
        self.post(e.ChildExited(process.child, known, words, memory, before))

    def _from_child(self, process: Process, event: e.Event) -> None:
        boot = process.daemon

        def heard() -> None:
            if self.boot == boot:
                self.post(event)

        self.cluster.after(0.0005, heard)
