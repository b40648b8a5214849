"""Seeded faults: which, where, when, and what ends them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .cluster import Cluster
from .host import Host
from .trainer import Process, Reducer, Trainer

KINDS = (
    "trainer",
    "reducer",
    "trainers",
    "node",
    "crash",
    "spare_trainer",
    "spare_reducer",
    "stop_trainer",
    "stop_reducer",
    "stop_node",
    "deadlock",
    "flap",
    "partition",
    "silence",
    "power_cut",
)

_CHILD_KILLS_WITHOUT_PROGRESS = 6
"""More than this without a committed step between is what fails a job on purpose."""


class Injector:
    """Draws faults while the run lasts; :meth:`heal` ends all of them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.log: list[tuple[float, str]] = []
        self.stopped = False
        self._undo: list[Callable[[], None]] = []
        self._kills = 0
        self._seen = -1

    def begin(self) -> None:
        self._plan_next()
        self.cluster.after(self.cluster.setup.fault_seconds, self.heal)

    def heal(self) -> None:
        """Faults stop: everything that was stopped goes on, and dead nodes come back."""
        self.stopped = True
        self.cluster.say("faults", "stop")
        for undo in self._undo:
            undo()
        self.cluster.network.heal()
        for host in self.cluster.hosts.values():
            host.crash_in = None
            host.start()

    def _plan_next(self) -> None:
        mean = self.cluster.setup.mean_fault_seconds
        chance = self.cluster.rng
        # Often the next one comes while the last is still being recovered from.
        delay = chance.uniform(0.0, 0.3) if chance.random() < 0.3 else chance.expovariate(1 / mean)
        self.cluster.after(delay, self._strike)

    def _strike(self) -> None:
        if self.stopped or not self.cluster.setup.fault_kinds:
            return
        self.inject(self.cluster.rng.choice(self.cluster.setup.fault_kinds))
        self._plan_next()

    def inject(self, kind: str) -> None:
        """One fault of a kind, somewhere; nothing if there is nothing to hit."""
        hosts = self.cluster.living()
        if not hosts:
            return
        host = self.cluster.rng.choice(hosts)
        if getattr(self, f"_{kind}")(host):
            self.cluster.faults += 1
            self.log.append((self.cluster.now, kind))

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
        victim = self.cluster.rng.choice(victims)
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
        victim = self.cluster.rng.choice(victims)
        self.cluster.say("faults", f"stop {type(victim).__name__} {victim.child} on {host.name}")
        victim.stop()
        self._later(self.cluster.rng.uniform(0.1, 12.0), victim.go_on)
        return True

    def _deadlock(self, host: Host) -> bool:
        reducers = [p for p in self._serving(host, Reducer) if isinstance(p, Reducer)]
        rings = [r.ring for r in reducers if r.ring is not None and not r.ring.gone]
        if not rings or not self._may_kill():
            return False
        self.cluster.say("faults", f"the ring of {rings[0].world.generation} hangs")
        rings[0].deadlocked = True
        return True

    # --- nodes and links --------------------------------------------------------------------------

    def _node(self, host: Host) -> bool:
        host.crash()
        self._later(self.cluster.rng.choice((0.3, 1.0, 4.0, 15.0)), host.start)
        return True

    def _crash(self, host: Host) -> bool:
        """The daemon dies between two effects of one step."""
        host.crash_in = self.cluster.rng.randrange(12)
        self._later(self.cluster.rng.choice((1.0, 5.0)), host.start)
        return True

    def _power_cut(self, host: Host) -> bool:
        self.cluster.say("faults", "power fails everywhere")
        for each in self.cluster.hosts.values():
            each.crash()
            self._later(self.cluster.rng.uniform(0.5, 6.0), each.start)
        return True

    def _stop_node(self, host: Host) -> bool:
        if host.paused:
            return False
        self.cluster.say("faults", f"stop {host.name}")
        host.pause()
        children = list(host.children.values())
        for child in children:
            child.stop()

        def resume() -> None:
            for child in children:
                child.go_on()
            host.resume()

        self._later(self.cluster.rng.uniform(0.1, 6.0), resume)
        return True

    def _flap(self, host: Host) -> bool:
        others = [h for h in self.cluster.living() if h is not host]
        if not others:
            return False
        other = self.cluster.rng.choice(others)
        self.cluster.say("faults", f"link {host.name} - {other.name} flaps")
        self.cluster.network.flap(host.name, other.name)
        return True

    def _partition(self, host: Host) -> bool:
        return self._cut(close=True)

    def _silence(self, host: Host) -> bool:
        return self._cut(close=False)

    def _cut(self, close: bool) -> bool:
        names = sorted(self.cluster.hosts)
        if len(names) < 2:
            return False
        side = self.cluster.rng.sample(names, self.cluster.rng.randrange(1, len(names)))
        self.cluster.say("faults", f"cut off {sorted(side)}{', closed' if close else ''}")
        self.cluster.network.cut(side, close)
        self._break_rings(set(side), close)
        self._later(self.cluster.rng.uniform(0.2, 8.0), self.cluster.network.heal)
        return True

    def _break_rings(self, side: set[str], close: bool) -> None:
        """Rings across the cut: their sockets close too, or they hang."""
        for ring in list(self.cluster.rings.values()):
            members = set(ring.world.members)
            if not members & side or members <= side or ring.gone:
                continue
            ring.deadlocked = True
            if close:
                for reducer in list(ring.places.values()):
                    if reducer.alive:
                        reducer.later(0.001, partial(reducer.breaks, "timed out"))

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        done = False

        def once() -> None:
            nonlocal done
            if not done:
                done = True
                undo()

        self._undo.append(once)
        self.cluster.after(seconds, once)
