"""What operators want of nodes, kept by every node: which of them no job is to run on.

As with jobs, a request is answered when every member of the view has it on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from elasticd.core.context import Context
from elasticd.core.words import effects as e
from elasticd.core.words.limits import in_parts
from elasticd.core.words.records import NodeRecord
from elasticd.core.words.requests.ends import Failed
from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.requests.nodes import NodeChanged
from elasticd.core.words.tables import Nodes, NodesKept
from elasticd.types import NodeId, NodeRole


@dataclass(slots=True)
class Asked:
    """A client's request that is answered when every member has the record on disk."""

    request: int
    node: NodeId
    missing: set[NodeId]
    body: Outcome


@dataclass(frozen=True, slots=True)
class NodeDuties:
    """Which nodes are not like the others: what they do less, and who is about to go."""

    stores: frozenset[NodeId] = frozenset()
    """They hold copies."""
    witnesses: frozenset[NodeId] = frozenset()
    """They hold nothing of any job."""
    leaving: frozenset[NodeId] = frozenset()
    """They are drained, or about to stop: others are to hold what they hold."""

    @property
    def idle(self) -> frozenset[NodeId]:
        """On these no job ever runs."""
        return self.stores | self.witnesses

    @property
    def unwanted(self) -> frozenset[NodeId]:
        """On these no job is to run."""
        return self.leaving | self.idle


ALL_ALIKE = NodeDuties()


@dataclass(slots=True)
class NodeTable:
    """``known`` gives every node that was ever heard of, ``members`` those of the view, ``near``
    those of them that news are sent to."""

    ctx: Context
    known: Callable[[], Sequence[NodeId]]
    members: Callable[[], Sequence[NodeId]]
    near: Callable[[], Sequence[NodeId]]
    records: dict[NodeId, NodeRecord] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    departing: set[NodeId] = field(default_factory=set)
    """Nodes whose daemons are about to be stopped."""
    _standing: NodeDuties | None = field(default=None, init=False)
    """As the records say, until they change: it is asked for behind each event."""

    def begins(self) -> None:
        """Before anything else this node says what it does, if that isn't known of it."""
        known = self.records.get(self.ctx.me, NodeRecord(self.ctx.me))
        if known.role != self.ctx.station.role:
            self.update(known)

    def depart(self, node: NodeId) -> None:
        """Its daemon is about to be stopped."""
        self.departing.add(node)
        self._standing = None

    def follow(self, members: Sequence[NodeId], reborn: Sequence[NodeId]) -> None:
        """A new view: whose daemon was started again does not depart any more. Its members are
        remembered, also over a restart of ours."""
        self.departing &= {self.ctx.me, *members} - set(reborn)
        self._standing = None
        for node in members:
            record = self.records.get(node)
            if record is None:
                self.update(NodeRecord(node))
            elif record.forgotten:
                self.update(NodeRecord(node, record.intent + 2))  # it is back, as a new one

    def unwanted(self) -> frozenset[NodeId]:
        """Nodes that no job is to run on."""
        return self.standing().unwanted

    def standing(self) -> NodeDuties:
        """Who trains nothing, and who is about to go."""
        if self._standing is None:
            roles = {node: record.role for node, record in self.records.items()}
            draining = (node for node, record in self.records.items() if record.draining)
            self._standing = NodeDuties(
                frozenset(node for node, role in roles.items() if role == "store"),
                frozenset(node for node, role in roles.items() if role == "witness"),
                frozenset(draining) | self.departing,
            )
        return self._standing

    def role_of(self, node: NodeId) -> NodeRole:
        """What a node does; as long as it has said nothing, it trains."""
        record = self.records.get(node)
        return "train" if record is None else record.role

    def away(self, nodes: Iterable[NodeId]) -> frozenset[NodeId]:
        """Which of these are not in the view and may come back to train."""
        return frozenset({*nodes} - {*self.members()} - self.gone - self.standing().idle)

    @property
    def gone(self) -> frozenset[NodeId]:
        """Nodes that were taken off the list and are not back."""
        return frozenset(n for n, record in self.records.items() if record.forgotten)

    @property
    def met(self) -> frozenset[NodeId]:
        """Every node of the list: all that were ever in a view with this one, or that others told
        of."""
        return frozenset(self.records) - self.gone

    def draining(self, node: NodeId) -> bool:
        record = self.records.get(node)
        return record is not None and record.draining

    def drain(
        self,
        request: int,
        node: NodeId,
        draining: bool,
        state_of: Callable[[NodeId], str],
        *,
        out: bool = False,
    ) -> None:
        """Drain or undrain; it stays as it is if that is what it was asked to be already. The
        answer has its state as ``state_of`` gives it then: it may be dead. ``out``: it was put out
        of the cluster, so nobody is told that it takes part."""
        record = self.records.get(node, NodeRecord(node))
        if node not in self.records and node not in self.known():
            self.ctx.do(e.Reply(request, Failed(f"no node {node}")))
            return
        changes = record.draining != draining
        # Said again it rises too: on the other side of a partition the opposite may have been said.
        record = replace(record, intent=record.intent + (1 if changes else 2))
        self.update(record)
        if changes and not out:
            kind, text = "node_draining", f"{node} is drained: its ranks leave, no job runs there"
            if not draining:
                kind, text = "node_undrained", f"{node} takes part again"
            self.ctx.emit(kind, text, culprit=node)
        self._answer_when_kept(request, record, state_of(node))

    def dismiss(self, request: int, node: NodeId, *, there: bool) -> None:
        """Take a node off the list that is gone for good. ``there``: it isn't gone."""
        if there:
            text = f"{node} is there; stop its daemon first, or it would only come back"
            self.ctx.do(e.Reply(request, Failed(text)))
            return
        known = self.records.get(node, NodeRecord(node))
        # The next even number: should it return, it isn't drained.
        record = NodeRecord(node, known.intent + 2 - known.intent % 2, forgotten=True)
        self.update(record)
        if not known.forgotten:
            self.ctx.emit("node_forgotten", f"{node} is gone for good", culprit=node)
        self._answer_when_kept(request, record, "forgotten")

    def _answer_when_kept(self, request: int, record: NodeRecord, state: str) -> None:
        missing = {n for n in self.members() if n != self.ctx.me}
        for member in sorted(missing):
            self.ctx.send(member, Nodes((record,)))
        answer = NodeChanged(record.node, state)
        self.asked.append(Asked(request, record.node, missing, answer))

    def answer(self) -> None:
        """Answer the requests that no living member of the view stands against any more."""
        if not self.asked:
            return
        members = set(self.members())
        for asked in list(self.asked):
            if not asked.missing & members:
                self.asked.remove(asked)
                self.ctx.do(e.Reply(asked.request, asked.body))

    def on_nodes(self, sender: NodeId, records: Sequence[NodeRecord]) -> None:
        for record in records:
            self.update(record)
        kept = tuple(record.node for record in records)
        self.on_kept(sender, kept)
        self.ctx.send(sender, NodesKept(kept))

    def on_kept(self, sender: NodeId, nodes: Sequence[NodeId]) -> None:
        for asked in self.asked:
            if asked.node in nodes:
                asked.missing.discard(sender)

    def share(self, nodes: Sequence[NodeId]) -> None:
        """Tell nodes of all records."""
        if self.records:
            parts = list(in_parts(self.records[node] for node in sorted(self.records)))
            for node in nodes:
                for part in parts:
                    self.ctx.send(node, Nodes(part))

    def update(self, record: NodeRecord) -> None:
        """Merge a record into the table; keep it and tell the others if that is news."""
        known = self.records.get(record.node)
        merged = record if known is None else known.merged(record)
        if record.node == self.ctx.me and merged.role != self.ctx.station.role:
            # Whoever says otherwise knows of an earlier run of ours.
            merged = merged.doing(self.ctx.station.role)
        if merged != known:
            self.records[record.node] = merged
            self._standing = None
            self.ctx.persist("node", merged)
            if merged == NodeRecord(merged.node):
                return  # nobody wants anything of it, and new members are told of all nodes
            for node in self.near():
                if node != self.ctx.me:
                    self.ctx.send(node, Nodes((merged,)))
