"""What a trainer said just before its daemon died, and what a leader's successor has to be told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticd.core.words.effects import FromChild
from elasticd.core.words.trainers import TrainerLends, TrainerPrepared, TrainerSkipped

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .host import Host
from .process import Process
from .run import Result, simulate
from .scripts import Script, at_step, led
from .test_sim import job_events, passes

STEPS = 20
AWAY_SECONDS = 0.5


def on_word(
    cluster: Cluster, kind: type[FromChild], action: Callable[[Host], None], *, lost: bool
) -> None:
    """Call ``action`` the first time that a trainer says such a word, which never arrives if it is
    ``lost``."""
    done: list[Host] = []
    for host in cluster.hosts.values():
        real = host.said

        def watched(
            process: Process,
            word: FromChild,
            host: Host = host,
            real: Callable[[Process, FromChild], None] = real,
        ) -> None:
            first = isinstance(word, kind) and not done
            if first:
                done.append(host)
                cluster.after(0.0 if lost else 0.1, lambda: action(host))
            if not (first and lost):
                real(process, word)

        host.said = watched  # type: ignore[method-assign]


def dies(host: Host) -> None:
    """Its daemon does, before it has read the word, and comes back."""
    host.restart_daemon(AWAY_SECONDS)


def with_full_disk(kind: type[FromChild], action: Callable[[Host], None], lost: bool) -> Script:
    """The disk of a member that doesn't lead has no room for the last checkpoint's shards, and the
    other's is slow."""

    def script(cluster: Cluster, injector: Injector) -> None:
        (host,) = (h for h in cluster.living() if h is not led(cluster))
        host.disk.cramped, led(cluster).disk.sync_seconds = True, 1.0
        on_word(cluster, kind, action, lost=lost)

    return at_step(STEPS - 1, script)


def seconds_to_end(result: Result) -> float:
    """From the last step to the end of the job."""
    commits = [t for c in result.cluster.checkers.commits.values() for t, _ in c.times]
    ((ended, _, _),) = (
        each for each in result.cluster.checkers.events if each[2].kind == "job_finished"
    )
    return ended - max(commits)


def restart_leader(host: Host) -> None:
    """The daemon of the leader that was told dies; the other node leads, or it again."""
    led(host.cluster).restart_daemon(AWAY_SECONDS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("action", "lost"),
    [(dies, True), (dies, False), (restart_leader, False)],
    ids=["unread", "own", "leader"],
)
def test_nobody_waits_for_a_disk_that_has_refused(
    seed: int, action: Callable[[Host], None], lost: bool
) -> None:
    """Else the job would end a minute later, when its leader loses patience with that disk."""
    setup = Setup(seed=seed, nodes=2, jobs=(JobShape(steps=STEPS),))
    result = passes(simulate(setup, script=with_full_disk(TrainerSkipped, action, lost)))
    causes = {fields["cause"] for fields in job_events(result, "checkpoint_refused")}
    assert len(causes) == 1 and "has not written" not in causes.pop()
    assert seconds_to_end(result) < 10.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [TrainerLends, TrainerPrepared])
def test_a_newcomer_is_prepared_again(seed: int, kind: type[FromChild]) -> None:
    """Nobody repeats these two: the view behind the daemon's return begins all of it again."""

    def script(cluster: Cluster, injector: Injector) -> None:
        on_word(cluster, kind, dies, lost=True)
        injector.inject("trainer")

    setup = Setup(seed=seed, jobs=(JobShape(steps=300, every=20),))
    result = passes(simulate(setup, script=at_step(10, script)))
    assert len(job_events(result, "growth_finished")[-1]["members"]) == 3
