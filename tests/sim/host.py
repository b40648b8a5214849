"""A node: its disk, its daemon (the code under test) and a shell that performs the effects."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, assert_never

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.checkpoints.retention import KeepLast, prunable
from elasticd.core import effects as e
from elasticd.core.endpoint import Endpoint
from elasticd.core.messages import JobRecord, View, World
from elasticd.core.node import Node, Stable
from elasticd.types import JobId, Lineage, NodeId, Point, Stamp

from .cluster import Cluster, Violation
from .trainer import Process, Reducer, Trainer

_FETCH_SECONDS = 60.0


@dataclass(slots=True)
class Disk:
    """What survives a crash: the journal and the checkpoints."""

    journal: list[tuple[str, Any]] = field(default_factory=list)
    finals: dict[tuple[JobId, int, Stamp], Manifest] = field(default_factory=dict)
    shards: dict[tuple[JobId, int, Stamp], dict[tuple[int, int], tuple[int, str]]] = field(
        default_factory=dict
    )
    """Per state, by (count, index)."""
    committed: list[tuple[Manifest, tuple[int, ...]]] = field(default_factory=list)
    """Every manifest that was ever stored here, with the shards that were here then."""

    def write_partial(
        self, job: JobId, point: Point, count: int, indices: list[int]
    ) -> list[tuple[int, int, str]]:
        """A trainer's shards. Their bytes name the lineage, as the real ones' metadata does."""
        files = self.shards.setdefault((job, point.step, point.stamp), {})
        rows = []
        for index in indices:
            digest = shard_digest(point.lineage, point.step, count, index)
            files[count, index] = (100, digest)
            rows.append((index, 100, digest))
        return rows

    def commit(self, node: NodeId, manifest: Manifest, keep: int) -> str:
        """Why the manifest can't be stored, or nothing."""
        key = (manifest.job, manifest.step, manifest.stamp)
        old = self.finals.get(key)
        if old is not None and not old.same_state(manifest):
            return "another state is committed there"
        files = self.shards.get(key, {})
        for index in manifest.held_by(node):
            shard = manifest.shards[index]
            if files.get((manifest.count, index)) != (shard.bytes, shard.digest):
                return f"shard {index} is missing"
        self.finals[key] = manifest
        self.shards[key] = {k: v for k, v in files.items() if k[0] == manifest.count}
        self.committed.append((manifest, self.held(manifest)))
        known = [m for m in self.finals.values() if m.job == manifest.job]
        for gone in prunable(known, [KeepLast(keep)], manifest.lineage):
            del self.finals[gone.job, gone.step, gone.stamp]
            self.shards.pop((gone.job, gone.step, gone.stamp), None)
        return ""

    def held(self, manifest: Manifest) -> tuple[int, ...]:
        files = self.shards.get((manifest.job, manifest.step, manifest.stamp), {})
        return tuple(
            shard.index
            for shard in manifest.shards
            if files.get((manifest.count, shard.index)) == (shard.bytes, shard.digest)
        )

    def stored(self, job: JobId) -> tuple[Stored, ...]:
        found = sorted(
            (m for m in self.finals.values() if m.job == job), key=lambda m: (m.step, m.stamp)
        )
        return tuple(Stored(manifest, self.held(manifest)) for manifest in found)

    def sweep(self) -> None:
        """As LocalStore.sweep: unfinished checkpoints not above the newest final one go."""
        newest: dict[JobId, int] = {}
        for job, step, _ in self.finals:
            newest[job] = max(newest.get(job, -1), step)
        for key in list(self.shards):
            if key not in self.finals and key[1] <= newest.get(key[0], -1):
                del self.shards[key]

    def stable(self) -> Stable:
        """As shell/memory.py."""
        counter, promised = 0, None
        worlds: dict[JobId, World] = {}
        records: dict[JobId, JobRecord] = {}
        for kind, record in self.journal:
            match record:
                case View(epoch=epoch):
                    counter = max(counter, epoch.counter)
                    promised = epoch if kind == "view_attempt" else promised
                case World(generation=generation, job=job):
                    worlds[job] = record
                    counter = max(counter, generation.counter)
                case JobRecord(id=job):
                    known = records.get(job)
                    records[job] = record if known is None else known.merged(record)
        kept = tuple(worlds[job] for job in sorted(worlds))
        return Stable(counter, promised, tuple(records[job] for job in sorted(records)), kept)


class Crash(Exception):
    """The daemon was killed between two effects."""


class Watched(Endpoint):
    """Shows the checkers what the node inside says and hears."""

    def __init__(self, host: Host, node: Node) -> None:
        super().__init__(node)
        self.host = host

    def _step_node(self, now: float, event: e.Event) -> list[e.Effect]:
        effects = super()._step_node(now, event)
        self.host.cluster.checkers.stepped(self.host, event, effects)
        return effects


class Host:
    """Performs effects in order and posts their results, as the asyncio shell does."""

    def __init__(self, cluster: Cluster, name: NodeId, peers: int) -> None:
        self.cluster, self.name, self.peers = cluster, name, peers
        self.disk = Disk()
        self.node: Node | None = None
        self.endpoint: Endpoint | None = None
        self.boot = ""
        self.children: dict[int, Process] = {}
        self.crash_in: int | None = None
        """Die before the n-th effect from now on."""
        self.paused = False
        self.replies: dict[int, dict[str, Any]] = {}
        self._boots = 0
        self._events: deque[e.Inward] = deque()
        self._busy = False
        self._timer = 0
        self._offset = cluster.rng.uniform(0, 1000)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.node is not None:
            return
        self._boots += 1
        self.boot = f"{self.name}.{self._boots}"
        self.disk.sweep()
        jobs = sorted({job for job, _, _ in self.disk.finals})
        chance = self.cluster.rng
        self.node = self.cluster.setup.node_type(
            me=self.name,
            boot=self.boot,
            nonce=lambda: f"{chance.getrandbits(32):08x}",
            expected_peers=self.peers,
            timing=self.cluster.setup.timing,
            stable=self.disk.stable(),
            stored={job: self.disk.stored(job) for job in jobs},
        )
        self.endpoint = Watched(self, self.node)
        self.cluster.say(self.name, "starts")
        self.cluster.network.appeared(self.name)
        self.post(e.Tick())

    def crash(self) -> None:
        """Power fails: daemon and children end at once, the disk stays."""
        if self.node is None:
            return
        self.cluster.say(self.name, "crashes")
        self.node, self.boot, self.crash_in, self.paused = None, "", None, False
        self.endpoint = None
        self._events.clear()
        children, self.children = self.children, {}
        for child in children.values():
            child.die(-9)
        self.cluster.network.crashed(self.name)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._drain()

    def now(self) -> float:
        """This node's own monotonic clock."""
        return self.cluster.now + self._offset

    # --- events -----------------------------------------------------------------------------------

    def post(self, event: e.Inward) -> None:
        if self.node is None:
            return
        self._events.append(event)
        self._drain()

    def _drain(self) -> None:
        if self._busy or self.paused:
            return
        self._busy = True
        try:
            while self._events and self.endpoint is not None:
                event = self._events.popleft()
                for effect in self.endpoint.step(self.now(), event):
                    self._maybe_crash()
                    self._perform(effect)
        except Crash:
            self.crash()
        finally:
            self._busy = False
        self._arm()

    def _maybe_crash(self) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise Crash

    def _arm(self) -> None:
        self._timer += 1
        endpoint, timer = self.endpoint, self._timer
        if endpoint is None:
            return

        def fire() -> None:
            if self._timer == timer and self.endpoint is endpoint:
                self.post(e.Tick())

        self.cluster.after(max(0.001, endpoint.next_deadline() - self.now()), fire)

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effect: e.Outward) -> None:
        match effect:
            case e.Transmit(to, frame):
                self.cluster.network.send(self.name, to, frame)
            case e.Persist(kind, record):
                self.disk.journal.append((kind, record))
            case e.Emit():
                self.cluster.say(self.name, f"event {effect.kind}: {effect.reason}")
                self.cluster.checkers.emitted(self, effect)
            case e.Log(level, text, fields):
                self.cluster.say(self.name, f"{level}: {text} {fields}")
            case e.Reply(request, body):
                self.replies[request] = body
            case e.EnsureArchive(record):
                self._soon((0.001, 0.05), e.ArchiveReady(record.id, True, ""))
            case e.CommitManifest():
                self._commit(effect)
            case e.FetchShards():
                self._fetch_shards(effect)
            case e.FetchState():
                self._fetch_state(effect, self.now() + _FETCH_SECONDS)
            case _:
                self._perform_on_child(effect)

    def _perform_on_child(
        self,
        effect: e.StartTrainer
        | e.StartReducer
        | e.KillChild
        | e.StopReducer
        | e.ContinueReducer
        | e.TellTrainer
        | e.EnterWorld
        | e.FormReducer,
    ) -> None:
        match effect:
            case e.StartTrainer(child, job, spare):
                spec = self.cluster.specs[job]
                self._started(Trainer(self, child, job, spec, spare))
            case e.StartReducer(child):
                self._started(Reducer(self, child))
            case e.KillChild(child, reason, graceful):
                if child in self.children:
                    self.cluster.say(self.name, f"kills {child}: {reason}")
                    self.children[child].kill(-15 if graceful else -9)
            case e.StopReducer(child):
                if child in self.children:
                    self.children[child].stop()
            case e.ContinueReducer(child):
                if child in self.children:
                    self.children[child].go_on()
            case e.TellTrainer(child, message):
                if child in self.children:
                    self._trainer(child).hear(message)
            case e.EnterWorld(trainer, reducer, world, rank):
                self._enter(trainer, reducer, world, rank)
            case e.FormReducer(child, world, rank):
                if child in self.children:
                    self._reducer(child).form(world, rank)
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

        self.cluster.after(self.cluster.between(bounds), happen)

    # --- checkpoints ------------------------------------------------------------------------------

    def _commit(self, effect: e.CommitManifest) -> None:
        boot, manifest = self.boot, effect.manifest

        def stored() -> None:
            if self.boot != boot:
                return
            reason = self.disk.commit(self.name, manifest, effect.keep)
            job = manifest.job
            kept = e.ManifestKept(
                job, manifest.step, manifest.stamp, not reason, reason, self.disk.stored(job)
            )
            self.post(kept)

        self.cluster.after(self.cluster.between((0.002, 0.03)), stored)

    def _fetch_shards(self, effect: e.FetchShards) -> None:
        boot = self.boot

        def fetched() -> None:
            if self.boot != boot:
                return
            reason = self._copy_shards(
                effect.job, effect.step, effect.stamp, effect.count, effect.shards, effect.sources
            )
            self.post(e.ShardsFetched(effect.report, not reason, reason))

        self.cluster.after(self.cluster.between((0.01, 0.1)), fetched)

    def _copy_shards(
        self,
        job: JobId,
        step: int,
        stamp: Stamp,
        count: int,
        shards: tuple[tuple[int, int, str], ...],
        sources: tuple[tuple[NodeId, ...], ...],
    ) -> str:
        """Why a shard could not be had, or nothing."""
        key = (job, step, stamp)
        for index, size, digest in shards:
            own = self.disk.shards.get(key, {})
            if own.get((count, index)) == (size, digest):
                continue
            for node in sources[index]:
                host = self.cluster.hosts[node]
                if host.node is None or not self.cluster.network.connected(self.name, node):
                    continue
                if host.disk.shards.get(key, {}).get((count, index)) == (size, digest):
                    self.disk.shards.setdefault(key, {})[count, index] = (size, digest)
                    break
            else:
                return f"shard {index} of step {step} could not be had"
        return ""

    # --- states -----------------------------------------------------------------------------------

    def _fetch_state(self, effect: e.FetchState, deadline: float) -> None:
        boot = self.boot

        def attempt() -> None:
            trainer = self.children.get(effect.trainer)
            if self.boot != boot or not isinstance(trainer, Trainer):
                return
            point = self._bring(effect)
            world = effect.world
            if isinstance(point, Point):
                trainer.load(world.generation, point)
            elif effect.source == "checkpoint" or self.now() >= deadline:
                self.post(e.StateFailed(world.job, world.generation, point))
            else:
                self.cluster.after(0.1, attempt)

        self.cluster.after(self.cluster.between((0.01, 0.15)), attempt)

    def _bring(self, effect: e.FetchState) -> Point | str:
        world = effect.world
        if effect.source == "checkpoint":
            found = world.manifest
            assert found is not None
            rows = tuple((s.index, s.bytes, s.digest) for s in found.shards)
            reason = self._copy_shards(
                found.job, found.step, found.stamp, found.count, rows, world.holders
            )
            return reason or found.point
        node = NodeId(effect.source.removeprefix("peer:"))
        host = self.cluster.hosts[node]
        if host.node is None or not self.cluster.network.connected(self.name, node):
            return f"{node} is not connected"
        for process in host.children.values():
            if isinstance(process, Trainer) and process.job == world.job and not process.stops:
                held = process.point
                wanted = (world.step, world.stamp)
                if held is not None and not process.updating and (held.step, held.stamp) == wanted:
                    return held
        return f"no trainer on {node} holds step {world.step}"

    # --- from the children ------------------------------------------------------------------------

    def said(self, process: Process, message: dict[str, Any]) -> None:
        self._from_child(process, e.ChildSaid(process.child, message))

    def reducer_ready(self, process: Reducer) -> None:
        ring_host = f"{self.name}:{process.child}.{self.boot}"
        self._from_child(process, e.ReducerReady(process.child, ring_host))

    def reducer_listens(self, process: Reducer) -> None:
        self._from_child(process, e.ReducerListens(process.child))

    def exited(self, process: Process, status: int) -> None:
        if self.children.get(process.child) is not process:
            return
        self.cluster.say(self.name, f"child {process.child} ended with {status}")
        boot = self.boot

        def reaped() -> None:
            if self.boot == boot:
                self.children.pop(process.child, None)
                self.post(e.ChildExited(process.child, status, "last words"))

        # After whatever it still said.
        self.cluster.after(0.002 + self.cluster.between((0.0, 0.003)), reaped)

    def _from_child(self, process: Process, event: e.Event) -> None:
        boot = self.boot

        def heard() -> None:
            if self.boot == boot:
                self.post(event)

        self.cluster.after(0.0005, heard)


def shard_digest(lineage: Lineage, step: int, count: int, index: int) -> str:
    seen = sum(ord(letter) * (position + 1) for position, letter in enumerate(lineage))
    return f"{seen:032x}{step:016x}{count:08x}{index:08x}"
