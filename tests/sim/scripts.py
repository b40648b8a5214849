"""Faults at a chosen moment, for tests that want one history and not many."""

from __future__ import annotations

from collections.abc import Callable

from elasticd.core.taking_part.elastic import Elastic
from elasticd.core.words import effects as e
from elasticd.types import NodeId

from .cluster import Cluster, JobShape
from .faults import Injector
from .host import Host
from .trainer import Trainer

FORGOTTEN = 4

Script = Callable[[Cluster, Injector], None]


def newest(cluster: Cluster) -> int:
    return max((step for c in cluster.checkers.commits.values() for _, step in c.times), default=-1)


def at_step(step: int, action: Callable[[Cluster, Injector], object]) -> Script:
    """A script that does ``action`` once, when ``step`` is committed."""

    def script(cluster: Cluster, injector: Injector) -> None:
        cluster.when(lambda: newest(cluster) >= step, lambda: action(cluster, injector))

    return script


def kill_who_has_answered(cluster: Cluster, injector: Injector) -> None:
    """Break the ring, and kill a trainer between what it says that it holds and the next world."""
    answered: list[Trainer] = []

    def look() -> bool:
        for host in cluster.living():
            assert host.node is not None
            if host.node.views.leading:
                continue  # It would know before it forms the world.
            for each in host.node.members.all():
                assert isinstance(each.part, Elastic)
                answerer = each.part.answers.answerer
                child = host.children.get(answerer) if answerer is not None else None
                if isinstance(child, Trainer) and child.point is not None:
                    answered.append(child)
        return bool(answered)

    def strike() -> None:
        injector.inject("reducer")
        cluster.when(look, lambda: answered[0].kill())

    cluster.when(lambda: newest(cluster) >= 10, strike)


def crash_on_slow_disks(cluster: Cluster, injector: Injector) -> None:
    """Each journal takes long to sync, so that heartbeats go out meanwhile; then a node crashes."""
    for host in cluster.hosts.values():
        host.disk.sync_seconds = 1.0

    def fast() -> None:
        for host in cluster.hosts.values():
            host.disk.sync_seconds = 0.0

    cluster.after(30.0, fast)

    def crash() -> None:
        host = led(cluster)
        host.crash()
        cluster.after(5.0, host.start)

    cluster.when(lambda: newest(cluster) >= 3, crash)


def hang_a_journal(cluster: Cluster, injector: Injector) -> None:
    """A disk hangs in the middle of a sync, for longer than the others wait for its node."""

    def hang() -> None:
        victim = next(host for host in cluster.living() if host is not led(cluster))
        victim.disk.hangs = True
        cluster.say("script", f"the disk of {victim.name} hangs")
        injector.operator.submit(JobShape(steps=5), led(cluster))  # all are to journal it

        def let_go() -> None:
            victim.disk.hangs = False
            cluster.say("script", f"the disk of {victim.name} goes on")

        cluster.after(12.0, let_go)

    cluster.when(lambda: newest(cluster) >= 3, hang)


def led(cluster: Cluster) -> Host:
    """The host whose daemon leads."""
    for host in cluster.living():
        if host.node is not None and host.node.views.leading:
            return host
    raise AssertionError("nobody leads")


def restart_leader_at_the_end(cluster: Cluster, injector: Injector) -> None:
    """Its daemon is killed when the last step is committed and not stored yet; another one leads
    then, and the world goes on."""
    last = max(spec.train.steps for spec in cluster.specs.values())
    cluster.when(lambda: newest(cluster) >= last, lambda: led(cluster).restart_daemon(0.3))


def sleep_through_a_lineage(cluster: Cluster, injector: Injector) -> None:
    """The second node is away while the third opens a lineage, and the first stores some of it,
    too. Then all are started again: that lineage is left for another one."""
    first, second, third = (cluster.hosts[name] for name in sorted(cluster.hosts))

    def crash(*hosts: Host) -> None:
        for host in hosts:
            host.crash()

    def start_all_again() -> None:
        crash(first, third)
        for host in (first, second, third):
            cluster.after(0.5, host.start)

    cluster.when(lambda: newest(cluster) >= 7, lambda: crash(first, second))
    cluster.when(lambda: newest(cluster) >= 12, first.start)
    cluster.when(lambda: newest(cluster) >= 27, start_all_again)


def leave(cluster: Cluster, host: Host) -> None:
    """Stop a daemon in order: it says that it goes, and ends when the others need no more of it."""
    node = host.node
    assert node is not None
    host.post(e.Leave("its daemon is being stopped"))
    cluster.when(lambda: node.may_end() and host.done, lambda: host.crash(power=False))


def leader_leaves(cluster: Cluster, injector: Injector) -> None:
    """It comes back later."""

    def strike() -> None:
        host = led(cluster)
        leave(cluster, host)
        cluster.after(4.0, host.start)

    cluster.when(lambda: newest(cluster) >= 10, strike)


def cut_off(cluster: Cluster, injector: Injector, node: NodeId, close: bool) -> Callable[[], None]:
    """Cut a node off from all others; what heals that is returned."""
    pairs = [(node, other) for other in sorted(cluster.hosts) if other != node]
    injector._break_rings(pairs, close)
    return cluster.network.cut([*pairs, *((b, a) for a, b in pairs)], close)


def stop_the_only_member(cluster: Cluster, injector: Injector) -> None:
    """The daemon of a world of one stands still while its trainer runs on, until that notices."""

    def strike() -> None:
        world = max(cluster.checkers.forms.values(), key=lambda world: world.generation)
        victim = cluster.hosts[world.members[0]]
        victim.pause()

        def ends() -> None:  # the kernel's timer
            for child in list(victim.children.values()):
                child.kill()

        cluster.after(30.0, ends)
        cluster.after(45.0, victim.resume)

    cluster.when(lambda: newest(cluster) >= 30, strike)


def forget_while_one_is_away(cluster: Cluster, injector: Injector) -> None:
    """The newest jobs of the past are forgotten while the last node is down."""
    there, *_, away = cluster.hosts.values()

    def forget() -> None:
        for job in [*cluster.ageing.old][-FORGOTTEN:]:
            injector.operator.forget(job, there)

    def strike() -> None:
        away.crash()
        cluster.after(3.0, forget)
        cluster.after(5.0, away.start)

    cluster.when(lambda: newest(cluster) >= 1, strike)


def lose_two_journals(cluster: Cluster, injector: Injector) -> None:
    """Of three nodes two are away while the first trains on alone. Both lose their journals, are
    reset, and meet each other before they meet the first."""
    first, second, third = (cluster.hosts[NodeId(f"n{number}")] for number in range(3))

    def alone() -> bool:
        view = first.node.views.view if first.node is not None else None
        return view is not None and view.primary and len(view.members) == 1

    def meet() -> None:
        heal = cut_off(cluster, injector, first.name, close=True)
        for host in (second, third):
            host.disk.lose_journal(0)
            cluster.after(1.0, host.start)
        cluster.after(20.0, heal)

    def strike() -> None:
        third.crash()
        cluster.after(5.0, second.crash)
        cluster.when(alone, meet)

    cluster.when(lambda: newest(cluster) >= 10, strike)


def crash_before_it_is_formed(cluster: Cluster, injector: Injector) -> None:
    """The second of three nodes crashes with an attempt in its journal that the first forms and
    goes on from, alone; then it comes back on the other side of a cut, with the third."""
    first, second, third = (cluster.hosts[NodeId(f"n{number}")] for number in range(3))

    def attempted() -> bool:
        kind, record = second.disk.journal[-1]
        return kind == "primary_attempt" and len(record.members) == 2

    def strand() -> None:
        second.crash()
        heal = cut_off(cluster, injector, first.name, close=True)
        for host in (second, third):
            cluster.after(4.0, host.start)
        cluster.after(20.0, heal)

    def strike() -> None:
        third.crash()
        cluster.when(attempted, strand)

    cluster.when(lambda: newest(cluster) >= 10, strike)
