"""A leader's desk: checkpoints of a job on three nodes, and what is asked for them."""

from __future__ import annotations

from elasticd.checkpoints.manifest import Manifest
from elasticd.core.context import Context
from elasticd.core.leading.checkpointing import Checkpoints
from elasticd.core.words import effects as e
from elasticd.core.words.records import View, World
from elasticd.core.words.shards import (
    ManifestStored,
    ShardsFailed,
    ShardsWritten,
)
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag

A, B, C = (NodeId(name) for name in "abc")
JOB, LINE, STAMP = JobId("job-1-abcd"), Lineage("11"), Stamp("ab" * 16)
GENERATION = Tag(2, A, "x")
FULL = "the disk is full"


def world_of(*members: NodeId) -> World:
    """The world that makes the checkpoints."""
    nothing = ((),) * len(members)
    return World(
        job=JOB, generation=GENERATION, epoch=Tag(1, A, "v"), lineage=LINE, parent=None, step=0,
        stamp=STAMP, members=members, sources=("init",) * len(members), hosts=("",) * len(members),
        shares_now=nothing, shares=nothing, rung="start", reason="", recoveries=0, lost_steps=0,
        exact=True, checkpointed=-1, manifest=None, holders=(),
    )  # fmt: skip


class Desk:
    """A leader that hears of shards and manifests; what it asks is read off."""

    def __init__(self, *members: NodeId, replicas: int = 2, steps: int = 100) -> None:
        spec = JobSpec.from_dict(
            {
                "job": {"name": "job", "entrypoint": "train.py"},
                "batch": {"global": 8, "micro": 1},
                "train": {"steps": steps},
                "checkpoint": {"replicas": replicas},
            }
        )
        self.ctx = Context(A, lambda: "0000", now=50.0)
        self.made = Checkpoints(self.ctx, JOB, spec, View(Tag(1, A, "v"), members or (A, B, C)))

    def form(self, *members: NodeId) -> None:
        """These make the checkpoints."""
        self.made.enter(world_of(*members))

    def wrote(
        self,
        node: NodeId,
        *indices: int,
        step: int = 10,
        count: int = 2,
        lineage: Lineage = LINE,
        generation: Tag = GENERATION,
        digest: str = "0" * 64,
        rows: str = "0",
        check: str = "",
        last: bool = False,
        size: int = 100,
    ) -> None:
        """``rows``: what the shards' digests begin with. With a ``check`` they are the node's own,
        not copies. ``last``: the script stops there."""
        table = tuple((index, size, f"{rows}{index:063x}") for index in indices)
        self.made.on_shards(
            node,
            ShardsWritten(
                *(JOB, generation, lineage, step, STAMP, count, table, digest, 0.1, 0.2),
                check=check,
                last=last,
            ),
        )
        self.made.advance()

    def copied_rot(self, node: NodeId, *rotten: tuple[int, NodeId], step: int = 10) -> None:
        """``node`` was to copy shards, and was given others than it should."""
        why = "could not be had"
        said = ShardsFailed(JOB, GENERATION, LINE, step, STAMP, 2, why, False, rotten)
        self.made.on_failed(node, said)
        self.made.advance()

    def failed(self, node: NodeId, step: int = 10, count: int = 2, refused: bool = True) -> None:
        said = ShardsFailed(JOB, GENERATION, LINE, step, STAMP, count, "the disk is full", refused)
        self.made.on_failed(node, said)
        self.made.advance()

    def stored(
        self,
        node: NodeId,
        step: int = 10,
        refusal: str = "",
        lineage: Lineage = LINE,
        count: int = 2,
        lacks: bool = False,
    ) -> None:
        name = (JOB, lineage, step, STAMP, count)
        said = ManifestStored(*name, not refusal, refusal, refusal == FULL, lacks)
        self.made.on_stored(node, said)
        self.made.advance()

    def later(self, seconds: float) -> None:
        self.ctx.now += seconds
        self.made.advance()

    def asked(self, kind: type) -> list[NodeId]:
        """Who was sent a message of a kind since the last time, itself included."""
        sent = [f.to for f in self.ctx.effects if isinstance(f, e.Send) and type(f.message) is kind]
        own = [A for message in self.ctx.inbox if type(message) is kind]
        rest = [f for f in self.ctx.effects if not isinstance(f, e.Send)]
        self.ctx.effects[:] = rest
        self.ctx.inbox.clear()
        return sorted(sent + own)

    def emitted(self, kind: str) -> list[e.Emit]:
        return [f for f in self.ctx.effects if isinstance(f, e.Emit) and f.kind == kind]

    def announced(self) -> list[int]:
        return [emit.fields["step"] for emit in self.emitted("checkpoint_committed")]

    def newest(self) -> Manifest:
        assert self.made.newest is not None
        return self.made.newest

    def manifest(self) -> Manifest:
        (checkpoint,) = self.made.open.values()
        assert checkpoint.manifest is not None
        return checkpoint.manifest
