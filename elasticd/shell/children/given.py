"""A world, in the words of the processes that take part in it."""

from __future__ import annotations

from pathlib import Path

from elasticd.core.words.records import World
from elasticd.core.words.trainers import GiveWorld, Newcomers, WritePlan
from elasticd.core.words.worldlines import stayed
from elasticd.recovery.relief import cut
from elasticd.settings.job import JobSpec


def to_trainer(world: World, rank: int, spec: JobSpec, checkpoints: Path) -> GiveWorld:
    """As the trainer of ``rank`` gets it, which writes its shards into ``checkpoints``."""
    source = world.sources[rank]
    checkpoint = spec.checkpoint
    return GiveWorld(
        generation=world.generation,
        job=world.job,
        rank=rank,
        size=len(world.members),
        members=world.members,
        lineage=world.lineage,
        step=world.step,
        stamp=world.stamp,
        state="keep" if source == "keep" else "init" if source == "init" else "load",
        shares_now=world.shares_now,
        shares=world.shares,
        reduction=spec.world.reduction,
        checkpointed=world.checkpointed,
        checkpoint_folder=str(checkpoints),
        writes=WritePlan(
            checkpoint.interval_steps,
            world.shards,
            checkpoint.replicas,
            world.writers,
            world.step if world.stores else -1,
        ),
        micro=cut(spec.batch.global_, spec.batch.micro, world.relief).micro,
        relief=world.relief,
        last=world.last,
        caller=world.caller_rank,
        calls=world.calls,
        newcomers=_newcomers(world),
        walks=world.walks,
        addresses=_addresses(world) if spec.plain is not None else (),
        on_cpu=world.on_cpu,
    )


def _addresses(world: World) -> tuple[str, ...]:
    """Each rank's end of the link to the rank before it."""
    return tuple(host.rpartition(":")[0] for host in world.hosts)


def _newcomers(world: World) -> Newcomers:
    ranks = tuple(world.members.index(node) for node in world.unproven)
    kept = stayed(world)
    return Newcomers(ranks, world.members.index(kept[0])) if kept else Newcomers()
