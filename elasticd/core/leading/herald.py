"""What a leader tells people of its view: who came, who left, what can't train."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticd.core.context import Context
from elasticd.core.words.records import JobRecord, View
from elasticd.types import NodeId


@dataclass(slots=True)
class Herald:
    ctx: Context
    members: tuple[NodeId, ...] = ()
    """Of the last view that this node followed."""

    def note(self, view: View | None) -> None:
        """The view that this node follows now, if any."""
        if view is not None:
            self.members = view.members

    def announce(self, view: View) -> None:
        """Who is new in the view, and who is not in it any more."""
        old, epoch = set(self.members), view.epoch.counter
        for node in sorted(set(view.members) - old):
            if node != self.ctx.me or not old:
                text = f"{node} joined the view"
                self.ctx.emit("node_joined", text, culprit=node, epoch=epoch)
        for node in sorted(old - set(view.members)):
            self.ctx.emit(
                "node_lost", self.ctx.departures.farewell(node), culprit=node, epoch=epoch
            )

    def tell_why(self, node: NodeId, reason: str, epoch: int) -> None:
        """Who was given up says only now why it goes."""
        text = f"{node}, which had left the view, says why: {reason}"
        self.ctx.emit("node_lost", text, culprit=node, epoch=epoch)

    def tell_of_parking(self, view: View, records: Iterable[JobRecord]) -> None:
        """What would run and may not, as another side of a cut may train."""
        for record in records:
            if record.state == "running" and not view.primary:
                self.ctx.emit("job_parked", view.why, record.id, epoch=view.epoch.counter)
