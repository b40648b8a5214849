"""Which messages the daemon at the other end knows, and what goes in the place of others. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from elasticd.core.words.frames import Frame
from elasticd.core.words.messages import Message, encode, since
from elasticd.core.words.tables import Jobs
from elasticd.core.words.versions import NEWEST
from elasticd.core.words.views import Carry
from elasticd.types import NodeId

UNSAID = Jobs((), ())
"""What says nothing, to daemons of before too."""


def unsaid(frame: Frame) -> Frame:
    """The frame with nothing in its message's place, so that those behind it go on. Of a frame that
    is carried for others the one inside has the place."""
    carry = frame.message
    if not isinstance(carry, Carry):
        return replace(frame, message=UNSAID)
    inside = {**carry.frame, "message": encode(UNSAID)}
    return replace(frame, message=replace(carry, frame=inside))


@dataclass(slots=True)
class Hearers:
    """Of each node that was ever connected, the version of the protocol that both ends spoke."""

    protocols: dict[NodeId, int] = field(default_factory=dict)
    newest: int = NEWEST
    """What this daemon speaks."""

    def met(self, node: NodeId, protocol: int) -> None:
        """It is connected now."""
        self.protocols[node] = protocol

    def fitting(self, to: NodeId, frame: Frame) -> Frame:
        """What may be sent: of a message that is newer than what both speak only its place."""
        return frame if self._is_known_to(to, frame.message) else unsaid(frame)

    def _is_known_to(self, node: NodeId, message: Message | None) -> bool:
        if message is None:
            return True
        hearer = message.target if isinstance(message, Carry) else node
        return since(message) <= self.protocols.get(hearer, self.newest)
