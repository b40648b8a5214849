"""Views: which nodes live, and who leads them.

Two phases. A node that should lead proposes a view above every counter it has seen; each member
journals the attempt before it answers; when all have answered the view is formed and journalled
again. Who should lead is a rule that every node applies to what it hears: the leader of the highest
view among the living, if it lives itself, else the first living node of that view by name. Nobody
proposes while it is open whether a suspect lives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from elasticd.core.circle import Circle
from elasticd.core.context import Context
from elasticd.core.damping import Damping
from elasticd.core.detector import Bounds, Detector
from elasticd.core.messages import (
    Heard,
    Heartbeat,
    Leaving,
    Missing,
    View,
    ViewAck,
    ViewForm,
    ViewNack,
    ViewPropose,
)
from elasticd.core.votes import Votes
from elasticd.recovery.quorum import History
from elasticd.types import NO_TAG, NodeId, Tag

_SELDOM = 4
"""Every so many heartbeats one goes to the dead, too."""


@dataclass(slots=True)
class Peer:
    boot: str
    address: str
    session: int
    """Rises when messages between it and us were given up (core/sessions.py)."""
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
class Ballot:
    view: View
    waiting: set[NodeId]
    deadline: float
    histories: dict[NodeId, History] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)


@dataclass(slots=True)
class Membership:
    """Liveness of peers and agreement on views. Owns no job state."""

    ctx: Context
    votes: Votes
    expected_peers: int = 0
    """How many peers the configuration names; who they are is known only once they are heard."""
    view: View | None = None
    formed_at: float = 0.0
    met: dict[NodeId, tuple[str, int]] = field(default_factory=dict)
    """Incarnation and session of each peer when the present view was formed."""
    reborn: tuple[NodeId, ...] = ()
    """Members whose daemon was started again since the view before."""
    missed: tuple[NodeId, ...] = ()
    """Members to or from which messages were given up since the view before, or that gave it up."""
    promised: Tag = NO_TAG
    promised_at: float = -inf
    installed: Tag = NO_TAG
    """The newest view that was ours, also if it was given up since."""
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
    ballot: Ballot | None = None
    leaving: str = ""
    """Why this node goes; empty while it stays."""
    before: bool = False
    """It has been in a primary view since it was started."""
    adrift: str = ""
    """Why the last view was given up before another one was formed."""
    departed: set[NodeId] = field(default_factory=set)
    """Peers that said they were leaving and have not taken it back."""
    started: float | None = None
    next_heartbeat: float = 0.0
    beats: int = 0
    retry_at: float = 0.0
    changes: int = 0
    """Rises with whatever changes about whom this node listens to."""
    _look_at: float = -inf
    """Before that no peer can be silent for too long, or closed."""
    _idle_until: float = -inf
    """Until then, or the next change, there is no view to propose."""
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
        if self.votes.gone(node):
            self._abandon(node)
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
        """Say that we go. Until :meth:`stay` we follow no view and nobody counts on us."""
        if self.leaving:
            return
        self.ctx.log("info", "leaves the view", why=reason)
        self.leaving = reason
        self.votes.leave(self.view)
        for node in sorted(self.links):
            self.ctx.send(node, Leaving(reason))
        self._follow_none()

    def stay(self) -> None:
        """Take :meth:`leave` back: the others hear our heartbeats again and let us in."""
        if self.leaving:
            self.leaving, self.votes.owed = "", False
            for node in sorted(self.links):
                if node not in self.departed:
                    self._meet(node)

    def _follow_none(self) -> None:
        """Be as a daemon that was just started: in no view, and sure of nobody."""
        self._regrouped()
        self.view = self.ballot = None
        self.peers.clear()
        self.met = {}
        self.started = None

    def wake(self, seconds: float) -> bool:
        """This node did not run for so long that the others may have gone on without it: follow no
        view, and lead none, until they have been heard. True if it did."""
        timing = self.ctx.timing
        if self.view is None or seconds < timing.silent_floor_seconds - timing.heartbeat_seconds:
            return False
        self._step_down(f"it did not run for {seconds:.1f} s")
        self._news()
        for peer in self.peers.values():
            peer.epoch = None
        return True

    def on_leaving(self, node: NodeId, leaving: Leaving) -> None:
        self.departed.add(node)
        self.votes.leaves(node, self.view)
        if node in self.peers:
            self._bury(node, leaving.reason)

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
        self._idle_until = -inf
        self._stale = True

    def _regrouped(self) -> None:
        """Peers came or went, or the view did."""
        self._news()
        self.changes += 1
        self._living = self._suspects = None
        self._unsettled = True

    def hearing(self) -> None:
        """Links were lost or have returned: whom we listen to may be others now."""
        self._news()

    def _forget(self, node: NodeId) -> None:
        self._regrouped()
        self.peers.pop(node, None)
        self._odd.discard(node)
        self._pressed.discard(node)
        self.circle.drop(node)
        self._abandon(node)

    def _abandon(self, node: NodeId) -> None:
        """A ballot that this node can't answer any more is over."""
        if self.ballot is not None and node in self.ballot.waiting:
            self.ballot = None

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
        now, timing = self.ctx.now, self.ctx.timing
        self._listen()
        if self.leaving:
            return
        if self.started is None:
            self.started = now
        if now >= self.next_heartbeat:
            self.next_heartbeat = now + timing.heartbeat_seconds
            self._beat()
        if now >= self._look_at:
            self._look()
        self.votes.tick()
        if lost := self._lost():
            self._step_down(lost)
        self._ballot_overdue()
        self.consider()

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
        epochs = (self._epoch_of(node) for node in self._odd)
        leaders = {epoch.leader for epoch in epochs if epoch > self.epoch}
        listeners = {*self.circle.listening(self.ctx.now), *leaders}
        for node in sorted(heeded | listeners):
            peer = self.peers.get(node)
            if peer is not None and peer.down_since is None:
                self.ctx.send(node, beat if node in heeded else replace(beat, asks=False))

    def deadlines(self) -> list[float]:
        timing = self.ctx.timing
        if self.leaving:
            return []
        times = [self.next_heartbeat, *self.votes.leavers.values()]
        times += [self.damping.admit_at(n) for n in self.damping.records if n in self.peers]
        if self.ballot is not None:
            times.append(self.ballot.deadline)
        if self.bound:
            times.append(self.promised_at + 2 * timing.ballot_seconds)
        times.append(self.retry_at)
        if self.view is None and self.started is not None:
            times.append(self.started + timing.settle_seconds)
            times.append(self.started + 2 * timing.settle_seconds)
        times = [time for time in times if time > self.ctx.now]
        if self._look_at < min(times, default=inf):
            times += [time for time in map(self._over_at, self._minded()) if time > self.ctx.now]
        return times

    def _over_at(self, node: NodeId) -> float:
        """When a peer will be dead if nothing more is heard of it."""
        down_since = self.peers[node].down_since
        if down_since is not None:
            return down_since + self.ctx.timing.return_seconds
        return max(self.detector.silent_at(node, self.ctx.now), self.circle.again_at(node))

    # --- agreement --------------------------------------------------------------------------------

    @property
    def epoch(self) -> Tag:
        return self.view.epoch if self.view is not None else NO_TAG

    @property
    def parked(self) -> str:
        """Why nothing may train here now, or nothing."""
        if not self.ctx.strict:
            return ""
        if self.view is None:
            return self.adrift or "no view is formed yet"
        return "" if self.view.primary else self.view.why

    @property
    def bound(self) -> bool:
        """A newer view is promised, so that this one may begin nothing more, if only one may."""
        return self.ctx.strict and self.promised != self.epoch

    def _lost(self) -> str:
        """Why this node's view is over before it has another one, or nothing."""
        if not self.ctx.strict or self.view is None or not self.view.primary:
            return ""
        if self.bound and self.ctx.now - self.promised_at >= 2 * self.ctx.timing.ballot_seconds:
            return "a newer view was attempted and is not known to have formed"
        return self.votes.lost(self.view, {n for n in self.living() if not self._deserted(n)})

    def _deserted(self, node: NodeId) -> bool:
        """It follows a newer view than ours, and none that we were asked about."""
        epoch = self._epoch_of(node)
        return epoch > self.epoch and epoch != self.promised

    @property
    def starting(self) -> bool:
        """This daemon has followed no view yet: what it has taken over from the one before it may
        go on for a moment, as it would have without a daemon."""
        if self.installed != NO_TAG or self.started is None:
            return self.installed == NO_TAG
        return self.ctx.now - self.started < 2 * self.ctx.timing.settle_seconds

    def _step_down(self, why: str) -> None:
        """Follow no view, and lead none, until one is formed again."""
        self.ctx.log("warning", "gives up its view", epoch=str(self.epoch), why=why)
        self._regrouped()
        self.view = self.ballot = None
        self.adrift, self.next_heartbeat = why, self.ctx.now

    @property
    def leading(self) -> bool:
        return self.view is not None and self.view.leader == self.ctx.me

    def on_heartbeat(self, node: NodeId, beat: Heartbeat) -> None:
        self.ctx.saw(max(beat.counter, beat.epoch.counter))
        if self.leaving:
            return
        if node in self.departed and node in self.links:
            self.departed.discard(node)
            self._meet(node)
        peer = self.peers.get(node)
        if peer is not None:
            if peer.primary != beat.primary or peer.epoch != beat.epoch:
                self._news()
                peer.epoch, peer.primary = beat.epoch, beat.primary
                (self._odd.discard if beat.epoch == self.epoch else self._odd.add)(node)
            self.circle.asked(node, beat.asks, self.ctx.now)
            self.detector.beat(node, self.ctx.now)
        self.consider()

    def consider(self) -> None:
        """Propose a view if one is due and it is ours to propose."""
        if self.ballot is not None or self.ctx.now < self.retry_at or self.started is None:
            return
        if self.ctx.now < self._idle_until or self._led():
            return
        self._idle_until = self._next_chance()
        if any(p.down_since is not None or p.epoch is None for p in self.peers.values()):
            return
        if self.circle.undecided(self.ctx.now):
            self._idle_until = -inf
            return
        members = tuple(node for node in self.living() if not self._on_probation(node))
        if self.view is not None and members == self.view.members and not self._astray():
            return
        if self.view is None and not self.adrift and not self._settled(members):
            return
        if self._proposer(members) == self.ctx.me:
            self._idle_until = -inf
            self._propose(members)

    def _led(self) -> bool:
        """Another node leads, lives, and follows our view: the next one is for it to propose."""
        if self.view is None or self.leading:
            return False
        leader = self.peers.get(self.view.leader)
        return leader is not None and leader.down_since is None and leader.epoch == self.epoch

    def _next_chance(self) -> float:
        """When a view may be due although nothing changes until then."""
        timing = self.ctx.timing
        times = [self.damping.admit_at(node) for node in self.damping.records]
        times.append(self.formed_at + timing.ballot_seconds)
        if self.started is not None:
            times.append(self.started + timing.settle_seconds)
        return min((time for time in times if time > self.ctx.now), default=inf)

    def _on_probation(self, node: NodeId) -> bool:
        """It came and went too often, and has not been steady for long enough since."""
        inside = self.view is not None and node in self.view.members
        return not inside and self.ctx.now < self.damping.admit_at(node)

    def _astray(self) -> bool:
        """Somebody of our view is not in it any more, though all its nodes live.

        A node that was started again follows no view; where messages were given up, all that the
        leader said is to be said again.
        """
        assert self.view is not None
        if not self.leading:
            leader = self.peers.get(self.view.leader)
            if leader is None:
                return False
            gave_up = leader.epoch == NO_TAG
            return gave_up or leader.boot != self.met.get(self.view.leader, ("",))[0]
        late = self.ctx.now - self.formed_at >= self.ctx.timing.ballot_seconds
        for node, peer in self.peers.items():
            if self._on_probation(node):
                continue
            if (peer.boot, peer.session) != self.met.get(node):
                return True
            if late and peer.epoch != self.epoch:
                return True
        return False

    def _settled(self, members: tuple[NodeId, ...]) -> bool:
        assert self.started is not None
        complete = len(members) > self.expected_peers
        return complete or self.ctx.now - self.started >= self.ctx.timing.settle_seconds

    def _proposer(self, members: tuple[NodeId, ...]) -> NodeId:
        # Who may train is not to be disturbed by who may not.
        best = max((self._trains(node), self._epoch_of(node)) for node in members)[1]
        if best.leader in members and self._leads_still(best):
            return best.leader
        in_view = [n for n in members if self._epoch_of(n) == best]
        return in_view[0] if in_view else members[0]

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self.epoch, self.ctx.counter, self._trains(self.ctx.me))

    def _trains(self, node: NodeId) -> bool:
        if node == self.ctx.me:
            return self.view is not None and self.view.primary
        return self.peers[node].primary

    def _epoch_of(self, node: NodeId) -> Tag:
        return self.epoch if node == self.ctx.me else self.peers[node].epoch or NO_TAG

    def _leads_still(self, epoch: Tag) -> bool:
        """False once that leader has come back from a crash and is in no view."""
        return self._epoch_of(epoch.leader) == epoch

    def _propose(self, members: tuple[NodeId, ...]) -> None:
        ctx = self.ctx
        ctx.counter += 1
        epoch = Tag(ctx.counter, ctx.me, ctx.nonce())
        voters = tuple(sorted(self.votes.leavers.keys() & self.links.keys()))
        self._ask(View(epoch, members, primary=not self.ctx.strict, voters=voters))

    def _ask(self, view: View) -> None:
        """Ask all members for their promise; or, once it is decided, to journal the attempt."""
        ctx, others = self.ctx, {*view.members, *view.voters} - {self.ctx.me}
        ballot = Ballot(view, others, ctx.now + ctx.timing.ballot_seconds)
        ballot.histories[ctx.me] = self.votes.history
        ballot.heard += self.votes.heard()
        self._promise(view)
        self.ballot = ballot
        for node in sorted(others):
            ctx.send(node, ViewPropose(view))
        self._ballot_done()

    def on_propose(self, node: NodeId, view: View) -> None:
        ctx = self.ctx
        decided = self.ctx.strict and view.primary
        late = view.epoch != self.promised if decided else view.epoch <= self.promised
        strange = node not in self.peers or ctx.me not in view.members or self._on_probation(node)
        if self.leaving:
            strange = ctx.me not in view.voters
        if late or strange or self._would_split(node, view):
            ctx.send(node, ViewNack(view.epoch, max(ctx.counter, self.promised.counter)))
            return
        ctx.saw(view.epoch.counter)
        if self.ballot is not None and self.ballot.view.epoch < view.epoch:
            self.ballot = None
        history = self.votes.history
        self._promise(view)
        ctx.send(node, ViewAck(view.epoch, view.primary, history, self.votes.heard()))

    def _would_split(self, node: NodeId, view: View) -> bool:
        """A node from outside has met some of our view's members and not yet others: the rest is
        not to be left behind for that."""
        if self.view is None or node in self.view.members:
            return False
        left = [n for n in self.view.members if n not in view.members]
        return any(n in self.peers and self.peers[n].down_since is None for n in left)

    def on_ack(self, node: NodeId, ack: ViewAck) -> None:
        ballot = self.ballot
        if ballot is None or (ack.epoch, ack.attempted) != (ballot.view.epoch, ballot.view.primary):
            return
        ballot.histories[node] = ack.history
        ballot.heard += ack.heard
        ballot.waiting.discard(node)
        self._ballot_done()

    def on_nack(self, node: NodeId, nack: ViewNack) -> None:
        self.ctx.saw(nack.counter)
        if self.ballot is not None and self.ballot.view.epoch == nack.epoch:
            self.ballot = None
            self.retry_at = self.ctx.now + 2 * self.ctx.timing.heartbeat_seconds

    def on_form(self, node: NodeId, view: View) -> bool:
        """True if the view is new and now ours."""
        if self.leaving or view.epoch != self.promised or view.epoch <= self.installed:
            return False
        peer = self.peers.get(node)
        if peer is not None:
            # Else it would seem to have left its own view until its next heartbeat, and every
            # member that misses somebody in the view would try to replace it.
            self._news()
            peer.epoch, peer.primary = view.epoch, view.primary
        self._install(view)
        return True

    def _promise(self, view: View) -> None:
        self.promised, self.promised_at = view.epoch, self.ctx.now
        self.votes.promise(view)

    def _ballot_done(self) -> None:
        ballot = self.ballot
        if ballot is None or ballot.waiting:
            return
        self.ballot, view = None, ballot.view
        if self.ctx.strict and not view.primary:
            view = self.votes.decide(view, ballot.histories, ballot.heard)
            if view.primary:
                self._ask(view)
                return
        for node in view.members:
            self.ctx.send(node, ViewForm(view))

    def _ballot_overdue(self) -> None:
        ballot = self.ballot
        if ballot is None or self.ctx.now < ballot.deadline:
            return
        self.ballot = None
        for node in sorted(ballot.waiting):
            self.votes.gone(node)
            if node in self.peers:
                self.ctx.log("warning", "node did not answer a proposed view", node=node)
                self._pressed.add(node)
                self._news()
                self._listen()
                self.detector.hasten(node, self.ctx.now)
                self._look_at = -inf
        self.retry_at = self.ctx.now + self.ctx.timing.heartbeat_seconds

    def _install(self, view: View) -> None:
        self.ctx.saw(view.epoch.counter)
        self._regrouped()
        old = self.epoch
        self.view, self.installed, self.adrift = view, view.epoch, ""
        self.formed_at = self.ctx.now
        self.circle.form(view.members)
        self._pressed.clear()
        if self.circle.near is not None:
            self._meet_members(view)
        before = self.met
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
        self.votes.form(view)
        self._mind_the_absent(view)
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

    def _mind_the_absent(self, view: View) -> None:
        """Who is cut off may train on until it notices, if no member of its world is here."""
        first = not self.before and len(view.members) <= self.expected_peers
        for each in view.heard:
            self.ctx.hear(each.job, each.generation)
        if self.ctx.strict and view.primary and (view.away or first):
            self.ctx.quiet_at = self.ctx.now + self.ctx.timing.outlive_seconds
        self.before = self.before or view.primary
