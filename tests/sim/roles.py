"""What nodes must not do that don't train, or only vote."""

from __future__ import annotations

from collections.abc import Sequence

from elasticd.core.words import effects as e
from elasticd.types import NodeId, NodeRole

_TRAINS = (e.StartTrainer, e.StartReducer, e.EnsureArchive, e.EnterWorld)
_HOLDS = (e.FetchShards, e.CommitManifest)


def out_of_role(node: NodeId, role: NodeRole, effects: Sequence[e.Effect]) -> str:
    """What it does all the same, or nothing."""
    never = _TRAINS if role == "store" else (*_TRAINS, *_HOLDS)
    does = [type(effect).__name__ for effect in effects if isinstance(effect, never)]
    return f"{node} is a {role} and does {does[0]}" if does and role != "train" else ""
