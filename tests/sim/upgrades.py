"""Nodes are upgraded and put back, one by one or in turn; newer ones write more into records."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .host import Host
from .mixture import Kept
from .releases import ANCIENT, LADDER, NEXT, Release

if TYPE_CHECKING:
    from .faults import Injector

_MOST_WRITTEN = 40
"""Fields in a run; each stays for ever."""


class Upgrades:
    """Strikes of :data:`VERSION_KINDS`, for an injector."""

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        self._cluster = injector.cluster

    def _upgrade(self, host: Host) -> bool:
        return self._climb(host, +1)

    def _downgrade(self, host: Host) -> bool:
        return self._climb(host, -1)

    def _climb(self, host: Host, by: int) -> bool:
        if host.next_release not in LADDER:
            return False
        place = LADDER.index(host.next_release) + by
        return 0 <= place < len(LADDER) and self._install(host, LADDER[place])

    def _install(self, host: Host, release: Release) -> bool:
        """In order, or the daemon alone, so that the next one takes over children of another
        version."""
        chance = self._injector.chance
        if host.node is None or host.paused:
            return False
        self._cluster.say("faults", f"{host.name} gets version {release.name}")
        host.next_release = release
        if chance.random() < 0.5:
            host.kill_daemon()
            self._injector.later(chance.uniform(0.2, 1.5), host.start)
            return True
        wait, away = chance.uniform(0.01, 0.2), chance.uniform(0.3, 2.0)
        return self._injector.restart(host, wait, away)

    def _upgrade_all(self, host: Host) -> bool:
        """Every node, one after the other, to the version of the newest or of the oldest."""
        cluster, chance = self._cluster, self._injector.chance
        to, at = chance.choice(LADDER), 0.0
        for name in sorted(cluster.hosts):

            def install(each: Host) -> None:
                if not self._injector.stopped and each.next_release in LADDER:
                    self._install(each, to)

            cluster.after(at, partial(install, cluster.hosts[name]))
            at += chance.uniform(0.5, 4.0)
        return True

    def _ancient(self, host: Host) -> bool:
        """Somebody installs a version that is too old, and puts that right after a while."""
        before = host.next_release
        if host.node is None or host.paused or before is ANCIENT:
            return False
        self._cluster.say("faults", f"{host.name} gets version {ANCIENT.name}")
        host.next_release = ANCIENT
        host.crash(power=False)

        def mended() -> None:
            host.next_release = before
            if host.release is ANCIENT:
                host.crash(power=False)
                self._injector.later(0.3, host.start)
                if self._injector.stopped:
                    host.start()

        self._injector.later(self._injector.chance.uniform(0.2, 1.0), host.start)
        self._injector.later(self._injector.chance.uniform(2.0, 10.0), mended)
        return True

    def _later_words(self, host: Host) -> bool:
        """A node of the version to come writes a field of its own into a record that it has."""
        chance, mixture = self._injector.chance, self._cluster.mixture
        writers = [h for h in self._cluster.living() if h.release is NEXT and not h.paused]
        if not writers or mixture.later >= _MOST_WRITTEN:
            return False
        host = chance.choice(writers)
        assert host.node is not None
        jobs: list[Kept] = [r for _, r in sorted(host.node.records.items()) if not r.forgotten]
        nodes: list[Kept] = [r for _, r in sorted(host.node.tables.nodes.records.items())]
        if not (found := chance.choice((jobs, jobs, nodes)) or nodes):
            return False
        record = chance.choice(found)
        mixture.write(host, record)
        return True
