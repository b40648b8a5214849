"""Whom of all nodes it is to tell people what has happened (``[notify]`` in elasticd.toml). Pure.

Every node has the events, so each of them comes to the same: the leader of the view tells, if its
elasticd.toml says how, else the first other member by name. Who begins says so by an event, and
when it is told. So nobody else tells it, unless that node dies in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticd.core.words.limits import in_short
from elasticd.types import NodeId

AGE_SECONDS = 600.0
"""What happened longer ago is told of no more."""
SETTLE_SECONDS = 2.0
"""Who doesn't lead waits so long: it may be about to hear that another one tells."""
_KEPT_NOTICES = 1000

TELLING, TOLD, UNTOLD = "notifying", "notified", "notify_failed"
"""Kinds of events: a node is about to tell, it has told, it can't. Their ``notice`` says what."""
_TELLS = {
    "job_finished": "job_finished",
    "job_failed": "job_failed",
    "job_parked": "parked",
    "node_lost": "node_lost",
}
_OF_A_JOB = {
    "job_finished": "{} has finished: {}",
    "job_failed": "{} has failed: {}",
    "job_parked": "{} waits: {}",
}


@dataclass(frozen=True, slots=True)
class PeopleNotice:
    """One thing that people are to be told once."""

    key: str
    """The same on all nodes, and for all events that tell of the same thing."""
    event: str
    """As ``[notify]`` names it."""
    time: float
    sentence: str
    job: str | None
    node: str


@dataclass(frozen=True, slots=True)
class Around:
    """What a node knows of the others now. ``told``: of what each tells that is there."""

    me: NodeId
    leader: NodeId | None
    told: Mapping[NodeId, tuple[str, ...]]


@dataclass(slots=True)
class NoticeBook:
    """What there was to tell, and who does."""

    _notices: dict[str, PeopleNotice] = field(default_factory=dict)
    _seen_at: dict[str, float] = field(default_factory=dict)
    _happened: dict[str, float] = field(default_factory=dict)
    """When, by the clock that ``now`` is of: nodes have others."""
    _tellers: dict[str, NodeId] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _unable: dict[str, set[NodeId]] = field(default_factory=dict)
    _worlds: dict[str, int] = field(default_factory=dict)
    """The newest generation of each job that was told of."""
    _joined: dict[str, float] = field(default_factory=dict)
    """When each node was last told to have joined."""

    def see(self, event: Mapping[str, Any], now: float, ago: float = 0.0) -> None:
        """An event, in the order of time; ``ago``: how long ago it happened."""
        kind = event.get("kind")
        if kind == "world_formed":
            job = str(event["job"])
            self._worlds[job] = max(int(event.get("generation") or 0), self._worlds.get(job, 0))
        elif kind == "node_joined":
            self._joined[str(event["node"])] = float(event["time"])
        elif kind in (TELLING, TOLD, UNTOLD):
            self._heard(str(kind), str(event.get("notice")), NodeId(str(event["node"])))
        elif isinstance(kind, str) and kind in _TELLS:
            self._add(self._notice(event, kind), now, now - max(0.0, ago))

    def mine(self, around: Around, now: float) -> Iterator[PeopleNotice]:
        """What this node is to tell now, or to go on with."""
        for key, notice in list(self._notices.items()):
            if key in self._told or self._is_old(key, now):
                continue
            waits = now - self._seen_at[key] < SETTLE_SECONDS and around.me != around.leader
            if not waits and self._teller(notice, around) == around.me:
                yield notice

    def waits(self, now: float) -> bool:
        """Whether somebody may yet have to tell something."""
        return any(key not in self._told and not self._is_old(key, now) for key in self._notices)

    def _is_old(self, key: str, now: float) -> bool:
        return now - self._happened[key] > AGE_SECONDS

    def _teller(self, notice: PeopleNotice, around: Around) -> NodeId | None:
        unable = self._unable.get(notice.key, ())
        able = [n for n, told in around.told.items() if notice.event in told and n not in unable]
        if (begun := self._tellers.get(notice.key)) in able:
            return begun
        return min(able, key=lambda node: (node != around.leader, node), default=None)

    def _heard(self, kind: str, key: str, node: NodeId) -> None:
        if kind == TELLING:
            self._tellers[key] = node
        elif kind == TOLD:
            self._told.add(key)
        else:
            self._unable.setdefault(key, set()).add(node)

    def _notice(self, event: Mapping[str, Any], kind: str) -> PeopleNotice:
        job, node, reason = event.get("job"), str(event["node"]), str(event.get("reason", ""))
        name = _TELLS[kind]
        if kind == "job_parked":  # its leaders may say so one after the other
            key = f"{name}/{job}/{self._worlds.get(str(job), 0)}"
        elif kind == "node_lost":
            key = f"{name}/{node}/{self._joined.get(node, 0.0):.3f}"
        else:
            key = f"{name}/{job}"
        reason = in_short(reason) or ""  # not all that a script has printed last
        sentence = _OF_A_JOB[kind].format(job, reason) if kind in _OF_A_JOB else reason
        return PeopleNotice(key, name, float(event["time"]), sentence, job, node)

    def _add(self, notice: PeopleNotice, now: float, happened: float) -> None:
        self._notices.setdefault(notice.key, notice)
        self._seen_at.setdefault(notice.key, now)
        self._happened.setdefault(notice.key, happened)
        for key in _oldest(self._notices, len(self._notices) - _KEPT_NOTICES):
            kept = self._notices, self._seen_at, self._happened, self._tellers, self._unable
            for each in kept:
                each.pop(key, None)
            self._told.discard(key)


def _oldest(notices: Iterable[str], count: int) -> list[str]:
    return [key for key, _ in zip(notices, range(count), strict=False)]
