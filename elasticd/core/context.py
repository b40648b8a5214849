"""What the parts of one node's control plane share: the clock's reading, the outbox, who we are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from elasticd.core.words.effects import Effect, Emit, Log, Persist, Send
from elasticd.core.words.limits import clipped
from elasticd.core.words.messages import Message
from elasticd.core.words.records import Path
from elasticd.recovery.links import ANY_HOST
from elasticd.types import NO_SECRET, NO_TAG, JobId, NodeId, NodeRole, Secret, Tag


@dataclass(frozen=True, slots=True)
class Timing:
    """Every duration that the control plane waits for, in seconds."""

    heartbeat_seconds: float = 0.25
    silent_floor_seconds: float = 1.5
    silent_seconds: float = 1.95
    """A peer that was not heard for so long is dead: in between as its pace lets expect
    (core/membership/detector.py)."""
    return_seconds: float = 2.0
    """A peer whose connection closed and that does not return for this long is dead."""
    settle_seconds: float = 3.0
    """A starting node waits this long for the peers it was told of before it forms a smaller
    view."""
    ballot_seconds: float = 1.0
    """A member that does not answer a proposed view for this long is left out of the next one."""
    adopt_seconds: float = 3.0
    """A child that does not come back to its restarted daemon for this long is ended."""
    outlive_seconds: float = 40.0
    """A trainer whose daemon stands still, or can't know yet that it is cut off, ends before (30 s
    after its daemon's last word)."""
    holding_seconds: float = 5.0
    """A trainer that does not say what it holds for this long is hung, and killed."""
    form_seconds: float = 15.0
    """A ring that does not come up for this long is tried again."""
    greet_seconds: float = 6.0
    """Whoever has connected to a rank of a ring that comes up shows for so long that it is its
    neighbour, or is a stranger."""
    load_seconds: float = 600.0
    hang_seconds: float = 15.0
    """A reduction to which every member has delivered may stand still for this long."""
    start_seconds: float = 30.0
    """A first world waits this long for trainers that still start."""
    restore_seconds: float = 20.0
    """A restore waits this long for nodes that may hold something newer."""
    yield_seconds: float = 600.0
    """A job with too few members keeps its turn for so long if steps would be lost with it."""
    bench_seconds: float = 10.0
    """A newcomer that could not take the state is not let in for this long."""
    retry_seconds: float = 1.0
    """Between attempts at what failed for a reason that may pass: an archive, a copied shard."""
    unfit_seconds: float = 60.0
    """A node that the job can't run on is tried again after so long, then after twice as long."""
    slow_seconds: float = 600.0
    """A straggler that was dropped is tried again after so long."""
    together_seconds: float = 5.0
    """A newcomer that could enter waits this long for others that are being prepared."""
    write_seconds: float = 60.0
    """A member that does not report its part of a checkpoint for so long after the
    first report is done without: its disk may hang."""
    summary_seconds: float = 0.1
    gather_seconds: float = 0.1
    """In a large view a leader hears of links at most so often from each member."""


@dataclass(slots=True)
class Reach:
    """How this node reaches others, as far as it knows."""

    hosts: tuple[str, ...] = ()
    """Its own addresses, without ports, best first."""
    paths: dict[NodeId, tuple[Path, ...]] = field(default_factory=dict)
    """How others are reached at each of their addresses."""
    deaf: set[NodeId] = field(default_factory=set)
    """Nodes that are not heard directly but live."""

    def learn(self, node: NodeId, paths: tuple[Path, ...]) -> None:
        """How a node is reached now."""
        self.paths[node] = paths

    def lost(self, node: NodeId, *, connected: bool) -> None:
        """A node is heard only through others now."""
        self.deaf.add(node)
        if not connected:
            self.cut(node)

    def cut(self, node: NodeId) -> bool:
        """There is no connection with a node any more: if it lives, all of its addresses are dead.
        Whether that is so."""
        if node not in self.deaf:
            return False
        known = self.paths.get(node, ())
        self.paths[node] = tuple(replace(path, healthy=False) for path in known)
        return True

    def hears(self, node: NodeId) -> None:
        """A node is heard directly, or it is another run of it."""
        self.deaf.discard(node)

    def ways(self) -> tuple[Path, ...]:
        """What this node can say of the links to others."""
        known = {**self.paths, **{n: self._deaf_ways(n) for n in self.deaf}}
        return tuple(path for node in sorted(known) for path in known[node])

    def _deaf_ways(self, node: NodeId) -> tuple[Path, ...]:
        """The first address that is well is the one in use: where nothing is heard another one is
        to be tried. Where a dead one is known, that was done: this one has to prove itself."""
        known = self.paths.get(node, ())
        if len(known) < 2:
            return (Path(node, ANY_HOST, False),)
        if all(path.healthy for path in known):
            return (replace(known[0], healthy=False), *known[1:])
        return known


@dataclass(slots=True)
class Departures:
    """Nodes that have left the view: when the first sign of it was seen, and what it was."""

    first_signs: dict[NodeId, tuple[float, str]] = field(default_factory=dict)
    on_purpose: set[NodeId] = field(default_factory=set)
    """Those that have said that they go, and are not back."""
    quiet_at: float = -inf
    """Until then a trainer that is cut off from us may still run, if at most one side may."""

    def note(self, node: NodeId, seen_at: float, why: str, *, on_purpose: bool = False) -> None:
        self.first_signs[node] = seen_at, why
        if on_purpose:
            self.on_purpose.add(node)

    def returned(self, node: NodeId) -> None:
        """It is here again: it may be lost another time."""
        self.on_purpose.discard(node)

    def seen_at(self, node: NodeId, now: float) -> float:
        """When the first sign was seen; ``now`` where none is known."""
        return self.first_signs.get(node, (now, ""))[0]

    def why(self, node: NodeId) -> str:
        """The first sign of it; empty where none is known."""
        return self.first_signs.get(node, (0.0, ""))[1]

    def is_told(self, node: NodeId, why: str) -> bool:
        """Whether that is the first sign of it, also with what others said behind it."""
        known = self.why(node)
        return known == why or known.startswith(f"{why}; ")

    def farewell(self, node: NodeId) -> str:
        """A sentence about it."""
        why = self.why(node)
        return f"{node} left the view: {why}" if why else f"{node} left the view"


@dataclass(frozen=True, slots=True)
class Station:
    """What this node is among the others, as elasticd.toml says."""

    domain: str = ""
    """What fails with it: a power strip, a switch. Empty: nothing that is known."""
    role: NodeRole = "train"
    """What it does at most."""
    chip: str = ""
    """What it computes with, which the system says; empty: not known."""

    @property
    def trains(self) -> bool:
        """Whether jobs may run here at all."""
        return self.role == "train"

    @property
    def holds(self) -> bool:
        """Whether it may hold anything of a job."""
        return self.role != "witness"

    @property
    def idle(self) -> str:
        """Why no job ever runs here, or nothing."""
        return "" if self.trains else f"its role is {self.role}"


@dataclass(slots=True)
class Context:
    """Given to every part; ``now`` is set before each event and never read from a clock here."""

    me: NodeId
    nonce: Callable[[], str]
    timing: Timing = field(default_factory=Timing)
    now: float = 0.0
    """Monotonic seconds."""
    wall: float = 0.0
    """Unix seconds, for people only: no decision depends on it."""
    effects: list[Effect] = field(default_factory=list)
    inbox: deque[Message] = field(default_factory=deque)
    counter: int = 0
    """The highest counter of any epoch or generation seen; the next one is above it."""
    children: int = 0
    station: Station = field(default_factory=Station)
    reach: Reach = field(default_factory=Reach)
    departures: Departures = field(default_factory=Departures)
    strict: bool = False
    """``partition = "strict"``: at most one view trains."""
    heard: dict[JobId, Tag] = field(default_factory=dict)
    """The newest world of each job that this node has heard of."""
    secret: Callable[[], Secret] = lambda: NO_SECRET
    """Draws what only one world's members are told; empty where nothing is drawn."""

    def begin(self, now: float, wall: float) -> None:
        """An event has come."""
        self.now, self.wall, self.effects = now, wall, []

    def next_message(self) -> Message:
        """What this node has said to itself."""
        return self.inbox.popleft()

    def send(self, to: NodeId, message: Message) -> None:
        if to == self.me:
            self.inbox.append(message)
        else:
            self.effects.append(Send(to, message))

    def do(self, effect: Effect) -> None:
        self.effects.append(effect)

    def persist(self, kind: str, record: Any) -> None:
        self.effects.append(Persist(kind, record))

    def emit(
        self,
        kind: str,
        reason: str,
        job: JobId | None = None,
        generation: int | None = None,
        **fields: Any,
    ) -> None:
        self.effects.append(Emit(job, kind, clipped(reason), generation, fields))

    def log(self, level: Any, text: str, **fields: Any) -> None:
        self.effects.append(Log(level, text, fields))

    def saw(self, counter: int) -> None:
        self.counter = max(self.counter, counter)

    def next_tag(self) -> Tag:
        """For a view or world of ours, above all that were seen."""
        self.counter += 1
        return Tag(self.counter, self.me, self.nonce())

    def learn(self, node: NodeId, paths: tuple[Path, ...]) -> None:
        """How a node is reached now; of this one the addresses that it has, if there are any."""
        if node != self.me:
            self.reach.learn(node, paths)
        elif paths:
            self.reach.hosts = tuple(path.host for path in paths)

    def mind_the_absent(self) -> None:
        """Trainers that are cut off may run on for a while."""
        self.departures.quiet_at = self.now + self.timing.outlive_seconds

    def hear(self, job: JobId, generation: Tag) -> None:
        self.heard[job] = max(self.heard.get(job, NO_TAG), generation)

    def over(self, job: JobId) -> None:
        """The job has ended: no world of it is formed any more."""
        self.heard.pop(job, None)

    def took_over(self, children: Iterable[int]) -> None:
        """These numbers are given already."""
        self.children = max(children, default=0)

    def next_child(self) -> int:
        self.children += 1
        return self.children
