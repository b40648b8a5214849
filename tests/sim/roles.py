"""What nodes must not do that don't train, or only vote, and what leaders must not do with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elasticd.core.words import effects as e
from elasticd.core.words.records import World
from elasticd.types import NodeId, NodeRole

if TYPE_CHECKING:
    from .host import Host

_TRAINS = (e.StartTrainer, e.StartReducer, e.EnsureArchive, e.EnterWorld)
_HOLDS = (e.FetchShards, e.CommitManifest)


def out_of_role(node: NodeId, role: NodeRole, effects: Sequence[e.Effect]) -> str:
    """What it does all the same, or nothing."""
    never = _TRAINS if role == "store" else (*_TRAINS, *_HOLDS)
    does = [type(effect).__name__ for effect in effects if isinstance(effect, never)]
    return f"{node} is a {role} and does {does[0]}" if does and role != "train" else ""


def misplaced(host: Host, world: World) -> str:
    """What is wrong with a world that ``host`` makes as its leader, as to the roles that its own
    disk has; or nothing. Who leads after another has them there, too.

    A store is no member. It has the copy that is the last of ``replicas``, so no shard is written
    by as many members as where there is none.
    """
    setup, node = host.cluster.setup, host.node
    if not setup.roles or setup.releases or world.generation.leader != host.name or node is None:
        return ""  # while a cluster is upgraded a node that trains may become a store
    roles = {record.node: record.role for record in host.disk.stable().nodes}
    if seated := [name for name in world.members if roles.get(name, "train") != "train"]:
        return f"{host.name} seats {seated[0]}, which is a {roles[seated[0]]}"
    driver = node.drivers.by_job.get(world.job)
    if driver is None or world.count:  # how it is cut was decided by an earlier world
        return ""
    replicas = driver.office.checkpoints.replicas
    here = {*replicas.view.members} - node.tables.nodes.standing().leaving
    stores = [name for name in here.intersection(replicas.domains) if roles.get(name) == "store"]
    wanted = host.cluster.specs[world.job].checkpoint.replicas
    most = max(map(len, world.writers), default=min(wanted, len(world.members)))
    if most > max(1, wanted - len(stores)):
        return f"{host.name} has {most} members write a shard, though {stores} are to have a copy"
    return ""
