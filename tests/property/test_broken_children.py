"""A child that says whatever it likes, as long as it is a word, ends no daemon.

What is no word never comes as far as the control plane (tests/unit/core/words/test_children.py).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.core.words import effects as e
from elasticd.core.words.reducers import FROM_REDUCER
from elasticd.core.words.trainers import FROM_TRAINER
from tests.sim.cluster import Cluster, JobShape, Setup
from tests.sim.host import Host
from tests.sim.operators import Operator
from tests.sim.run import build
from tests.sim.trainer import Trainer
from tests.unit.core.words.drawn import values

OF_TRAINER, OF_REDUCER = (
    st.sampled_from(conversation.kinds).flatmap(values)
    for conversation in (FROM_TRAINER, FROM_REDUCER)
)
SHAPE = JobShape(steps=200, spare="interpreter")


def trains(cluster: Cluster) -> bool:
    return any(each.newest for each in cluster.checkers.commits.values())


def at_work(nodes: int) -> Cluster:
    """A cluster in whose only world a step is committed."""
    cluster = build(Setup(seed=nodes, nodes=nodes, jobs=(SHAPE,)))
    views = [host.node for host in cluster.hosts.values()]
    cluster.run(lambda: all(node is not None for node in views), 5.0)
    Operator(cluster).submit(SHAPE, next(iter(cluster.hosts.values())))
    assert cluster.run(lambda: trains(cluster), 30.0)
    return cluster


def of_now(host: Host, word: Any, now: bool) -> Any:
    """The word as if it spoke of the present world and of its line, if it speaks of any."""
    node = host.node
    assert node is not None
    worlds = node.members.worlds_now()
    named = {field.name for field in fields(word)} if now and worlds else set()
    wanted = {"generation": lambda: worlds[0].generation, "lineage": lambda: worlds[0].lineage}
    return replace(word, **{name: wanted[name]() for name in named & wanted.keys()})


@settings(max_examples=30)
@given(st.data(), st.sampled_from([1, 2]))
def test_no_word_of_a_child_ends_its_daemon(data: st.DataObject, nodes: int) -> None:
    cluster = at_work(nodes)
    for _ in range(25):
        host = data.draw(st.sampled_from(list(cluster.hosts.values())))
        child = data.draw(st.sampled_from(sorted(host.children)))
        words = OF_TRAINER if isinstance(host.children[child], Trainer) else OF_REDUCER
        word = of_now(host, data.draw(words), data.draw(st.booleans()))
        assert host.endpoint is not None
        host.endpoint.step(host.now(), e.ChildSaid(child, word))
        host.endpoint.next_deadline()
