"""What each kind of fault does, where, and what ends it again.

Long because it is a catalogue: a few lines for each kind, of which none needs another.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import product
from math import inf

from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.recovery.quorum import holds
from elasticd.types import NodeId

from .ageing import LEAST_KEPT
from .cluster import Cluster, JobShape, Strike
from .host import Host
from .operators import Operator
from .process import Process
from .ring import Reducer
from .strikes import ENVIRONMENT_KINDS, VERSION_KINDS, plan
from .trainer import Trainer
from .upgrades import Upgrades

_CHILD_KILLS_WITHOUT_PROGRESS = 6
"""More than this without a committed step between is what fails a job on purpose."""
_MAX_JOBS = 4


class Injector:
    """Strikes by plan; :meth:`heal` ends whatever lasts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.operator = Operator(cluster)
        self.upgrades = Upgrades(self)
        self.struck: list[Strike] = []
        """Those of the plan that found something to hit."""
        self.stopped = False
        self.chance = random.Random(f"strikes {cluster.setup.seed}")
        self._undo: list[Callable[[], None]] = []
        self.absent: dict[Host, float] = {}
        """Who is away for long: until so many seconds after all other faults."""
        self._kills = 0
        self._seen = -1

    def begin(self) -> None:
        self.cluster.network.rough = True
        for strike in plan(self.cluster.setup):
            self.cluster.after(strike.at_seconds, partial(self._strike, strike))
        for number, how, seconds in self.cluster.setup.bad:
            self._mend_later(self.cluster.hosts[NodeId(f"n{number}")], how, seconds)
        for number, seconds in self.cluster.setup.lost:
            if seconds:
                self.later(seconds, partial(self._bring_back, number))
        self.cluster.after(self.cluster.setup.fault_seconds, self.heal)

    def heal(self) -> None:
        """Faults stop: everything that was stopped goes on, and dead nodes come back."""
        self.stopped = True
        self.cluster.poisons.pass_by()
        self.cluster.say("faults", "stop")
        self.cluster.network.rough = False
        for undo in self._undo:
            undo()
        for host in self.cluster.hosts.values():
            host.crash_in = None
            if (seconds := self.absent.get(host)) is None:
                host.start()
            else:
                self.cluster.after(seconds, host.start)
                self.cluster.after(max(0.0, seconds - self.chance.uniform(-1.0, 6.0)), self._rest)

    def _rest(self) -> None:
        """A job is paused, and resumed once it rests."""
        for job in sorted(self.cluster.specs)[:1]:
            self.operator.pause_for(job, 2.0, rests=True)

    def _bring_back(self, number: int) -> None:
        """The node is there again that has the files of that job."""
        job = list(self.cluster.specs)[number - 1]
        self.cluster.say("faults", f"the files of {job} are back")
        self.cluster.missing_archives.discard(job)

    def _strike(self, strike: Strike) -> None:
        self.chance = random.Random(f"{self.cluster.setup.seed} {strike.number}")
        if self.inject(strike.kind):
            self.struck.append(strike)

    def inject(self, kind: str) -> bool:
        """One fault of a kind, somewhere; False if there is nothing to hit."""
        hosts = self.cluster.living()
        if not hosts:
            return False
        host = self.chance.choice(hosts)
        owner = self.upgrades if kind in VERSION_KINDS else self
        hit: bool = getattr(owner, f"_{kind}")(host)
        self.cluster.faults[kind] += hit
        return hit

    # --- children ---------------------------------------------------------------------------------

    def _serving(self, host: Host, kind: type[Process]) -> list[Process]:
        """Children that are in a world now."""
        found: list[Process] = []
        for process in host.children.values():
            if not isinstance(process, kind) or not process.alive:
                continue
            trains = isinstance(process, Trainer) and process.point is not None
            if trains or (isinstance(process, Reducer) and process.ring is not None):
                found.append(process)
        return found

    def _kill(self, host: Host, victims: list[Process]) -> bool:
        if not victims or not self._may_kill():
            return False
        victim = self.chance.choice(victims)
        self.cluster.say("faults", f"kill {type(victim).__name__} {victim.child} on {host.name}")
        victim.kill()
        return True

    def _may_kill(self) -> bool:
        commits = self.cluster.checkers.commits
        newest = sum(len(each.stamps) for each in commits.values())
        if newest > self._seen:
            self._seen, self._kills = newest, 0
        self._kills += 1
        return self._kills <= _CHILD_KILLS_WITHOUT_PROGRESS

    def _trainer(self, host: Host) -> bool:
        return self._kill(host, self._serving(host, Trainer))

    def _reducer(self, host: Host) -> bool:
        return self._kill(host, self._serving(host, Reducer))

    def _trainers(self, host: Host) -> bool:
        """Every trainer that holds a state, at once."""
        victims = [t for h in self.cluster.living() for t in self._serving(h, Trainer)]
        if not victims or not self._may_kill():
            return False
        self.cluster.say("faults", "kill every trainer")
        for victim in victims:
            victim.kill()
        return True

    def _spare_trainer(self, host: Host) -> bool:
        return self._kill(host, self._idle(host, Trainer))

    def _spare_reducer(self, host: Host) -> bool:
        return self._kill(host, self._idle(host, Reducer))

    def _idle(self, host: Host, kind: type[Process]) -> list[Process]:
        busy = self._serving(host, kind)
        every = [p for p in host.children.values() if isinstance(p, kind) and p.alive]
        return [process for process in every if process not in busy]

    def _stop_trainer(self, host: Host) -> bool:
        return self._stop(host, self._serving(host, Trainer))

    def _stop_reducer(self, host: Host) -> bool:
        return self._stop(host, self._serving(host, Reducer))

    def _stop(self, host: Host, victims: list[Process]) -> bool:
        if not victims or not self._may_kill():
            return False
        victim = self.chance.choice(victims)
        self.cluster.say("faults", f"stop {type(victim).__name__} {victim.child} on {host.name}")
        victim.stop()
        self.later(self.chance.uniform(0.1, 12.0), victim.go_on)
        return True

    def _hang(self, host: Host) -> bool:
        """A trainer's script never comes to the end of what it computes."""
        victims = [t for t in self._serving(host, Trainer) if isinstance(t, Trainer)]
        if not victims or victims[0].stuck or not self._may_kill():
            return False
        self.cluster.say("faults", f"{victims[0].name} hangs")
        victims[0].stuck = True
        return True

    def _hang_loading(self, host: Host) -> bool:
        """The next state that a trainer takes never comes to be in place: its disk hangs, say."""
        victims = [t for t in host.children.values() if isinstance(t, Trainer) and t.alive]
        if not victims:
            return False
        victim = self.chance.choice(victims)
        victim.chokes_at = self.chance.choice(("reads", "loads"))
        self.cluster.say("faults", f"{victim.name} hangs when it {victim.chokes_at} a state")
        return True

    def _oom(self, host: Host) -> bool:
        """A trainer's next grain does not fit into memory."""
        victims = [t for t in self._serving(host, Trainer) if isinstance(t, Trainer)]
        if not victims or not self._may_kill():
            return False
        self.cluster.say("faults", f"memory of {victims[0].name} is short")
        victims[0].short = True
        return True

    def _deadlock(self, host: Host) -> bool:
        reducers = [p for p in self._serving(host, Reducer) if isinstance(p, Reducer)]
        rings = [r.ring for r in reducers if r.ring is not None and not r.ring.gone]
        if not rings or not self._may_kill():
            return False
        self.cluster.say("faults", f"the ring of {rings[0].world.generation} hangs")
        rings[0].deadlocked = True
        return True

    def _stranger(self, host: Host) -> bool:
        """Somebody connects to the ports of rings that are to come up there, if not at once."""
        if not self._may_kill():
            return False
        strangers, times = self.cluster.strangers, self.chance.choice((1, 1, 2, 7))
        strangers.come(host.name, times)
        self.later(self.chance.uniform(0.5, 8.0), partial(strangers.leave, host.name))
        if self.chance.random() < 0.6:
            self._reducer(host)
        return True

    def _diverge(self, host: Host) -> bool:
        """A trainer computes wrongly, once: its state is not the others' any more."""
        victims = [t for t in self._serving(host, Trainer) if isinstance(t, Trainer)]
        # Two that have computed wrongly look alike here, which no two do that are not by the same
        # fault: one at a time, its daemon may be dead.
        everybody = (t for h in self.cluster.hosts.values() for t in h.trainers())
        if not victims or any(t.spoilt and t.job == victims[0].job for t in everybody):
            return False
        self.cluster.say("faults", f"the state of {victims[0].name} is spoilt")
        victims[0].spoilt, victims[0].taint = True, frozenset((self.cluster.events,))
        return True

    def _diverge_daemons(self, host: Host) -> bool:
        """A trainer computes wrongly, and shortly after that was told all daemons are killed: what
        is known of it is what their disks have, and what the children tell again."""
        if not self._diverge(host):
            return False
        self.cluster.faults["diverge"] += 1
        checkers, names = self.cluster.checkers, sorted(self.cluster.hosts)
        told, wait = checkers.doubted, self.chance.choice((0.0, self.chance.uniform(0.0, 0.09)))
        longest = self.chance.choice((0.3, 1.0, 4.0))
        away = {name: self.chance.uniform(0.2, longest) for name in names}

        def fails() -> None:
            if self.stopped:
                return
            self.cluster.say("faults", "kill all daemons")
            for each in self.cluster.living():
                each.kill_daemon()
                self.later(away[each.name], each.start)

        self.cluster.when(
            lambda: self.stopped or checkers.doubted > told,
            lambda: self.cluster.after(wait, fails),
        )
        return True

    # --- nodes ------------------------------------------------------------------------------------

    def _node(self, host: Host) -> bool:
        """Power fails on one node."""
        host.crash()
        self.later(self.chance.choice((0.3, 1.0, 4.0, 15.0)), host.start)
        return True

    def _absence(self, host: Host) -> bool:
        """A node goes, and comes back when all has been as it is for long."""
        host.crash(power=False)
        self.absent[host] = self.chance.uniform(7.0, 30.0)
        return True

    def _renew(self, host: Host) -> bool:
        """All nodes get another MLX, while nothing runs on any."""
        self.cluster.renewals.release += 1
        for each in self.cluster.hosts.values():
            each.crash(power=False)
            self.later(self.chance.choice((0.1, 1.0, 5.0)), each.start)
        return True

    def _processes(self, host: Host) -> bool:
        """All processes are killed; the machine and its disk go on."""
        host.crash(power=False)
        self.later(self.chance.choice((0.1, 1.0, 5.0)), host.start)
        return True

    def _daemon(self, host: Host) -> bool:
        """The daemon alone dies: its children train on."""
        host.kill_daemon()
        self.later(self.chance.choice((0.2, 0.7, 1.5, 4.0, 12.0)), host.start)
        return True

    def _daemons(self, host: Host) -> bool:
        for each in self.cluster.living():
            each.kill_daemon()
            self.later(self.chance.uniform(0.2, 4.0), each.start)
        return True

    def _crash(self, host: Host) -> bool:
        """Power fails between two effects of one step, or within a write."""
        host.crash_in = self.chance.randrange(12)
        self.later(self.chance.choice((1.0, 5.0)), host.start)
        return True

    def _power_cut(self, host: Host) -> bool:
        self.cluster.say("faults", "power fails everywhere")
        for each in self.cluster.hosts.values():
            each.crash()
            self.later(self.chance.uniform(0.5, 6.0), each.start)
        return True

    def _world(self, host: Host) -> bool:
        """Power fails on every member of a world, if it can as soon as a newcomer has its state."""
        worlds = self.cluster.checkers.forms.values()
        world = max(worlds, key=lambda w: w.generation, default=None)
        others = [h for h in self.cluster.living() if world and h.name not in world.members]
        if world is None or not others:
            return False
        away = {name: self.chance.choice((0.3, 1.0, 4.0, 15.0)) for name in world.members}
        boots = {name: self.cluster.hosts[name].boot for name in away}

        def fails() -> None:
            self.cluster.say("faults", f"power fails on every member of {world.generation}")
            for name, seconds in away.items():
                each = self.cluster.hosts[name]
                if each.boot == boots[name] and not self.stopped:
                    each.crash()
                    self.later(seconds, each.start)

        latest = self.cluster.now + self.chance.uniform(0.0, 3.0)
        self.cluster.when(
            lambda: self.cluster.now >= latest or any(self._serving(h, Trainer) for h in others),
            fails,
        )
        return True

    def _leave(self, host: Host) -> bool:
        """The daemon is stopped in order and started again."""
        return self.restart(host, self.chance.uniform(0.01, 0.2), self.chance.uniform(0.5, 4.0))

    def _rolling(self, host: Host) -> bool:
        """Every daemon is restarted, one after the other."""
        at = 0.0
        for name in sorted(self.cluster.hosts):
            wait, away = self.chance.uniform(0.01, 0.2), self.chance.uniform(0.3, 1.5)

            def upgrade(
                each: Host = self.cluster.hosts[name], wait: float = wait, away: float = away
            ) -> None:
                if not self.stopped:
                    self.restart(each, wait, away)

            self.cluster.after(at, upgrade)
            at += away + self.chance.uniform(0.2, 3.0)
        return True

    def restart(self, host: Host, wait: float, away: float) -> bool:
        """Its daemon says that it goes, is gone after ``wait``, and back after ``away``."""
        if host.paused or host.node is None:
            return False
        self.cluster.say("faults", f"{host.name} is restarted")
        host.post(e.Leave("its daemon is being stopped"))
        boot, cluster = host.boot, self.cluster
        latest = cluster.now + 1.0

        def stop() -> None:
            if host.boot != boot or host.node is None:
                return
            if not (host.node.may_end() and host.done) and cluster.now < latest:
                cluster.after(0.01, stop)
            else:
                host.crash(power=False)
                if self.stopped:  # while it was going
                    self.cluster.after(0.5, host.start)

        self.cluster.after(wait, stop)
        self.later(away, host.start)
        return True

    def _stop_node(self, host: Host) -> bool:
        return self._freeze(host, self.chance.uniform(0.1, 6.0), children=True)

    def _stop_daemon(self, host: Host) -> bool:
        return self._freeze(host, self.chance.uniform(0.1, 6.0), children=False)

    def _sleep(self, host: Host) -> bool:
        """The lid is closed for a while."""
        return self._freeze(host, self.chance.uniform(3.0, 40.0), children=True)

    def _freeze(self, host: Host, seconds: float, children: bool) -> bool:
        if host.paused:
            return False
        self.cluster.say("faults", f"stop {host.name}{'' if children else ' without its children'}")
        host.pause()
        boot = host.boot
        stopped = list(host.children.values()) if children else []
        for child in stopped:
            child.stop()

        def resume() -> None:
            for child in stopped:
                child.go_on()
            if host.boot == boot:
                host.resume()

        self.later(seconds, resume)
        return True

    # --- links ------------------------------------------------------------------------------------

    def _flap(self, host: Host) -> bool:
        others = [h for h in self.cluster.living() if h is not host]
        if not others:
            return False
        other = self.chance.choice(others)
        self.cluster.say("faults", f"link {host.name} - {other.name} flaps")
        self.cluster.network.flap(host.name, other.name)
        return True

    def _partition(self, host: Host) -> bool:
        return self._cut(close=True)

    def _silence(self, host: Host) -> bool:
        return self._cut(close=False)

    def _cut(self, close: bool) -> bool:
        """Two sides, or only some pairs of nodes, lose one another."""
        names = sorted(self.cluster.hosts)
        if len(names) < 2:
            return False
        side = self.chance.sample(names, self.chance.randrange(1, len(names)))
        rest = [name for name in names if name not in side]
        pairs = list(product(side, rest))
        if self.chance.random() < 0.25:
            pairs = self.chance.sample(pairs, self.chance.randrange(1, len(pairs) + 1))
        ways = [*pairs, *((b, a) for a, b in pairs)]
        told = ", ".join(f"{a}-{b}" for a, b in sorted(pairs))
        self.cluster.say("faults", f"cut {told}{', closed' if close else ''}")
        self.later(self.chance.uniform(0.2, 8.0), self.cluster.network.cut(ways, close))
        self._break_rings(pairs, close)
        return True

    def _one_way(self, host: Host) -> bool:
        """What one node sends to some others does not arrive; it still hears them."""
        others = [name for name in sorted(self.cluster.hosts) if name != host.name]
        if not others:
            return False
        deaf = self.chance.sample(others, self.chance.randrange(1, len(others) + 1))
        pairs = [(host.name, name) for name in sorted(deaf)]
        self.cluster.say("faults", f"{host.name} is not heard by {', '.join(sorted(deaf))}")
        self.later(self.chance.uniform(0.2, 8.0), self.cluster.network.cut(pairs, close=False))
        self._break_rings(pairs, close=False)
        return True

    def _clog(self, host: Host) -> bool:
        others = [name for name in sorted(self.cluster.hosts) if name != host.name]
        if not others:
            return False
        way = (host.name, self.chance.choice(others))
        seconds = self.chance.choice((0.1, 0.5, 2.5))
        self.cluster.say("faults", f"{way[0]} to {way[1]} is clogged, up to {seconds} s")
        self.later(self.chance.uniform(0.5, 8.0), self.cluster.network.clog(way, seconds))
        return True

    def _address(self, host: Host) -> bool:
        """One of a node's addresses dies; its connections are made again over another."""
        alive = self.cluster.addresses.of(host.name)
        if len(alive) < 2 or any(a in self.cluster.addresses.dead for a in alive):
            return False
        address = self.chance.choice(alive)
        self.cluster.say("faults", f"{address} is dead")
        self.later(self.chance.uniform(0.5, 8.0), self.cluster.addresses.lose(address))
        for name in sorted(self.cluster.hosts):
            if name != host.name and self.chance.random() < 0.5:
                self.cluster.network.flap(host.name, name)
        return True

    def _break_rings(self, pairs: list[tuple[NodeId, NodeId]], close: bool) -> None:
        """Rings across the cut: their sockets close too, or they hang."""
        for ring in list(self.cluster.rings.values()):
            members = ring.world.members
            if ring.gone or not any(a in members and b in members for a, b in pairs):
                continue
            ring.deadlocked = True
            if close:
                for reducer in list(ring.places.values()):
                    if reducer.alive:
                        reducer.later(0.001, partial(reducer.breaks, "timed out"))

    # --- disks and clocks -------------------------------------------------------------------------

    def _disk_full(self, host: Host) -> bool:
        disk = host.disk
        if disk.full:
            return False
        self.cluster.say("faults", f"the disk of {host.name} is full")
        disk.full = True

        def freed() -> None:
            disk.full = False

        self.later(self.chance.uniform(0.1, 6.0), freed)
        return True

    def _disk_slow(self, host: Host) -> bool:
        disk = host.disk
        disk.sync_seconds = self.chance.choice((0.05, 0.3, 1.5, inf))
        self.cluster.say("faults", f"the disk of {host.name} takes up to {disk.sync_seconds} s")
        if disk.sync_seconds == inf:
            disk.sync_seconds, disk.hangs = 0.0, True

        def fast() -> None:
            disk.sync_seconds, disk.hangs = 0.0, False

        self.later(self.chance.uniform(0.5, 8.0), fast)
        return True

    def _rot(self, host: Host) -> bool:
        """A shard rots, of which another node has a sound copy."""
        others = [h.disk for h in self.cluster.hosts.values() if h is not host]
        if not host.disk.rot(self.chance, others):
            return False
        self.cluster.say("faults", f"a shard on {host.name} rots")
        return True

    def _rot_everywhere(self, host: Host) -> bool:
        """Power fails everywhere, and of the newest checkpoints of a job, with a sound one before
        them, some shards are rotten on all disks."""
        disks = [each.disk for each in self.cluster.hosts.values()]
        final = {key: m for disk in disks for key, m in disk.finals.items()}
        for job in sorted({key[0] for key in final}):
            keys = sorted(key for key in final if key[0] == job)
            sound = [
                n for n, key in enumerate(keys) if all(
                    any(disk.has(key, final[key], s.index) for disk in disks)
                    for s in final[key].shards
                )
            ]  # fmt: skip
            if not sound or sound[0] == len(keys) - 1:
                continue
            for key in keys[self.chance.randint(sound[0] + 1, len(keys) - 1) :]:
                few = [n for n in range(final[key].count) if self.chance.random() < 0.7] or [0]
                for disk in disks:
                    for n in (n for n in few if disk.has(key, final[key], n)):
                        disk.rots(key, (final[key].count, n))
            self.cluster.say("faults", f"of the newest checkpoints of {job} no copy is sound")
            return self._power_cut(host)
        return False

    def _journal_lost(self, host: Host) -> bool:
        """A node's journal is gone; an operator resets the node, and it begins anew."""
        return self._lose_journal(host, 0)

    def _journal_damaged(self, host: Host) -> bool:
        """A node's journal is damaged somewhere; the operator keeps what is readable of jobs."""
        return self._lose_journal(host, self.chance.randrange(1 + len(host.disk.journal)))

    def _lose_journal(self, host: Host, left: int) -> bool:
        """If the others can do without: with the last copy of a record a job would be lost."""
        if host.node is None or host.paused or not self._can_spare(host.node):
            return False
        host.crash()
        self.cluster.say("faults", f"{host.name} has {left} records of its journal left")
        host.disk.lose_journal(left)
        self.cluster.mixture.lost_journal(host)
        self.later(self.chance.choice((0.3, 1.0, 4.0, 15.0)), host.start)
        return True

    def _can_spare(self, node: Node) -> bool:
        """Whether another member of its view knows of all jobs as much, and those who remember
        their votes are enough for the next view."""
        view, living = node.views.view, [h.node for h in self.cluster.living() if not h.paused]
        others = [n for n in living if n is not None and n is not node]
        near = [n for n in others if n.views.epoch == node.views.epoch]
        histories = {n.me: n.views.votes.history for n in near}
        if view is None or not any(n.records == node.records for n in near):
            return False
        if not node.ctx.strict:
            return True
        settled = not any(h.attempts for h in histories.values())
        sound = [name for name, history in histories.items() if not history.lost]
        return view.primary and settled and holds(view.members, sound)

    def _clock_step(self, host: Host) -> bool:
        """Somebody, or NTP, sets the wall clock."""
        seconds = self.chance.choice((-86400.0, -3.0, 3.0, 86400.0))
        self.cluster.say("faults", f"the wall clock of {host.name} jumps by {seconds} s")
        host.clock.step_seconds += seconds
        return True

    def _clock_drift(self, host: Host) -> bool:
        rate = self.chance.uniform(0.95, 1.05)
        self.cluster.say("faults", f"the clock of {host.name} runs {rate:.3f} times as fast")
        host.clock.drift(rate)
        self.later(self.chance.uniform(2.0, 10.0), lambda: host.clock.drift(host.usual_rate))
        return True

    # --- environments -----------------------------------------------------------------------------

    def _unmounted(self, host: Host) -> bool:
        """The folder with the data is gone: whoever reads it raises."""
        return self._spoil(host, "unmounted")

    def _other(self, host: Host) -> bool:
        """Other packages or data: what begins there builds something else."""
        return self._spoil(host, "other")

    def _spoil(self, host: Host, how: str) -> bool:
        if not self.cluster.environments.calm:
            return False
        self.cluster.say("faults", f"the environment of {host.name} is bad: {how}")
        setattr(host.environment, how, True)
        self._mend_later(host, how, self.chance.choice((0.1, 1.0, 5.0, 100.0)))
        return True

    def _mend_later(self, host: Host, how: str, seconds: float) -> None:
        self.later(seconds, lambda: setattr(host.environment, how, False))

    # --- operators --------------------------------------------------------------------------------

    def _retry(self, host: Host) -> bool:
        jobs = sorted(self.cluster.specs)
        if not jobs:
            return False
        job = self.chance.choice(jobs)
        self.operator.retry(job, host, memory=self.chance.random() < 0.5)
        return True

    def _submit(self, host: Host) -> bool:
        if len(self.cluster.specs) >= _MAX_JOBS:
            return False
        self.operator.submit(JobShape(steps=self.chance.choice((3, 6)), every=3), host)
        return True

    def _cancel(self, host: Host) -> bool:
        jobs = sorted(self.cluster.specs)
        if not jobs:
            return False
        self.operator.cancel(self.chance.choice(jobs), host)
        return True

    def _pause(self, host: Host) -> bool:
        jobs = sorted(self.cluster.specs)
        if not jobs:
            return False
        job, seconds = self.chance.choice(jobs), self.chance.uniform(0.0, 5.0)
        self.operator.pause_for(job, seconds, host, rests=self.chance.random() < 0.4)
        return True

    def _drain(self, host: Host) -> bool:
        node = self.chance.choice(sorted(self.cluster.hosts))
        self.operator.drain_for(node, self.chance.uniform(0.0, 5.0), host)
        return True

    # --- what is left of the past -----------------------------------------------------------------

    def _keep(self, host: Host) -> bool:
        """``[keep] jobs`` of this node is smaller than what there is."""
        return self.cluster.ageing.prune(host, self.chance.choice((LEAST_KEPT, 40, 200)))

    def _forget(self, host: Host) -> bool:
        """An operator forgets a job that has ended, or tries to with one that has not."""
        ageing, records = self.cluster.ageing, host.node.records if host.node is not None else {}
        live = [job for job in sorted(self.cluster.specs) if job in records]
        if live and self.chance.random() < 0.4:
            job = self.chance.choice(live)
            if records[job].ended:
                return False
            host.post(e.Forget(0, job))
            return True
        if not ageing.old:
            return False
        self.operator.forget(self.chance.choice(sorted(ageing.old)), host)
        return True

    def _dismiss(self, host: Host) -> bool:
        """An operator takes a node off the list: one that is gone, that is there, or that will be
        back, where no job fails of it that it isn't waited for."""
        setup = self.cluster.setup
        bad = setup.bad or any(kind in ENVIRONMENT_KINDS for kind in setup.fault_kinds)
        waits = bad or any(shape.outside for shape in self.cluster.shapes.values())
        hosts = self.cluster.living() if waits else self.cluster.hosts.values()
        gone = self.cluster.ageing.gone if self.chance.random() < 0.3 else ()
        self.operator.dismiss(self.chance.choice(gone or [each.name for each in hosts]), host)
        return True

    def later(self, seconds: float, undo: Callable[[], None]) -> None:
        done = False

        def once() -> None:
            nonlocal done
            if not done:
                done = True
                undo()

        self._undo.append(once)
        self.cluster.after(seconds, once)
