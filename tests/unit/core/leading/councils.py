"""What a leader of three nodes knows when it plans, built by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from elasticd.checkpoints.manifest import Manifest, Stored
from elasticd.core.leading.council import Council
from elasticd.core.leading.planning import Situation
from elasticd.core.leading.roster import Roster
from elasticd.core.words.records import View, World
from elasticd.core.words.worlds import Holding
from elasticd.types import NodeId
from tests.unit.core.leading.bench import EPOCH, JOB, A, B, C, spec_of, status_of, world_of


def roster_of(world: World | None = None, *members: NodeId) -> Roster:
    """All have spoken; those in ``world`` are active there, the others ready."""
    made = Roster(View(EPOCH, members or (A, B, C)))
    for node in made.view.members:
        inside = world is not None and node in world.members
        made.statuses[node] = status_of("active", world) if inside else status_of("ready")
    return made


def situation_of(holdings: Mapping[NodeId, Holding], **more: Any) -> Situation:
    """A world of all three has broken."""
    names: Iterator[str] = (f"new{n}" for n in range(9))
    world = world_of(A, B, C)
    made = Situation(
        job=JOB, spec=spec_of(), least=1, roster=roster_of(world), holdings=dict(holdings),
        world=world, newest=None, parents={}, begun=frozenset(), committed=0, recovering=True,
        waited=False, nonce=lambda: next(names),
    )  # fmt: skip
    return replace(made, **more)


def stored(at: Situation, node: NodeId, *manifests: Manifest) -> Situation:
    """``node`` has these checkpoints, all of their shards."""
    has = tuple(Stored(each, tuple(range(each.count))) for each in manifests)
    at.roster.statuses[node] = replace(at.roster.statuses[node], stored=has)
    newest = max(manifests, key=lambda m: m.step)
    return replace(at, newest=newest, begun=frozenset(m.lineage for m in manifests))


def council_of(at: Situation, **more: Any) -> Council:
    """All that is said is trusted."""
    return replace(Council(at, trusted=at.holdings), **more)
