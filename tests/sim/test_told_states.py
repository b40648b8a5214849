"""States that differ, told of before the world ends or its leader goes, and not by all yet."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .host import Host
from .run import Result, simulate
from .scripts import cut_off, led, newest
from .test_sim import passes
from .trainer import Trainer

Strike = Callable[[Cluster, Host], None]


def _crash_leader(cluster: Cluster, _: Host) -> None:
    host = led(cluster)
    host.crash()
    cluster.after(4.0, host.start)


def _restart_leader(cluster: Cluster, _: Host) -> None:
    led(cluster).restart_daemon(0.3)


def _kill_trainer(cluster: Cluster, silent: Host) -> None:
    next(t for t in silent.trainers() if t.point is not None).kill()


STRIKES: dict[str, Strike] = {
    "the leader's node": _crash_leader,
    "the leader's daemon": _restart_leader,
    "a trainer": _kill_trainer,
}


def run(seed: int, strike: Strike, policy: str) -> Result:
    """One state differs since step 8. Strike once it has been told of the next one that is
    compared, and by another node, and not by all."""
    shape = JobShape(steps=40, every=5, verify_every=0, on_divergence=policy)
    setup = Setup(seed=seed, nodes=4, jobs=(shape,))
    spoilt: list[Trainer] = []

    def script(cluster: Cluster, injector: Injector) -> None:
        def diverge() -> None:
            assert injector.inject("diverge")
            spoilt.extend(t for h in cluster.living() for t in h.trainers() if t.spoilt)

        def silent() -> Host | None:
            """One that has not told yet, if the odd one and another have."""
            told = {n: {s for s, _ in by} for (n, _), by in cluster.checkers.tellings.told.items()}
            last = max((max(s, default=-1) for s in told.values()), default=-1)
            has = {n for n in told if last in told[n]}
            if not spoilt or last <= 8 or spoilt[0].host.name not in has or len(has) < 2:
                return None
            rest = [h for h in cluster.living() if h.name not in has]
            return rest[0] if rest else None

        def act() -> None:
            host = silent()
            assert host is not None
            strike(cluster, host)

        cluster.when(lambda: newest(cluster) >= 8, diverge)
        cluster.when(lambda: silent() is not None, act)

    return simulate(setup, script=script)


@pytest.mark.parametrize("policy", ["restore", "continue"])
@pytest.mark.parametrize("strike", STRIKES)
def test_what_was_told_to_differ_is_acted_on(strike: str, policy: str) -> None:
    passes(run(0, STRIKES[strike], policy))


def _parted(cluster: Cluster, injector: Injector) -> None:
    """Two of three have told of one state otherwise, and lose each other and the third before that
    has told of it. One goes on with the third, in a world that does no step; then both meet."""
    spoilt: list[Host] = []

    def told(host: Host) -> set[int]:
        by_job = cluster.checkers.tellings.told
        return {step for (node, _), by in by_job.items() if node == host.name for step, _ in by}

    def silent() -> Host | None:
        """The third one, once the odd one and another have told of a state after that."""
        if not spoilt:
            return None
        last = max(told(spoilt[0]), default=-1)
        rest = [host for host in cluster.living() if last not in told(host)]
        return rest[0] if last > 8 and len(rest) == 1 else None

    def part() -> None:
        third, odd = silent(), spoilt[0]
        assert third is not None
        even = next(h for h in cluster.hosts.values() if h not in (third, odd))
        third.crash()
        heal = cut_off(cluster, injector, even.name, close=True)
        cluster.after(4.0, third.start)

        def enters() -> bool:
            made = max(cluster.checkers.forms.values(), key=lambda world: world.generation)
            return set(made.members) == {odd.name, third.name}

        def lose() -> None:
            third.crash()
            cluster.after(1.0, heal)
            cluster.after(20.0, third.start)

        cluster.when(enters, lose)

    def diverge() -> None:
        assert injector.inject("diverge")
        spoilt.extend(h for h in cluster.living() if any(t.spoilt for t in h.trainers()))

    cluster.when(lambda: newest(cluster) >= 8, diverge)
    cluster.when(lambda: silent() is not None, part)


@pytest.mark.parametrize("policy", ["restore", "continue"])
@pytest.mark.parametrize("seed", range(3))
def test_what_two_told_to_differ_is_acted_on_when_they_meet(seed: int, policy: str) -> None:
    shape = JobShape(steps=40, every=5, verify_every=0, on_divergence=policy, world_min=2)
    result = simulate(Setup(seed=seed, nodes=3, jobs=(shape,)), script=_parted)
    passes(result)
