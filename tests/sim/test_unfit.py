"""Nodes on which the job's script fails, or builds something else than elsewhere."""

from __future__ import annotations

import pytest

from elasticd.recovery import fitness
from elasticd.types import JobId, NodeId

from .cluster import Cluster, JobShape, Setup
from .faults import Injector
from .operators import Operator
from .releases import BEFORE
from .run import Result, simulate
from .scripts import Script, at_step, cut_off, newest
from .test_sim import job_events, passes

JOB = JobId("job1-1-abcd")
LONG = (JobShape(steps=200),)
SLOWLY = (0.2, 0.3)
"""Seconds of a grain, for stories of minutes."""


def members(result: Result) -> list[int]:
    """How many members each world has, in the order in which they were formed."""
    return [len(fields["members"]) for fields in job_events(result, "world_formed")]


def unfit(result: Result) -> list[str]:
    events = result.cluster.checkers.events
    return [e.fields["culprit"] for _, _, e in events if e.kind == "node_unfit"]


def spoil(name: str, how: str) -> Script:
    def script(cluster: Cluster, injector: Injector) -> None:
        setattr(cluster.hosts[NodeId(name)].environment, how, True)

    return script


def spoilt_at(step: int, name: str, how: str) -> Script:
    return at_step(step, spoil(name, how))


@pytest.mark.parametrize("how", ["unmounted", "other"])
@pytest.mark.parametrize("name", ["n0", "n2"])
@pytest.mark.parametrize("seed", range(3))
def test_who_is_not_fit_from_the_start_is_done_without(seed: int, name: str, how: str) -> None:
    result = passes(simulate(Setup(seed=seed), script=spoil(name, how)))
    assert unfit(result) == [name] and set(members(result)) == {2}
    assert result.cluster.record_of(JOB) is not None


@pytest.mark.parametrize("name", ["n0", "n2"])
@pytest.mark.parametrize("seed", range(3))
def test_a_job_begins_without_whom_its_preflight_found_unfit(seed: int, name: str) -> None:
    jobs = (JobShape(foreseen=(NodeId(name),)),)
    result = passes(simulate(Setup(seed=seed, jobs=jobs)))
    assert set(members(result)) == {2}


def test_who_was_found_unfit_before_the_job_began_is_tried_again_by_itself() -> None:
    jobs = (JobShape(steps=300, foreseen=(NodeId("n1"),)),)
    result = passes(simulate(Setup(seed=1, jobs=jobs, grain_seconds=SLOWLY)))
    assert unfit(result) == [] and members(result) == [2, 3]


@pytest.mark.parametrize("seed", range(4))
def test_a_node_whose_files_are_still_to_come_may_yet_be_fit(seed: int) -> None:
    """Where the script fails they came first: that node has just begun, and the other one asks for
    them again only after a pause."""

    def script(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[NodeId("n0")]
        host.environment.unmounted = True

        def begin_anew() -> None:
            host.crash()
            host.start()

        cluster.when(lambda: JOB not in cluster.missing_archives, begin_anew)

    setup = Setup(seed=seed, nodes=2, lost=((1, 5.0),), fault_seconds=9.0, fault_kinds=())
    result = passes(simulate(setup, script=script))
    assert unfit(result) == ["n0"] and members(result) == [1]


@pytest.mark.parametrize("how", ["unmounted", "other"])
@pytest.mark.parametrize("seed", range(3))
def test_a_joiner_that_is_not_fit_stops_nobody(seed: int, how: str) -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[NodeId("n2")]
        host.crash()
        setattr(host.environment, how, True)
        cluster.when(lambda: newest(cluster) >= 20, host.start)

    result = passes(simulate(Setup(seed=seed, jobs=LONG), script=script))
    assert unfit(result) == ["n2"]
    assert members(result) in ([2], [3, 2]) and not result.cluster.hosts[NodeId("n2")].children


@pytest.mark.parametrize("seed", range(3))
def test_a_member_whose_disk_goes_is_left_out_and_comes_back_on_retry(seed: int) -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        host, operator = cluster.hosts[NodeId("n1")], Operator(cluster)

        def left_out() -> bool:
            record = cluster.record_of(JOB)
            return record is not None and "n1" in fitness.left_out(record.unfit)

        def mend() -> None:
            assert not host.children, "nothing runs there"
            host.environment.unmounted = False
            operator.retry(JOB)

        spoilt_at(20, "n1", "unmounted")(cluster, injector)
        cluster.when(left_out, lambda: cluster.after(1.0, mend))

    result = passes(simulate(Setup(seed=seed, jobs=LONG), script=script))
    assert unfit(result) == ["n1"] and members(result) == [3, 2, 3]


def test_who_is_not_fit_is_tried_again_by_itself() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[NodeId("n1")]
        spoilt_at(20, "n1", "unmounted")(cluster, injector)
        cluster.when(
            lambda: newest(cluster) >= 30, lambda: setattr(host.environment, "unmounted", False)
        )

    setup = Setup(seed=1, jobs=(JobShape(steps=300),), grain_seconds=SLOWLY)
    result = passes(simulate(setup, script=script))
    assert unfit(result) == ["n1"] and members(result) == [3, 2, 3]


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_script_that_fails_everywhere_ends_the_job_soon(nodes: int) -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        for host in cluster.hosts.values():
            host.environment.unmounted = True

    result = simulate(Setup(seed=1, nodes=nodes), script=script)
    assert not result.problem and job_events(result, "job_failed")
    assert result.seconds < 10.0


def test_a_script_that_raises_at_one_step_everywhere_ends_the_job() -> None:
    def script(cluster: Cluster, injector: Injector) -> None:
        def strike() -> None:
            for host in cluster.hosts.values():
                host.environment.unmounted = True

        cluster.when(lambda: newest(cluster) >= 5, strike)

    result = simulate(Setup(seed=1), script=script)
    assert "job1-1-abcd failed: the script ended with exit status 1" in result.problem
    assert len(unfit(result)) <= 1


def test_who_was_left_out_of_two_comes_back_when_a_third_agrees_with_it() -> None:
    """Two are needed: with the third one there are two that are alike."""

    def script(cluster: Cluster, injector: Injector) -> None:
        operator = Operator(cluster)
        spoil("n0", "other")(cluster, injector)

        def left_out() -> bool:
            record = cluster.record_of(JOB)
            return record is not None and "n1" in fitness.left_out(record.unfit)

        operator.drain(NodeId("n2"))
        cluster.when(left_out, lambda: operator.undrain(NodeId("n2")))

    shape = JobShape(steps=40, world_min=2)
    result = passes(simulate(Setup(seed=1, jobs=(shape,)), script=script))
    assert unfit(result) == ["n1", "n0"] and members(result) == [2]


def test_of_two_nodes_that_differ_the_first_goes_on() -> None:
    result = passes(simulate(Setup(seed=1, nodes=2), script=spoil("n0", "other")))
    assert unfit(result) == ["n1"] and members(result) == [1]


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_node_that_is_cut_off_does_not_end_the_job_of_the_others(seed: int) -> None:
    """Alone it finds that the script fails on every node that it sees."""
    bad = NodeId("n0")

    def script(cluster: Cluster, injector: Injector) -> None:
        spoil(bad, "unmounted")(cluster, injector)

        def strike() -> None:
            cluster.after(60.0, cut_off(cluster, injector, bad, close=True))

        cluster.when(lambda: bool(cluster.hosts[bad].children), strike)

    setup = Setup(seed=seed, jobs=(JobShape(steps=200),), grain_seconds=SLOWLY)
    result = passes(simulate(setup, script=script))
    record = result.cluster.record_of(JOB)
    assert record is not None and record.state == "finished"


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_node_whose_journal_does_not_say_who_has_the_job_does_not_end_it(seed: int) -> None:
    """An older build kept it there. The other node was not in the last world."""
    bad, other = NodeId("n0"), NodeId("n1")

    def script(cluster: Cluster, injector: Injector) -> None:
        host = cluster.hosts[bad]

        def downgrade() -> None:
            host.crash()
            host.environment.unmounted = True
            host.next_release = BEFORE
            cluster.after(20.0, cut_off(cluster, injector, bad, close=True))
            cluster.hosts[other].start()
            host.start()

        at_step(5, lambda cluster, injector: cluster.hosts[other].crash())(cluster, injector)
        cluster.when(lambda: newest(cluster) >= 20, downgrade)

    shape = JobShape(steps=200, world_min=1)
    setup = Setup(seed=seed, nodes=2, jobs=(shape,), releases=("present", "present"))
    result = passes(simulate(setup, script=script))
    record = result.cluster.record_of(JOB)
    assert record is not None and record.state == "finished"


def test_a_script_that_fails_where_nobody_else_has_the_job_ends_it_soon() -> None:
    """Nodes that went before it was submitted can't be training it."""

    def script(cluster: Cluster, injector: Injector) -> None:
        for host in cluster.hosts.values():
            host.environment.unmounted = True
            if host.name != "n1":
                host.crash()

    result = simulate(Setup(seed=1), script=script)
    failed = [at for at, _, e in result.cluster.checkers.events if e.kind == "job_failed"]
    assert len(failed) == 1 and failed[0] < 10.0


@pytest.mark.parametrize("seed", range(3))
def test_a_bad_node_does_not_end_a_job_that_has_run_on_one_that_is_drained(seed: int) -> None:
    """Nothing runs there now, but the script has worked there."""
    bad, drained = NodeId("n0"), NodeId("n1")

    def script(cluster: Cluster, injector: Injector) -> None:
        host, operator = cluster.hosts[bad], Operator(cluster)

        def restart() -> None:
            host.crash()
            host.environment.unmounted = True
            cluster.after(1.0, host.start)
            cluster.after(20.0, back)

        def back() -> None:
            operator.undrain(drained)

        def drain() -> None:
            operator.drain(drained)
            cluster.when(lambda: not cluster.hosts[drained].children, restart)

        cluster.when(lambda: newest(cluster) >= 10, drain)

    result = passes(simulate(Setup(seed=seed, nodes=2, jobs=LONG), script=script))
    assert unfit(result) == [bad]
