"""Two nodes that wrote one shard differently: the tensor and the odd one are named."""

from __future__ import annotations

from typing import Any

import pytest

from elasticd.core.context import Context
from elasticd.core.leading.checkpointing import Checkpoints
from elasticd.core.words.effects import Emit
from elasticd.core.words.records import View
from elasticd.core.words.shards import ShardsWritten
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
GENERATION = Tag(3, A, "n")
JOB = JobId("job")
SPEC = JobSpec.from_dict(
    {
        "job": {"name": "x", "entrypoint": "x.py"},
        "batch": {"global": 4, "micro": 1},
        "train": {"steps": 9},
    }
)


def checkpoints() -> tuple[Checkpoints, Context]:
    ctx = Context(A, lambda: "n")
    view = View(Tag(1, A, "n"), (A, B, C))
    return Checkpoints(ctx, JOB, SPEC, view), ctx


def wrote(shard: int, model: str, **tensors: str) -> ShardsWritten:
    """The model's digest comes with shard 0 alone."""
    digest = f"{hash(tuple(sorted(tensors.items()))) & 0xFFFF:064x}"
    return ShardsWritten(
        *(JOB, GENERATION, Lineage("l"), 5, Stamp("ab"), 3, ((shard, 100, digest),)),
        *(model if shard == 0 else "", 0.0, 0.0, "reference"),
        tensors=(tuple(tensors.items()),),
        check=model,
    )


def faults(ctx: Context) -> list[dict[str, Any]]:
    emitted = [effect for effect in ctx.effects if isinstance(effect, Emit)]
    return [{**effect.fields, "reason": effect.reason} for effect in emitted]


@pytest.mark.parametrize("odd", [A, B, C])
def test_of_three_the_one_whose_model_differs_is_odd(odd: NodeId) -> None:
    found, ctx = checkpoints()
    for shard, nodes in ((0, (A, B)), (1, (B, C)), (2, (C, A))):
        for node in nodes:
            bad = node == odd
            model = "bb" if bad else "aa"
            found.on_shards(node, wrote(shard, model, x="1", y="2" if not bad else "3", z="4"))
    said = faults(ctx)
    assert said and said[-1]["fault"] == "divergence"
    assert said[-1]["culprit"] == odd
    assert said[-1]["tensor"] == "y"
    assert "tensor 'y' of step 5 differs" in said[-1]["reason"]


def test_of_two_the_tensor_is_named() -> None:
    found, ctx = checkpoints()
    found.on_shards(A, wrote(0, "aa", w="1", v="2"))
    found.on_shards(B, wrote(0, "aa", w="1", v="9"))
    (fault,) = faults(ctx)
    assert fault["tensor"] == "v" and "on b and a" in fault["reason"]


def test_how_long_it_took_to_detect_counts_from_what_the_odd_one_said() -> None:
    found, ctx = checkpoints()
    for seconds, node, model in ((10.0, C, "bb"), (11.0, A, "aa"), (14.0, B, "aa")):
        ctx.now = seconds
        found.on_shards(node, wrote(0, model, x="1" if model == "aa" else "2"))
    said = [(fault["culprit"], fault["seconds_to_detect"]) for fault in faults(ctx)]
    assert said == [(A, 0.0), (C, 4.0)], "of two either may be right"


def test_equal_shards_are_no_fault() -> None:
    found, ctx = checkpoints()
    for node in (A, B):
        found.on_shards(node, wrote(0, "aa", w="1"))
    assert faults(ctx) == []


def test_a_model_that_differs_where_shards_do_not_keeps_its_shards_out() -> None:
    found, ctx = checkpoints()
    found.on_shards(A, wrote(0, "aa", w="1"))
    found.on_shards(B, wrote(1, "bb", v="1"))
    found.on_shards(C, wrote(1, "aa", v="1"))
    (checkpoint,) = found.open.values()
    assert checkpoint.copies.holders == {0: {A}, 1: {C}}
    (fault,) = faults(ctx)
    assert fault["culprit"] == B
