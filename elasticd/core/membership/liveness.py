"""Which peers live, as one node hears it, and to whom it says that it lives itself.

A peer is met when it is connected, dead when it was silent for too long or closed its connection
and did not come back, and met again when it speaks. In a large view not everyone is listened to
(core/membership/circle.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from elasticd.core.context import Context
from elasticd.core.membership.circle import Circle
from elasticd.core.membership.damping import Damping
from elasticd.core.membership.detector import Bounds, Detector
from elasticd.core.words.records import View
from elasticd.core.words.views import Heartbeat, Leaving, Missing
from elasticd.types import NO_TAG, NodeId, Tag

_SELDOM = 4
"""Every so many heartbeats one goes to the dead, too."""


@dataclass(slots=True)
class Peer:
    boot: str
    address: str
    session: int
    """Rises when messages between it and us were given up (core/membership/sessions.py)."""
    epoch: Tag | None = None
    """The view that it follows; None until it has said so."""
    primary: bool = False
    """That view may train."""
    down_since: float | None = None
    down_reason: str = ""
    accused_at: float = -inf
    """When another node had a second witness against it, perhaps before we heard of the first."""
    accused_of: str = ""


@dataclass(slots=True)
class Liveness:
    """The peers of one node. It follows the view that it is told to."""

    ctx: Context
    abandon: Callable[[NodeId], None]
    """Told of each node that can't answer any more what it was asked."""
    view: View | None = None
    met: dict[NodeId, tuple[str, int]] = field(default_factory=dict)
    """Incarnation and session of each peer when the present view was formed."""
    reborn: tuple[NodeId, ...] = ()
    """Members whose daemon was started again since the view before."""
    missed: tuple[NodeId, ...] = ()
    """Members to or from which messages were given up since the view before, or that gave it up."""
    peers: dict[NodeId, Peer] = field(default_factory=dict)
    links: dict[NodeId, tuple[str, str, int]] = field(default_factory=dict)
    """Boot, address and session of every open connection, also to peers that fell silent."""
    damping: Damping = field(default_factory=Damping)
    detector: Detector = field(init=False)
    circle: Circle = field(init=False)
    heeded: frozenset[NodeId] | None = None
    """The peers that this node listens to; None: all."""
    evidence: dict[NodeId, str] = field(default_factory=dict)
    """What third nodes say of a peer that is not heard."""
    buried: dict[NodeId, str] = field(default_factory=dict)
    """The run of each peer that was held for dead."""
    leaving: str = ""
    """Why this node goes; empty while it stays."""
    departed: set[NodeId] = field(default_factory=set)
    """Peers that said they were leaving and have not taken it back."""
    next_heartbeat: float = 0.0
    beats: int = 0
    changes: int = 0
    """Rises with whatever changes about whom this node listens to."""
    news: int = 0
    """Rises with whatever changes of who lives or of which view each follows."""
    _look_at: float = -inf
    """Before that no peer can be silent for too long, or closed."""
    _stale: bool = False
    """Whom to listen to is to be found anew; if also ``_unsettled``, who is in the overlay."""
    _unsettled: bool = False
    _odd: set[NodeId] = field(default_factory=set)
    """Peers that do not follow our view, for all that we know."""
    _pressed: set[NodeId] = field(default_factory=set)
    """Members that left a proposed view unanswered."""
    _living: tuple[NodeId, ...] | None = None
    _suspects: list[NodeId] | None = None

    def __post_init__(self) -> None:
        timing = self.ctx.timing
        bounds = Bounds(timing.silent_floor_seconds, timing.silent_seconds)
        self.detector = Detector(bounds, timing.heartbeat_seconds)
        self.circle = Circle(self.ctx.me)

    @property
    def epoch(self) -> Tag:
        return self.view.epoch if self.view is not None else NO_TAG

    @property
    def leading(self) -> bool:
        return self.view is not None and self.view.leader == self.ctx.me

    # --- what is heard --------------------------------------------------------------------------

    def peer_up(self, node: NodeId, boot: str, address: str, session: int = 0) -> None:
        self.links[node] = (boot, address, session)
        if self.leaving:
            self._forget(node)
            self.ctx.send(node, Leaving(self.leaving))
            return
        self.departed.discard(node)
        peer = self.peers.get(node)
        if peer is None or (peer.boot, peer.session) != (boot, session):
            self._forget(node)
            self._meet(node)
            return
        # The same run on another connection: nothing that was said is lost.
        self._news()
        self._suspects, self._look_at = None, -inf
        peer.address, peer.down_since, peer.down_reason = address, None, ""
        self.detector.meet(node, self.ctx.now)
        self.ctx.send(node, self._heartbeat())

    def _meet(self, node: NodeId) -> None:
        boot, address, session = self.links[node]
        self._regrouped()
        self.peers[node] = Peer(boot, address, session)
        self._odd.add(node)
        self.detector.meet(node, self.ctx.now)
        self._look_at = min(self._look_at, self._soonest(node))
        self._note_return(node, boot)
        self.ctx.send(node, self._heartbeat())

    def _note_return(self, node: NodeId, boot: str) -> None:
        before = self.buried.pop(node, None)
        if before is None:
            return
        if before != boot:
            self.damping.restarted(node)
        elif wait := self.damping.flapped(node, self.ctx.now):
            self.ctx.log("info", f"{node} comes and goes: it is let in after {wait:g} s", node=node)

    def peer_down(self, node: NodeId, boot: str, reason: str) -> None:
        link, peer = self.links.get(node), self.peers.get(node)
        if link is not None and link[0] == boot:
            del self.links[node]
        if peer is None or peer.boot != boot or peer.down_since is not None:
            return
        self._news()
        peer.down_since, peer.down_reason = self.ctx.now, reason
        self._suspects, self._look_at = None, min(self._look_at, self._soonest(node))
        if self.ctx.now - peer.accused_at < self.ctx.timing.return_seconds:
            self.confirm_dead(node, peer.accused_of)

    def heard(self, node: NodeId) -> None:
        if self.leaving:
            return
        peer = self.peers.get(node)
        if peer is None and node in self.links and node not in self.departed:
            self.ctx.log("info", "node speaks again", node=node)
            self._meet(node)
        elif peer is not None and peer.down_since is None:
            self.evidence.pop(node, None)
            self.detector.heard(node, self.ctx.now)
            if self.circle.charges:
                self.circle.acquit(node)

    def on_heartbeat(self, node: NodeId, beat: Heartbeat) -> None:
        if node in self.departed and node in self.links:
            self.departed.discard(node)
            self._meet(node)
        if node in self.peers:
            self.follows(node, beat.epoch, beat.primary)
            self.circle.asked(node, beat.asks, self.ctx.now)
            self.detector.beat(node, self.ctx.now)

    def follows(self, node: NodeId, epoch: Tag, primary: bool) -> None:
        """A peer follows the view of that epoch, as far as we know."""
        peer = self.peers[node]
        if peer.primary != primary or peer.epoch != epoch:
            self._news()
            peer.epoch, peer.primary = epoch, primary
            (self._odd.discard if epoch == self.epoch else self._odd.add)(node)

    def confirm_dead(self, node: NodeId, why: str) -> bool:
        """A closed connection and a second witness: the peer is dead now. True if that is news."""
        peer = self.peers.get(node)
        if peer is None:
            return False
        if peer.down_since is None:
            peer.accused_at, peer.accused_of = self.ctx.now, why
            return False
        self._bury(node, f"{peer.down_reason}; {why}")
        return True

    def _bury(self, node: NodeId, why: str, since: float | None = None) -> None:
        peer = self.peers[node]
        if more := self.evidence.pop(node, ""):
            why = f"{why}; {more}"
        heard_at = self.detector.heard_at(node) if since is None else since
        self.ctx.lost[node] = heard_at if peer.down_since is None else peer.down_since
        self.ctx.lost_why[node] = why
        self.ctx.log("info", "node is dead", node=node, why=why)
        self.buried[node] = peer.boot
        self._forget(node)

    # --- going on purpose -------------------------------------------------------------------------

    def leave(self, reason: str) -> None:
        """Say that we go. Until :meth:`stay` nobody is heard."""
        self.leaving = reason
        for node in sorted(self.links):
            self.ctx.send(node, Leaving(reason))
        self.follow_none()
        self.peers.clear()
        self.met = {}

    def stay(self) -> None:
        """Take :meth:`leave` back."""
        self.leaving = ""
        for node in sorted(self.links):
            if node in self.departed:
                self.ctx.send(node, self._heartbeat())  # it may stay, too
            else:
                self._meet(node)

    def departs(self, node: NodeId, reason: str) -> None:
        """A peer says that it goes."""
        self.departed.add(node)
        if node in self.peers:
            self._bury(node, reason)

    # --- the view that is followed ----------------------------------------------------------------

    def follow(self, view: View) -> None:
        """``view`` is ours from now on."""
        self._regrouped()
        old, before = self.epoch, self.met
        self.view = view
        self.circle.form(view.members)
        self._pressed.clear()
        if self.circle.near is not None:
            self._meet_members(view)
        self.reborn = tuple(
            node for node in view.members
            if node in before and node in self.peers and before[node][0] != self.peers[node].boot
        )  # fmt: skip
        self.missed = tuple(
            node for node, peer in sorted(self.peers.items())
            if before.get(node) != (peer.boot, peer.session) or peer.epoch != old
        )  # fmt: skip
        self.met = {node: (peer.boot, peer.session) for node, peer in self.peers.items()}
        if self.circle.near is not None:
            self._trust_members(view)
        self._odd = {node for node, peer in self.peers.items() if peer.epoch != view.epoch}
        self.next_heartbeat, self._look_at = self.ctx.now, -inf
        self._listen()

    def _meet_members(self, view: View) -> None:
        """All have promised the view just now, also those that we held for dead and do not
        watch."""
        for node in view.members:
            if node in self.links and node not in self.peers and node not in self.departed:
                self._meet(node)

    def _trust_members(self, view: View) -> None:
        """Who is not heard from follows the view that it has promised, until it says otherwise."""
        for node in view.members:
            if node in self.peers:
                self.peers[node].epoch, self.peers[node].primary = view.epoch, view.primary

    def follow_none(self) -> None:
        """Our view is given up."""
        self._regrouped()
        self.circle.form(())
        self.view = None

    def doubt(self) -> None:
        """Be sure of no peer's view until it says again which one it follows."""
        self._news()
        for peer in self.peers.values():
            peer.epoch = None

    def press(self, node: NodeId) -> None:
        """A peer did not answer what it was asked: listen to it, and wait less long for it."""
        self._pressed.add(node)
        self._news()
        self._listen()
        self.detector.hasten(node, self.ctx.now)
        self._look_at = -inf

    def epoch_of(self, node: NodeId) -> Tag:
        return self.epoch if node == self.ctx.me else self.peers[node].epoch or NO_TAG

    def trains(self, node: NodeId) -> bool:
        """Whether its view may train."""
        if node == self.ctx.me:
            return self.view is not None and self.view.primary
        return self.peers[node].primary

    # --- a view that is too large for everyone to hear everyone --------------------------------

    def _listen(self) -> None:
        """Find out whom to listen to."""
        if not self._stale:
            return
        self._stale = False
        if self._unsettled:
            self._unsettled = False
            members = self.view.members if self.view is not None else ()
            alive = (node for node in members if node == self.ctx.me or node in self.peers)
            self.circle.settle(members, tuple(alive))
        near, before = self.circle.near, self.heeded
        if near is None:
            self.heeded = None
        else:
            wanted = self.peers.keys() & (near | self._odd | self._pressed | self.ctx.deaf)
            if before is None or wanted != before:
                self.heeded = frozenset(wanted)
        if self.heeded is before:
            return
        self.changes += 1
        self._look_at = -inf
        if before is None:
            return
        for node in (self.peers.keys() if self.heeded is None else self.heeded) - before:
            self.detector.meet(node, self.ctx.now)

    def close(self, nodes: Sequence[NodeId]) -> Sequence[NodeId]:
        """Those of ``nodes`` that pass news on to the rest."""
        if self.heeded is None:
            return nodes
        return [node for node in nodes if node == self.ctx.me or node in self.heeded]

    def _silent(self, node: NodeId) -> None:
        """Nothing came from a node that we listen to, for too long."""
        now, seconds = self.ctx.now, self.ctx.now - self.detector.heard_at(node)
        together = self.view is not None and node in self.view.members
        if self.heeded is None or node in self._pressed or not together:
            self._bury(node, f"silent for {seconds:.1f} s")
            return
        if now < self.circle.again_at(node):
            return
        self.circle.charge(node, self.ctx.me, now, seconds)
        missing = Missing(node, self.peers[node].boot, seconds)
        for peer in self.living():
            if peer not in (self.ctx.me, node):
                self.ctx.send(peer, missing)
        self._weigh()

    def on_missing(self, sender: NodeId, missing: Missing) -> None:
        peer = self.peers.get(missing.node)
        known = peer is not None and peer.boot == missing.boot and sender in self.peers
        if known and self.circle.sparse and not self.leaving:
            seconds = missing.silent_seconds
            self.circle.charge(missing.node, sender, self.ctx.now, seconds)
            self._weigh()

    def _weigh(self) -> None:
        """Bury who was charged by enough; if it is as in a cut, hear everyone ourselves."""
        assert self.view is not None
        moved = True
        while moved:
            moved = False
            for node in sorted(self.circle.charges.keys() & self.peers.keys()):
                verdict = self.circle.verdict(node, self.ctx.now)
                if verdict is not None:
                    self._bury(node, *verdict)
                    self._listen()
                    moved = True
        if self.circle.cut(self.view.members, self.ctx.now):
            self.ctx.log("info", "many are silent at once: everyone is listened to")
            self.circle.widened_at = self.ctx.now
            self._regrouped()
            self._listen()

    # --- who lives --------------------------------------------------------------------------------

    def _news(self) -> None:
        """Something changed of who lives or of which view each follows."""
        self.news += 1
        self._stale = True

    def _regrouped(self) -> None:
        """Peers came or went, or the view did."""
        self._news()
        self.changes += 1
        self._living = self._suspects = None
        self._unsettled = True

    def rewired(self) -> None:
        """Links were lost or have returned: whom we listen to may be others now."""
        self._news()

    def _forget(self, node: NodeId) -> None:
        self._regrouped()
        self.peers.pop(node, None)
        self._odd.discard(node)
        self._pressed.discard(node)
        self.circle.drop(node)
        self.abandon(node)

    def suspects(self) -> list[NodeId]:
        if self._suspects is None:
            downs = (n for n, peer in self.peers.items() if peer.down_since is not None)
            self._suspects = sorted(downs)
        return self._suspects

    def living(self) -> tuple[NodeId, ...]:
        """This node and every peer that is not known to be dead, suspects included, by name."""
        if self._living is None:
            self._living = tuple(sorted([self.ctx.me, *self.peers]))
        return self._living

    def state_of(self, node: NodeId) -> str:
        if node == self.ctx.me:
            return "alive"
        peer = self.peers.get(node)
        if peer is None:
            return "dead"
        return "alive" if peer.down_since is None else "suspect"

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        self._listen()
        if self.leaving:
            return
        if self.ctx.now >= self.next_heartbeat:
            self.next_heartbeat = self.ctx.now + self.ctx.timing.heartbeat_seconds
            self._beat()
        if self.ctx.now >= self._look_at:
            self._look()

    def _look(self) -> None:
        """Bury who is silent for too long, or closed its connection and did not come back."""
        now, timing = self.ctx.now, self.ctx.timing
        for node in sorted(self._minded()):
            peer = self.peers.get(node)
            if peer is None:
                continue
            if peer.down_since is None:
                if now >= self.detector.silent_at(node, now):
                    self._silent(node)
            elif now - peer.down_since >= timing.return_seconds:
                self._bury(node, peer.down_reason)
        self._listen()
        self._look_at = min(map(self._soonest, self._minded()), default=inf)

    def _minded(self) -> Collection[NodeId]:
        """The peers that may die by what this node sees itself."""
        return self.peers if self.heeded is None else self.heeded.union(self.suspects())

    def _soonest(self, node: NodeId) -> float:
        """Before that its silence means nothing, whatever is learned of its pace meanwhile."""
        down_since = self.peers[node].down_since
        if down_since is not None:
            return down_since + self.ctx.timing.return_seconds
        return max(self.detector.silent_at_soonest(node), self.circle.again_at(node))

    def _beat(self) -> None:
        """To all who may hear it; to those that we hold for dead seldom, so that both notice when
        they are not."""
        self.beats += 1
        if self.circle.narrow(self.ctx.now):
            self._regrouped()
            self._listen()
        beat = self._heartbeat()
        if self.heeded is None:
            for node, peer in self.peers.items():
                if peer.down_since is None:
                    self.ctx.send(node, beat)
        else:
            self._beat_around(beat, self.heeded)
        if self.beats % _SELDOM == 0 and (self.heeded is None or self.leading):
            for node in sorted(self.links.keys() - self.peers.keys() - self.departed):
                self.ctx.send(node, beat)

    def _beat_around(self, beat: Heartbeat, heeded: frozenset[NodeId]) -> None:
        """To those that we listen to and that listen to us; and to the leader of a newer view, to
        which nobody else may say that we follow another."""
        epochs = (self.epoch_of(node) for node in self._odd)
        leaders = {epoch.leader for epoch in epochs if epoch > self.epoch}
        listeners = {*self.circle.listening(self.ctx.now), *leaders}
        for node in sorted(heeded | listeners):
            peer = self.peers.get(node)
            if peer is not None and peer.down_since is None:
                self.ctx.send(node, beat if node in heeded else replace(beat, asks=False))

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self.epoch, self.ctx.counter, self.trains(self.ctx.me))

    def deadlines(self) -> list[float]:
        """When there is something to do though nobody falls silent."""
        times = [self.damping.admit_at(n) for n in self.damping.records if n in self.peers]
        return [self.next_heartbeat, *times]

    def silences(self, until: float) -> list[float]:
        """When peers will be dead if nothing more is heard of them, if any may be so before
        ``until``."""
        return [self._over_at(node) for node in self._minded()] if self._look_at < until else []

    def _over_at(self, node: NodeId) -> float:
        """When a peer will be dead if nothing more is heard of it."""
        down_since = self.peers[node].down_since
        if down_since is not None:
            return down_since + self.ctx.timing.return_seconds
        return max(self.detector.silent_at(node, self.ctx.now), self.circle.again_at(node))
