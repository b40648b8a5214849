"""One node, and what it hears of its peers: built by hand, no other node runs."""

from __future__ import annotations

from typing import TypeVar

from elasticd.core.context import Context
from elasticd.core.membership.liveness import Liveness
from elasticd.core.words.effects import Send
from elasticd.core.words.messages import Message
from elasticd.core.words.records import View
from elasticd.core.words.views import Heartbeat
from elasticd.types import NO_TAG, NodeId, Tag

ME, A, B, C = (NodeId(name) for name in ("me", "a", "b", "c"))
VIEW = View(Tag(5, ME, "v"), (A, B, C, ME))
START = 100.0
MANY = tuple(NodeId(f"n{number:03}") for number in range(79))
"""More than hear one another."""
CROWD = View(Tag(5, ME, "v"), (ME, *MANY))

Kind = TypeVar("Kind", bound=Message)


class Hearer:
    """A node that is connected with its peers, and follows a view with them."""

    def __init__(self, view: View | None = VIEW, strict: bool = False) -> None:
        self.ctx = Context(ME, lambda: "0000", now=START, strict=strict)
        self.abandoned: list[NodeId] = []
        self.liveness = Liveness(self.ctx, self.abandoned.append)
        if view is not None:
            self.follow(view)

    def follow(self, view: View) -> None:
        """All members are connected, and follow the view."""
        for node in view.members:
            if node != ME and node not in self.liveness.peers:
                self.meet(node)
        self.liveness.follow(view)
        for node in view.members:
            if node != ME:
                self.beat(node, view.epoch)
        self.ctx.effects.clear()

    def meet(self, node: NodeId, run: str = "1", session: int = 0) -> None:
        """A connection to a run of its daemon."""
        self.liveness.peer_up(node, f"{node}.{run}", f"{node}:1", session)

    def part(self, node: NodeId, run: str = "1") -> None:
        """That connection closes."""
        self.liveness.peer_down(node, f"{node}.{run}", "closed")

    def beat(
        self, node: NodeId, epoch: Tag = NO_TAG, primary: bool = True, asks: bool = True
    ) -> None:
        """A heartbeat of that node arrives, which follows the view of that epoch."""
        self.liveness.heard(node)
        self.liveness.on_heartbeat(node, Heartbeat(epoch, 1, primary, asks))

    def wait(self, seconds: float, *speaking: NodeId) -> None:
        """Only these are heard meanwhile, four times a second, in the view that we follow."""
        end = self.ctx.now + seconds
        while self.ctx.now < end:
            self.ctx.now = min(end, self.ctx.now + 0.25)
            for node in speaking:
                self.beat(node, self.liveness.following.epoch)
            self.liveness.tick()

    def sent(self, kind: type[Kind]) -> list[tuple[NodeId, Kind]]:
        """Messages of a kind, to whom; they are taken out."""
        found = [f for f in self.ctx.effects if isinstance(f, Send) and isinstance(f.message, kind)]
        self.ctx.effects = [f for f in self.ctx.effects if f not in found]
        return [(f.to, f.message) for f in found if isinstance(f.message, kind)]

    @property
    def living(self) -> tuple[NodeId, ...]:
        return self.liveness.living()
