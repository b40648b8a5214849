"""One run of the simulator, from a seed to a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from elasticd.core.leading.comparing import SPLITS
from elasticd.errors import ElasticdError
from elasticd.types import JobId, NodeId

from .byrank import REASON
from .checkers import Checkers
from .cluster import Cluster, Mishap, Setup, Strike, Violation
from .faults import Injector
from .host import Host
from .mixture import story_of
from .network import Network
from .poison import SECONDS
from .proving import too_few_alike
from .reasons import Reasons, can_never_run, share_a_view

_LEFTOVER_SECONDS = 8.0
_TOLD_SECONDS = 4.0
"""Nobody stares for longer at a job that does not run and does not say why."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a run. ``problem`` is empty if every invariant held."""

    setup: Setup
    problem: str
    faults: Counter[str]
    """By kind; those of messages among them."""
    strikes: tuple[Strike, ...]
    """The faults of the plan that hit something."""
    mishaps: tuple[Mishap, ...]
    seconds: float
    cluster: Cluster

    @property
    def digest(self) -> str:
        """The same for the same history."""
        return self.cluster.digest()

    @property
    def transcript(self) -> list[str]:
        return self.cluster.transcript()


def build(setup: Setup, verbose: bool = False) -> Cluster:
    """A cluster whose nodes have just been started."""
    cluster = Cluster(setup, verbose)
    cluster.network, cluster.checkers = Network(cluster), Checkers(cluster)
    for number in range(setup.nodes):
        name = NodeId(f"n{number}")
        cluster.hosts[name] = Host(cluster, name, setup.nodes - 1)
    for number, how, _ in setup.bad:
        setattr(cluster.hosts[NodeId(f"n{number}")].environment, how, True)
    cluster.mixture.begin()
    cluster.ageing.begin()
    starts = cluster.chances.of("starts")
    for host in cluster.hosts.values():
        cluster.after(starts.uniform(0.0, 0.2), host.start)
    return cluster


def simulate(
    setup: Setup,
    verbose: bool = False,
    script: Callable[[Cluster, Injector], None] | None = None,
) -> Result:
    """Run all jobs of ``setup`` to their end. ``script`` may schedule faults of its own.

    The same setup gives the same transcript, whatever the hash seed.
    """
    cluster = build(setup, verbose)
    injector = Injector(cluster)
    problem = ""
    try:
        with story_of(setup):
            _drive(cluster, injector, script)
    except (Violation, ElasticdError, ValueError, AssertionError, KeyError) as error:
        problem = f"{type(error).__name__}: {error}"
        if verbose and not isinstance(error, Violation):
            raise
    mishaps = cluster.network.mishaps
    faults = cluster.faults + Counter(f"message {mishap.kind}" for mishap in mishaps)
    return Result(
        setup, problem, faults, tuple(injector.struck), tuple(mishaps), cluster.now, cluster
    )


def _drive(
    cluster: Cluster, injector: Injector, script: Callable[[Cluster, Injector], None] | None
) -> None:
    setup = cluster.setup
    _expect(cluster, lambda: share_a_view(cluster), 10.0, "the nodes share no view")
    submits = cluster.chances.of("submits")
    for number, shape in enumerate(setup.jobs, 1):
        job = injector.operator.submit(shape, submits.choice(list(cluster.hosts.values())))
        if number in dict(setup.lost):
            cluster.missing_archives.add(job)
    if script is not None:
        script(cluster, injector)
    if setup.fault_seconds:
        cluster.run(lambda: bool(cluster.checkers.forms), cluster.now + 30.0)
        injector.begin()
        cluster.run(lambda: injector.stopped, cluster.now + setup.fault_seconds + 1.0)
    limit = setup.limit_seconds or convergence_seconds(cluster)
    limit += max(injector.absent.values(), default=0.0)
    never = [job for job in cluster.specs if can_never_run(cluster, job)]
    cluster.seen["can never run"] += len(never)
    _expect(cluster, lambda: _all_ended(cluster, never), limit, "the jobs do not end")
    _tell_why(cluster, Reasons(cluster, injector.operator, never), limit)
    for job in never:  # they have kept nobody waiting
        injector.operator.cancel(job)
    _expect(cluster, lambda: _all_ended(cluster), limit, "the jobs do not end")
    cluster.ageing.close()
    _expect(cluster, lambda: not cluster.ageing.unsettled(), _LEFTOVER_SECONDS, "the past differs")
    _expect(cluster, lambda: _quiet(cluster), _LEFTOVER_SECONDS, "children or differences are left")
    if lost := cluster.mixture.missing():
        raise Violation(lost)
    cluster.checkers.ended()
    for job in cluster.specs:
        record = cluster.record_of(job)
        assert record is not None
        cluster.say("end", f"{job} {record.state} {record.reason}")
        formed = any(world.job == job for world in cluster.checkers.forms.values())
        may = (
            record.forgotten  # and the reason with it
            or cluster.environments.excuses(job, formed)
            or _was_driven_apart(cluster, record.reason or "")
            or (cluster.shapes[job].by_rank and (record.reason or "").startswith(REASON))
            or too_few_alike(cluster.shapes[job], record.reason or "")
        )
        may = may or cluster.poisons.excuses(record)
        if wrong := cluster.poisons.ended(record):
            raise Violation(wrong)
        if record.state == "failed" and not may:
            raise Violation(f"{job} failed: {record.reason}")


def _was_driven_apart(cluster: Cluster, reason: str) -> bool:
    """Faults have made members differ behind each restore: so would a script that always does."""
    returns = "It has come back behind each restore" in reason
    return returns and cluster.faults["diverge"] >= SPLITS


def convergence_seconds(cluster: Cluster) -> float:
    """After the last fault everything has to end in the time of the work that is left and of each
    patience that may still run out.

    - The work: one node may have to do all of it, twice where only the last checkpoint is left.
    - Hangs: each node may have a trainer that hangs, and each may be found only after the one
      before. A step that takes longer than those before may be taken for one, a few times.
    - The same where a build does not say whether its trainer's thread has taken up its world: one
      that hangs may be loading a state just as well; and where one hangs that does.
    - The rest is waited for once, or twice where what it was waited for can fail again.
    """
    setup, timing = cluster.setup, cluster.setup.timing
    slowest = max((1.0, *setup.slowness))
    work = sum(
        2 * (spec.batch.global_ * slowest * setup.grain_seconds_of(step)[1] + 1.0)
        + 2 * setup.reduce_seconds_of(step)
        for spec in cluster.specs.values()
        for step in range(1, spec.train.steps + 1)
    )
    hangs = setup.nodes * max(s.recovery.user_code_seconds for s in cluster.specs.values())
    hangs *= 1 if setup.longer is None else 3
    once = timing.start_seconds + timing.restore_seconds + timing.bench_seconds
    twice = timing.hang_seconds + timing.form_seconds + 3 * timing.holding_seconds
    poisoned = 0.0 if setup.poison is None else SECONDS + 8 * hangs
    # Each is tried again whenever something has ended, and keeps its turn for a while.
    vain = sum(can_never_run(cluster, job) for job in cluster.specs)
    turns = vain * (1 + len(cluster.specs)) * timing.restore_seconds
    mute = sum(not host.release.says_who_came for host in cluster.hosts.values())
    loads = (mute + cluster.faults["hang_loading"]) * timing.load_seconds
    return float(work + hangs + loads + once + 2 * twice + poisoned + turns)


def _expect(cluster: Cluster, until: Callable[[], bool], seconds: float, otherwise: str) -> None:
    if not cluster.run(until, cluster.now + seconds):
        raise Violation(f"{otherwise} within {seconds:.0f} s")


def _tell_why(cluster: Cluster, reasons: Reasons, limit: float) -> None:
    """What can't run says why once nothing else keeps it, and says it again."""
    if not reasons.jobs:
        return
    undone, why = "orders are not taken back", "what can't run does not say why"
    for order in (lambda: None, *reasons.orders()):
        order()
        _expect(cluster, reasons.left_alone, limit, undone)
        _expect(cluster, reasons.told, _TOLD_SECONDS, why)


def _all_ended(cluster: Cluster, but: Sequence[JobId] = ()) -> bool:
    return all(
        host.node is not None and job in host.node.records and host.node.records[job].ended
        for job in cluster.specs
        if job not in but
        for host in cluster.hosts.values()
    )


def _quiet(cluster: Cluster) -> bool:
    """No children are left, all nodes agree on how each job ended, every request is answered."""
    if cluster.requests.keys() - cluster.answers.keys() or any(
        host.children for host in cluster.hosts.values()
    ):
        return False
    tables = [host.node.tables.nodes.records for host in cluster.living() if host.node is not None]
    if any(not cluster.mixture.same([t.get(n) for t in tables]) for n in {*chain(*tables)}):
        return False
    for job in cluster.specs:
        records = [host.node.records[job] for host in cluster.living() if host.node is not None]
        if not cluster.mixture.same(records):
            return False
    return True
