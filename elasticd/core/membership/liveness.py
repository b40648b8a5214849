"""Which peers live, as one node hears it, and to whom it says that it lives itself.

A peer is met when it is connected, dead when it was silent for too long or closed its connection
and did not come back, and met again when it speaks. In a large view not everyone is listened to
(core/membership/circle.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from elasticd.core.context import Context
from elasticd.core.membership.attention import Attention
from elasticd.core.membership.circle import Circle
from elasticd.core.membership.damping import Damping
from elasticd.core.membership.detector import Bounds, Detector
from elasticd.core.membership.following import Following
from elasticd.core.membership.jury import Jury
from elasticd.core.membership.pulse import Pulse
from elasticd.core.membership.roll import Peer, Roll
from elasticd.core.membership.silences import Silences
from elasticd.core.words.records import View
from elasticd.core.words.views import Heartbeat, Leaving, Missing
from elasticd.types import NodeId, Tag


@dataclass(slots=True)
class Liveness:
    """The peers of one node. It follows the view that it is told to."""

    ctx: Context
    abandon: Callable[[NodeId], None]
    """Told of each node that can't answer any more what it was asked."""
    leaving: str = ""
    """Why this node goes; empty while it stays."""
    damping: Damping = field(default_factory=Damping)
    roll: Roll = field(init=False)
    following: Following = field(init=False)
    detector: Detector = field(init=False)
    circle: Circle = field(init=False)
    attention: Attention = field(init=False)
    silences: Silences = field(init=False)
    jury: Jury = field(init=False)
    pulse: Pulse = field(init=False)

    def __post_init__(self) -> None:
        ctx, timing = self.ctx, self.ctx.timing
        bounds = Bounds(timing.silent_floor_seconds, timing.silent_seconds)
        self.roll, self.circle = Roll(ctx.me), Circle(ctx.me)
        self.following = Following(self.roll)
        self.detector = Detector(bounds, timing.heartbeat_seconds)
        self.attention = Attention(ctx, self.roll, self.circle, self.detector)
        self.silences = Silences(ctx, self.attention)
        self.jury = Jury(ctx, self.attention, self._bury, self._listen)
        self.pulse = Pulse(ctx, self.attention)

    @property
    def peers(self) -> dict[NodeId, Peer]:
        return self.roll.peers

    # --- what is heard --------------------------------------------------------------------------

    def peer_up(self, node: NodeId, boot: str, address: str, session: int = 0) -> None:
        roll = self.roll
        roll.link(node, boot, address, session)
        if self.leaving:
            self._forget(node)
            self.ctx.send(node, Leaving(self.leaving))
            return
        roll.stay(node)
        peer = roll.peers.get(node)
        if peer is None or peer.run != (boot, session):
            self._forget(node)
            self._meet(node)
            return
        # The same run on another connection: nothing that was said is lost.
        self.attention.told()
        roll.doubted()
        self.silences.look_soon()
        peer.returned(address)
        self.detector.meet(node, self.ctx.now)
        self.ctx.send(node, self._heartbeat())

    def _meet(self, node: NodeId) -> None:
        self.attention.regrouped()
        before = self.roll.meet(node)
        self.ctx.departures.returned(node)
        self.attention.note(node, odd=True)
        self.detector.meet(node, self.ctx.now)
        self.silences.mind(node)
        if before is not None:
            self._note_return(node, before)
        self.ctx.send(node, self._heartbeat())

    def _note_return(self, node: NodeId, before: str) -> None:
        if before != self.roll.peers[node].boot:
            self.damping.restarted(node)
        elif wait := self.damping.flapped(node, self.ctx.now):
            self.ctx.log("info", f"{node} comes and goes: it is let in after {wait:g} s", node=node)

    def peer_down(self, node: NodeId, boot: str, reason: str) -> None:
        self.roll.unlink(node, boot)
        peer = self.roll.peers.get(node)
        if peer is None or peer.boot != boot or peer.down_since is not None:
            return
        self.attention.told()
        peer.lost(self.ctx.now, reason)
        self.roll.doubted()
        self.silences.mind(node)
        if self.ctx.now - peer.accused_at < self.ctx.timing.return_seconds:
            self.confirm_dead(node, peer.accused_of)

    def heard(self, node: NodeId) -> bool:
        """A node has spoken; whether it was taken for dead."""
        if self.leaving:
            return False
        if self.roll.silenced(node):
            self.ctx.log("info", "node speaks again", node=node)
            self._meet(node)
            return True
        peer = self.roll.peers.get(node)
        if peer is not None and peer.down_since is None:
            self.roll.heard(node)
            self.detector.heard(node, self.ctx.now)
            if self.circle.charges:
                self.circle.acquit(node)
        return False

    def on_heartbeat(self, node: NodeId, beat: Heartbeat) -> None:
        roll = self.roll
        if node in roll.departed and node in roll.links:
            roll.stay(node)
            self._meet(node)
        if node in roll.peers:
            self.follows(node, beat.epoch, beat.primary)
            self.circle.asked(node, beat.asks, self.ctx.now)
            self.detector.beat(node, self.ctx.now)

    def follows(self, node: NodeId, epoch: Tag, primary: bool) -> None:
        """A peer follows the view of that epoch, as far as we know."""
        peer = self.roll.peers[node]
        if peer.primary != primary or peer.epoch != epoch:
            self.attention.told()
            peer.follow(epoch, primary)
            self.attention.note(node, odd=epoch != self.following.epoch)

    def hearsay(self, node: NodeId, evidence: str) -> None:
        """What third nodes say of a peer that is not heard: it is told if the peer dies."""
        self.roll.testify(node, evidence)

    def confirm_dead(self, node: NodeId, why: str) -> bool:
        """A closed connection and a second witness: the peer is dead now. True if that is news."""
        peer = self.roll.peers.get(node)
        if peer is None:
            return False
        if peer.down_since is None:
            peer.accuse(self.ctx.now, why)
            return False
        self._bury(node, f"{peer.down_reason}; {why}")
        return True

    def _bury(
        self, node: NodeId, why: str, since: float | None = None, *, on_purpose: bool = False
    ) -> None:
        peer = self.roll.peers[node]
        if more := self.roll.bury(node):
            why = f"{why}; {more}"
        heard_at = self.detector.heard_at(node) if since is None else since
        seen_at = heard_at if peer.down_since is None else peer.down_since
        self.ctx.departures.note(node, seen_at, why, on_purpose=on_purpose)
        self.ctx.log("info", "node is dead", node=node, why=why)
        self._forget(node)

    def _forget(self, node: NodeId) -> None:
        self.attention.regrouped()
        self.roll.drop(node)
        self.attention.drop(node)
        self.abandon(node)

    # --- going on purpose -------------------------------------------------------------------------

    def leave(self, reason: str) -> None:
        """Say that we go. Until :meth:`stay` nobody is heard."""
        self.leaving = reason
        for node in sorted(self.roll.links):
            self.ctx.send(node, Leaving(reason))
        self.follow_none()
        self.roll.drop_all()
        self.following.forget()

    def stay(self) -> None:
        """Take :meth:`leave` back."""
        self.leaving = ""
        for node in sorted(self.roll.links):
            if node in self.roll.departed:
                self.ctx.send(node, self._heartbeat())  # it may stay, too
            else:
                self._meet(node)

    def departs(self, node: NodeId, reason: str) -> None:
        """A peer says that it goes."""
        self.roll.depart(node)
        if node in self.roll.peers:
            self._bury(node, reason, on_purpose=True)

    # --- the view that is followed ----------------------------------------------------------------

    def follow(self, view: View) -> None:
        """``view`` is ours from now on."""
        self.attention.regrouped()
        old = self.following.follow(view)
        self.attention.follow(view.members)
        if self.circle.near is not None:
            self._meet_members(view)
        self.following.compare(view, old)
        if self.circle.near is not None:
            self.following.trust(view)
        self.attention.settle(self.following.odd())
        self.beat_now()
        self.silences.look_soon()
        self._listen()

    def _meet_members(self, view: View) -> None:
        """All have promised the view just now, also those that we held for dead and do not
        watch."""
        for node in view.members:
            if self.roll.silenced(node):
                self._meet(node)

    def follow_none(self) -> None:
        """Our view is given up."""
        self.attention.regrouped()
        self.attention.form(())
        self.following.follow(None)

    def doubt(self) -> None:
        """Be sure of no peer's view until it says again which one it follows."""
        self.attention.told()
        for peer in self.roll.peers.values():
            peer.forget_view()

    def press(self, node: NodeId) -> None:
        """A peer did not answer what it was asked: listen to it, and wait less long for it."""
        self.attention.press(node)
        self.attention.told()
        self._listen()
        self.detector.hasten(node, self.ctx.now)
        self.silences.look_soon()

    # --- silence ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Find out whom to listen to."""
        if self.attention.turn():
            self.silences.look_soon()

    def on_missing(self, sender: NodeId, missing: Missing) -> None:
        if not self.leaving:
            self.jury.on_missing(sender, missing)

    def rewired(self) -> None:
        """Links were lost or have returned: whom we listen to may be others now."""
        self.attention.told()

    # --- who lives --------------------------------------------------------------------------------

    def suspects(self) -> list[NodeId]:
        return self.roll.suspects()

    def living(self) -> tuple[NodeId, ...]:
        """This node and every peer that is not known to be dead, suspects included, by name."""
        return self.roll.living()

    def state_of(self, node: NodeId) -> str:
        return self.roll.state_of(node)

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        self._listen()
        if self.leaving:
            return
        if self.pulse.due():
            self._beat()
        if self.silences.due:
            self._look()

    def beat_now(self) -> None:
        """The next heartbeat is due."""
        self.pulse.hurry()

    def _beat(self) -> None:
        if self.attention.narrow():
            self._listen()
        self.pulse.beat(self._heartbeat(), self.following.leading)

    def _look(self) -> None:
        for node in self.silences.over():
            peer = self.roll.peers[node]
            if peer.down_since is not None:
                self._bury(node, peer.down_reason)
                continue
            seconds = self.ctx.now - self.detector.heard_at(node)
            if self.attention.alone(node):
                self._bury(node, f"silent for {seconds:.1f} s")
            else:
                self.jury.accuse(node, seconds)
        self._listen()
        self.silences.looked()

    def _heartbeat(self) -> Heartbeat:
        following = self.following
        return Heartbeat(following.epoch, self.ctx.counter, following.trains(self.ctx.me))

    def deadlines(self) -> list[float]:
        """When there is something to do though nobody falls silent."""
        damping = self.damping
        times = [damping.admit_at(node) for node in damping.records if node in self.roll.peers]
        return [self.pulse.next_at, *times]
