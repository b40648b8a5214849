"""What a part of the leader has sent and told since it was last asked."""

from __future__ import annotations

from typing import TypeVar

from elasticd.core.context import Context
from elasticd.core.words.effects import Emit, Send
from elasticd.core.words.messages import Message
from elasticd.types import NodeId

Kind = TypeVar("Kind", bound=Message)


def sent(ctx: Context, kind: type[Kind]) -> list[tuple[NodeId, Kind]]:
    """Messages of a kind, to whom; they are taken out."""
    found = [f for f in ctx.effects if isinstance(f, Send) and isinstance(f.message, kind)]
    ctx.effects = [f for f in ctx.effects if f not in found]
    return [(f.to, f.message) for f in found if isinstance(f.message, kind)]


def told(ctx: Context, kind: str) -> list[Emit]:
    """Events of a kind."""
    return [f for f in ctx.effects if isinstance(f, Emit) and f.kind == kind]
