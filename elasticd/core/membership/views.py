"""Views: on which living nodes all of them agree, and who leads them.

Two phases. A node that should lead proposes a view above every counter it has seen; each member
journals the attempt before it answers; when all have answered the view is formed and journalled
again. Who should lead is a rule that every node applies to what it hears (succession.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from elasticd.core.context import Context
from elasticd.core.membership.liveness import Liveness
from elasticd.core.membership.succession import Succession
from elasticd.core.membership.votes import Votes
from elasticd.core.words.records import Heard, View
from elasticd.core.words.views import Heartbeat, ViewAck, ViewForm, ViewNack, ViewPropose
from elasticd.recovery.quorum import History
from elasticd.types import NO_TAG, NodeId, Tag


@dataclass(slots=True)
class Ballot:
    view: View
    waiting: set[NodeId]
    deadline: float
    histories: dict[NodeId, History] = field(default_factory=dict)
    heard: list[Heard] = field(default_factory=list)


@dataclass(slots=True)
class Membership:
    """Agreement on views. Owns no job state."""

    ctx: Context
    votes: Votes
    expected_peers: int = 0
    """How many peers the configuration names; who they are is known only once they are heard."""
    liveness: Liveness = field(init=False)
    succession: Succession = field(init=False)
    promised: Tag = NO_TAG
    promised_at: float = -inf
    installed: Tag = NO_TAG
    """The newest view that was ours, also if it was given up since."""
    ballot: Ballot | None = None
    before: bool = False
    """It has been in a primary view since it was started."""
    adrift: str = ""
    """Why the last view was given up before another one was formed."""
    retry_at: float = 0.0

    def __post_init__(self) -> None:
        self.liveness = Liveness(self.ctx, self._abandon)
        self.succession = Succession(self.ctx, self.liveness, self.expected_peers)

    @property
    def view(self) -> View | None:
        return self.liveness.following.view

    @property
    def epoch(self) -> Tag:
        return self.liveness.following.epoch

    @property
    def leading(self) -> bool:
        return self.liveness.following.leading

    # --- who is gone, or goes -------------------------------------------------------------------

    def peer_down(self, node: NodeId, boot: str, reason: str) -> None:
        if self.votes.gone(node):
            self._abandon(node)
        self.liveness.peer_down(node, boot, reason)

    def _abandon(self, node: NodeId) -> None:
        """A ballot that this node can't answer any more is over."""
        if self.ballot is not None and node in self.ballot.waiting:
            self.ballot = None

    def leave(self, reason: str) -> None:
        """Say that we go. Until :meth:`stay` we follow no view and nobody counts on us."""
        if self.liveness.leaving:
            return
        self.ctx.log("info", "leaves the view", why=reason)
        self.votes.leave(self.view)
        self.liveness.leave(reason)
        # As a daemon that was just started: in no view, and sure of nobody.
        self.ballot = None
        self.succession.stop()

    def stay(self) -> None:
        """Take :meth:`leave` back: the others hear our heartbeats again and let us in."""
        if self.liveness.leaving:
            self.votes.stay()
            self.liveness.stay()

    def on_leaving(self, node: NodeId, reason: str) -> bool:
        """A peer says that it goes, over each new link again. True if the view that we lead was
        formed without it, for another reason than that, and nobody was told that one yet."""
        departures = self.ctx.departures
        news = departures.why(node) != "" and not departures.is_told(node, reason)
        self.votes.leaves(node, self.view)
        self.liveness.departs(node, reason)
        led = self.view if self.leading else None
        if news and not departures.is_told(node, reason):
            departures.note(node, departures.seen_at(node, self.ctx.now), reason, on_purpose=True)
        return news and led is not None and node not in led.members

    def wake(self, seconds: float) -> bool:
        """This node did not run for so long that the others may have gone on without it: follow no
        view, and lead none, until they have been heard. True if it did."""
        timing = self.ctx.timing
        if self.view is None or seconds < timing.silent_floor_seconds - timing.heartbeat_seconds:
            return False
        self._step_down(f"it did not run for {seconds:.1f} s")
        self.liveness.doubt()
        return True

    # --- time -------------------------------------------------------------------------------------

    def tick(self) -> None:
        self.liveness.tick()
        if self.liveness.leaving:
            return
        self.succession.start()
        self.votes.tick()
        if lost := self._lost():
            self._step_down(lost)
        self._ballot_overdue()
        self.consider()

    def deadlines(self) -> list[float]:
        timing = self.ctx.timing
        if self.liveness.leaving:
            return []
        times = [*self.liveness.deadlines(), *self.votes.leavers.values(), self.retry_at]
        if self.ballot is not None:
            times.append(self.ballot.deadline)
        if self.bound:
            times.append(self.promised_at + 2 * timing.ballot_seconds)
        times += self.succession.deadlines()
        times = [time for time in times if time > self.ctx.now]
        silences = self.liveness.silences.ends(min(times, default=inf))
        return times + [time for time in silences if time > self.ctx.now]

    # --- agreement --------------------------------------------------------------------------------

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
        deserted = self.succession.deserted
        living = {n for n in self.liveness.living() if not deserted(n, self.promised)}
        return self.votes.lost(self.view, living)

    @property
    def starting(self) -> bool:
        """This daemon has followed no view yet: what it has taken over from the one before it may
        go on for a moment, as it would have without a daemon."""
        return self.installed == NO_TAG and self.succession.is_early

    def _step_down(self, why: str) -> None:
        """Follow no view, and lead none, until one is formed again."""
        self.ctx.log("warning", "gives up its view", epoch=str(self.epoch), why=why)
        self.liveness.follow_none()
        self.liveness.beat_now()
        self.ballot, self.adrift = None, why

    def on_heartbeat(self, node: NodeId, beat: Heartbeat) -> None:
        self.ctx.saw(max(beat.counter, beat.epoch.counter))
        if not self.liveness.leaving:
            self.liveness.on_heartbeat(node, beat)
            self.consider()

    def consider(self) -> None:
        """Propose a view if one is due and it is ours to propose."""
        if self.ballot is not None or self.ctx.now < self.retry_at:
            return
        members = self.succession.due(self.promised, in_haste=bool(self.adrift))
        if members and self.succession.proposer(members) == self.ctx.me:
            self.succession.look_again()
            self._propose(members)

    def _propose(self, members: tuple[NodeId, ...]) -> None:
        ctx = self.ctx
        epoch = ctx.next_tag()
        voters = tuple(sorted(self.votes.leavers.keys() & self.liveness.roll.links.keys()))
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
        met = node in self.liveness.peers
        strange = not met or ctx.me not in view.members or self.succession.on_probation(node)
        if self.liveness.leaving:
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
        peers = self.liveness.peers
        left = [n for n in self.view.members if n not in view.members]
        return any(n in peers and peers[n].down_since is None for n in left)

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
        if self.liveness.leaving or view.epoch != self.promised or view.epoch <= self.installed:
            return False
        if node in self.liveness.peers:
            # Else it would seem to have left its own view until its next heartbeat, and every
            # member that misses somebody in the view would try to replace it.
            self.liveness.follows(node, view.epoch, view.primary)
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
            if node in self.liveness.peers:
                self.ctx.log("warning", "node did not answer a proposed view", node=node)
                self.liveness.press(node)
        self.retry_at = self.ctx.now + self.ctx.timing.heartbeat_seconds

    def _install(self, view: View) -> None:
        self.ctx.saw(view.epoch.counter)
        self.liveness.follow(view)
        self.installed, self.adrift = view.epoch, ""
        self.succession.formed()
        self.votes.form(view)
        self._mind_the_absent(view)

    def _mind_the_absent(self, view: View) -> None:
        """Who is cut off may train on until it notices, if no member of its world is here."""
        first = not self.before and len(view.members) <= self.expected_peers
        for each in view.heard:
            self.ctx.hear(each.job, each.generation)
        if self.ctx.strict and view.primary and (view.away or first):
            self.ctx.mind_the_absent()
        self.before = self.before or view.primary
