"""What people are told of checkpoints."""

from __future__ import annotations

from elasticd.core.context import Context
from elasticd.core.saving.checkpoint import Checkpoint
from elasticd.core.words.records import World
from elasticd.counting import counted
from elasticd.types import JobId, NodeId


def refused(ctx: Context, job: JobId, checkpoint: Checkpoint, node: NodeId, reason: str) -> None:
    ctx.emit(
        "checkpoint_refused",
        f"{node} does not store its part of step {checkpoint.step}: {reason}",
        job,
        checkpoint.generation.counter,
        step=checkpoint.step,
        culprit=node,
        cause=reason,
    )


def committed(ctx: Context, job: JobId, checkpoint: Checkpoint, wanted: int) -> None:
    """It is consistent, perhaps with fewer replicas than are ``wanted``."""
    manifest, measured, replicas = checkpoint.manifest, checkpoint.said.measured, checkpoint.final()
    assert manifest is not None
    text = f"step {manifest.step} is consistent"
    if replicas < wanted and checkpoint.failed:
        why = "; ".join(f"{node}: {reason}" for node, reason in sorted(checkpoint.failed.items()))
        text += f", with {replicas} of {counted(wanted, 'replica')} ({why})"
    ctx.emit(
        "checkpoint_committed",
        text,
        job,
        manifest.generation.counter,
        step=manifest.step,
        bytes=manifest.bytes,
        replicas=replicas,
        stall_seconds=measured.stall_seconds,
        write_seconds=measured.write_seconds,
        snapshot=measured.mode or None,
    )


def diverged(
    ctx: Context, job: JobId, checkpoint: Checkpoint, node: NodeId, index: int, world: World | None
) -> None:
    """Two nodes wrote one shard of one state with different content: say which tensor differs,
    and which of them is alone with its digests, as far as what was heard tells."""
    said = checkpoint.said
    odd, other = said.odd(index, node), said.other(index, node)
    tensor = said.first_difference(index, node, other)
    named = f"tensor {tensor!r}" if tensor else f"shard {index}"
    beside = f" on {node} and {other}" if other else f" on {node}"
    ctx.emit(
        "fault_detected",
        f"divergence: {named} of step {checkpoint.step} differs{beside}; {odd} is the odd one",
        job,
        checkpoint.generation.counter,
        fault="divergence",
        rank=world.members.index(odd) if world is not None and odd in world.members else None,
        culprit=odd,
        evidence=[f"{n} has a model of check {d[:16]}" for n, d in sorted(said.models.items())],
        seconds_to_detect=round(ctx.now - said.heard_at.get(odd, ctx.now), 4),
        tensor=tensor,
        shard=index,
    )
