"""What the leader is told of what a trainer has said: the same fields, and the job."""

from __future__ import annotations

from elasticd.core.words.rewording import reworded
from elasticd.core.words.shards import ShardsFailed, ShardsWritten
from elasticd.core.words.trainers import TrainerProgress, TrainerSkipped, TrainerWrote
from elasticd.core.words.worlds import Progress
from elasticd.types import JobId


def progress_for_leader(job: JobId, said: TrainerProgress) -> Progress:
    """What is not known yet is 0."""
    return reworded(
        Progress,
        said,
        job=job,
        committed=said.committed or 0,
        steps_per_second=said.steps_per_second or 0.0,
    )


def shards_for_leader(job: JobId, said: TrainerWrote) -> ShardsWritten:
    """The tensors of all shards are beside the shards."""
    return reworded(
        ShardsWritten,
        said,
        job=job,
        shards=tuple((shard.index, shard.bytes, shard.digest) for shard in said.shards),
        tensors=tuple(tuple(shard.tensors.items()) for shard in said.shards),
    )


def failure_for_leader(job: JobId, said: TrainerSkipped) -> ShardsFailed:
    return reworded(ShardsFailed, said, job=job)
