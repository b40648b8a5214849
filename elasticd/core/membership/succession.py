"""When another view is due, and who is to propose it.

A rule that every node applies to what it hears: the leader of the highest view among the living, if
it lives itself, else the first living node of that view by name. Nobody proposes while it is open
whether a suspect lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from elasticd.core.context import Context
from elasticd.core.membership.liveness import Liveness
from elasticd.core.words.records import View
from elasticd.types import NO_TAG, NodeId, Tag


@dataclass(slots=True)
class Succession:
    """Looks only; views.py proposes."""

    ctx: Context
    liveness: Liveness
    expected_peers: int = 0
    started: float | None = None
    """When this node began to look for others; None: it does not."""
    formed_at: float = 0.0
    """When the present view was formed."""
    _idle_until: float = -inf
    """Until then, or the next news, there is no view to propose."""
    _news: int = 0
    """Of whom lives, when that was found."""

    @property
    def _view(self) -> View | None:
        return self.liveness.following.view

    def start(self) -> None:
        if self.started is None:
            self.started = self.ctx.now

    def stop(self) -> None:
        """We go: as a node that was just started."""
        self.started = None

    def formed(self) -> None:
        """A view is ours now."""
        self.formed_at = self.ctx.now

    @property
    def is_early(self) -> bool:
        """It has not looked for others for long."""
        waited = 0.0 if self.started is None else self.ctx.now - self.started
        return waited < 2 * self.ctx.timing.settle_seconds

    # --- when -------------------------------------------------------------------------------------

    def due(self, promised: Tag, in_haste: bool) -> tuple[NodeId, ...]:
        """The members of a view that is due now; nobody: none is, or that is open. ``promised`` is
        the newest view that was; ``in_haste``: the last one was given up."""
        news = self.liveness.attention.news
        idle = self._news == news and self.ctx.now < self._idle_until
        if self.started is None or idle or self._led():
            return ()
        self._news, self._idle_until = news, self._next_chance()
        if any(p.down_since is not None or p.epoch is None for p in self.liveness.peers.values()):
            return ()
        if self.liveness.circle.undecided(self.ctx.now):
            self.look_again()
            return ()
        members = tuple(node for node in self.liveness.living() if not self.on_probation(node))
        if self._view is None:
            return members if in_haste or self._settled(members) else ()
        return members if members != self._view.members or self._astray(promised) else ()

    def look_again(self) -> None:
        """At once, whatever happens."""
        self._idle_until = -inf

    def _led(self) -> bool:
        """Another node leads, lives, and follows our view: the next one is for it to propose."""
        view = self._view
        if view is None or self.liveness.following.leading:
            return False
        leader = self.liveness.peers.get(view.leader)
        return leader is not None and leader.down_since is None and leader.epoch == view.epoch

    def _next_chance(self) -> float:
        """When a view may be due although nothing changes until then."""
        timing = self.ctx.timing
        times = [self.liveness.damping.admit_at(node) for node in self.liveness.damping.records]
        times.append(self.formed_at + timing.ballot_seconds)
        if self.started is not None:
            times.append(self.started + timing.settle_seconds)
        return min((time for time in times if time > self.ctx.now), default=inf)

    def _settled(self, members: tuple[NodeId, ...]) -> bool:
        """All whom the configuration names are there, or had their time to come."""
        assert self.started is not None
        complete = len(members) > self.expected_peers
        return complete or self.ctx.now - self.started >= self.ctx.timing.settle_seconds

    def _astray(self, promised: Tag) -> bool:
        """Somebody of our view is not in it any more, though all its nodes live.

        A node that was started again follows no view; where messages were given up, all that the
        leader said is to be said again.
        """
        view, met = self._view, self.liveness.following.met
        assert view is not None
        if not self.liveness.following.leading:
            leader = self.liveness.peers.get(view.leader)
            if leader is None:
                return False
            gone = leader.epoch == NO_TAG or self.deserted(view.leader, promised)
            return gone or leader.boot != met.get(view.leader, ("",))[0]
        late = self.ctx.now - self.formed_at >= self.ctx.timing.ballot_seconds
        for node, peer in self.liveness.peers.items():
            if self.on_probation(node):
                continue
            if peer.run != met.get(node):
                return True
            if late and peer.epoch != view.epoch:
                return True
        return False

    def deserted(self, node: NodeId, promised: Tag) -> bool:
        """It follows a newer view than ours, and none that we were asked about."""
        epoch = self.liveness.following.epoch_of(node)
        return epoch > self.liveness.following.epoch and epoch != promised

    def on_probation(self, node: NodeId) -> bool:
        """It came and went too often, and has not been steady for long enough since."""
        inside = self._view is not None and node in self._view.members
        return not inside and self.ctx.now < self.liveness.damping.admit_at(node)

    def deadlines(self) -> list[float]:
        """While there is no view: when others have had their time."""
        if self._view is not None or self.started is None:
            return []
        settle_seconds = self.ctx.timing.settle_seconds
        return [self.started + settle_seconds, self.started + 2 * settle_seconds]

    # --- who --------------------------------------------------------------------------------------

    def proposer(self, members: tuple[NodeId, ...]) -> NodeId:
        """Who of these is to propose the view. Who may train is not to be disturbed by who may
        not."""
        trains, epoch_of = self.liveness.following.trains, self.liveness.following.epoch_of
        best = max((trains(node), epoch_of(node)) for node in members)[1]
        # That leader may have come back from a crash, and be in no view.
        if best.leader in members and epoch_of(best.leader) == best:
            return best.leader
        in_view = [n for n in members if epoch_of(n) == best]
        return in_view[0] if in_view else members[0]
