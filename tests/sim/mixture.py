"""A cluster whose nodes run several versions: who speaks with whom, and what must last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from elasticd.core.node import Node
from elasticd.core.recall import KINDS
from elasticd.core.words import effects as e
from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.frames import Frame, decode_frame, encode_frame
from elasticd.core.words.hearers import UNSAID, Hearers
from elasticd.core.words.messages import Message, decode, encode
from elasticd.core.words.records import JobRecord, NodeRecord
from elasticd.core.words.versions import OLDEST
from elasticd.core.words.views import Carry
from elasticd.errors import ProtocolError
from elasticd.recovery.fitness import Unfit
from elasticd.recovery.unknown import Unknown
from elasticd.shell.network.hello import Hello, Identity, Refused
from elasticd.types import NodeId

from .releases import (
    ANCIENT,
    BEFORE,
    LATER,
    LATER_KINDS,
    MARK,
    RELEASES,
    Release,
)

if TYPE_CHECKING:
    from .cluster import Cluster, Setup
    from .host import Host

Kept = JobRecord | NodeRecord
_MOODS = ("suspended", "shared", "frozen")
"""Values of a closed set that the present version doesn't have."""


@dataclass(frozen=True, slots=True)
class LaterWords(e.Retry):
    """Not of the core: the version to come writes a field of its own into a record."""

    record: Kept | None = None


class LaterNode(Node):
    """The version to come, as far as it writes what the present one doesn't know."""

    def _take(self, event: e.Event) -> None:
        if not isinstance(event, LaterWords):
            super()._take(event)
        elif isinstance(event.record, JobRecord):
            self.tables.jobs.update(event.record)
        elif event.record is not None:
            self.tables.nodes.update(event.record)


@contextmanager
def story_of(setup: Setup) -> Iterator[None]:
    """While it lasts the kinds of the version to come are marked as the core would mark them."""
    kinds: tuple[Any, ...] = LATER_KINDS if setup.releases else ()
    for kind in kinds:
        kind.since = LATER
    try:
        yield
    finally:
        for kind in kinds:
            del kind.since


@dataclass(slots=True)
class Mixture:
    """Which node runs what. Without ``Setup.releases`` all run the present version, and nothing is
    encoded that would not be anyhow."""

    cluster: Cluster
    written: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By kind and id of a record, the fields that the version to come has on some disk."""
    had: dict[tuple[NodeId, str, str], set[str]] = field(default_factory=dict)
    """The same of each node's own disk, by name."""
    boots: dict[str, Release] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of two runs of daemons, why the first one refuses the second."""
    later: int = 0

    @property
    def mixed(self) -> bool:
        return bool(self.cluster.setup.releases)

    # --- builds -----------------------------------------------------------------------------------

    def begin(self) -> None:
        for host, name in zip(
            self.cluster.hosts.values(), self.cluster.setup.releases, strict=False
        ):
            host.release = host.next_release = RELEASES[name]

    def node_type(self, host: Host) -> type[Node]:
        """A daemon is about to start there, of the build that is installed now."""
        if not self.mixed:
            return self.cluster.setup.node_type
        host.release = host.next_release
        self.boots[host.boot] = host.release
        host.hearers = Hearers(newest=host.release.spoken.newest)
        host.disk.journal = [self._reread(host.release, *each) for each in host.disk.journal]
        self.cluster.say(host.name, f"is of version {host.release.name}")
        return LaterNode if host.release.is_later else Node

    def _reread(self, release: Release, kind: str, record: Any) -> tuple[str, Any]:
        """What the build makes of what another one has written."""
        if not isinstance(record, Kept):
            return kind, release.cut(record)
        return kind, release.read(from_plain(KINDS[kind], to_plain(record)))

    # --- connections ------------------------------------------------------------------------------

    def agree(self, a: Host, b: Host) -> bool:
        """Whether two daemons become peers, by what they say in their hellos."""
        if not self.mixed:
            return True
        found = [self._hello(a, b), self._hello(b, a)]
        if None in found and found != [None, None]:
            self._broken(f"of {a.name} and {b.name} one refuses the other, who does not")
        return None not in found

    def _hello(self, me: Host, other: Host) -> Hello | None:
        mine, theirs = _identity(me), _identity(other)
        try:
            hello = mine.check(theirs.frame())
        except Refused as error:
            self._was_refused(me, other, str(error))
            return None
        if (me.release is ANCIENT) != (other.release is ANCIENT):
            text = f"{me.name} ({me.release.name}) takes {other.name} ({other.release.name})"
            self._broken(f"{text} for a peer")
        # Of two that are ancient the present core, which both run, would say nothing at all.
        me.hearers.met(other.name, max(hello.protocol, OLDEST))
        return hello

    def _was_refused(self, me: Host, other: Host, reason: str) -> None:
        if self.refused.setdefault((me.boot, other.boot), reason) != reason:
            self._broken(f"{me.name} refuses {other.name} for {reason} now")
        older = [each.name for each in (me, other) if each.release is ANCIENT]
        if len(older) != 1 or not reason.endswith(f"upgrade '{older[0]}'"):
            self._broken(f"{me.name} refuses {other.name}: {reason}")
        self.cluster.say(me.name, f"refuses {other.name}: {reason}")
        self.cluster.seen["refused"] += 1

    # --- messages ---------------------------------------------------------------------------------

    def passed(self, sender: Host, to: Host, frame: Frame) -> Frame:
        """A frame as it comes, or as nothing may be sent."""
        fitting = frame
        # A carrier passes on what it doesn't look into.
        if not isinstance(frame.message, Carry) or frame.message.source == sender.name:
            fitting = sender.hearers.fitting(to.name, frame)
        if fitting is not frame:
            self.cluster.seen["unsaid"] += 1
            if isinstance(fitting.message, Carry):  # what says nothing there is of this build, too
                inside = encode_frame(sender.release.cut(decode_frame(fitting.message.frame)))
                fitting = replace(fitting, message=replace(fitting.message, frame=inside))
        try:
            heard = decode_frame(sender.release.says(fitting))
            to.release.hears(heard, to.name, to.boot)
        except ProtocolError as error:
            self._broken(f"{to.name} ends its connection with {sender.name}: {error}")
        return heard

    def heard(self, sender: Host, boot: str, to: NodeId, message: Message) -> Message:
        """What that run of a daemon will hear of a message, for those who look for it."""
        release = self.boots.get(boot)
        if not self.mixed or release is None:
            return message
        if isinstance(message, LATER_KINDS) and sender.hearers.protocols.get(to, 0) < LATER:
            message = UNSAID
        changed: Message = release.read(decode(encode(sender.release.cut(message))))
        return changed

    # --- records ----------------------------------------------------------------------------------

    def write(self, host: Host, record: Kept) -> None:
        """The version to come writes something into a record."""
        self.later += 1
        number = self.later
        said = {
            "mood": _MOODS[number % len(_MOODS)], "levels": [number, number / 4, None, True],
            "raw": bytes([number % 256, 0]), "who": {"node": host.name},
        }  # fmt: skip
        unknown = Unknown.of({**dict(record.unknown.fields), f"{MARK}{number}": said})
        self.cluster.say(host.name, f"writes {MARK}{number} into {_id(record)[1]}")
        event = LaterWords(0, _NO_JOB, record=replace(record, unknown=unknown))
        host.post(event)

    def persisted(self, host: Host, record: Any) -> None:
        """The record is on the host's disk."""
        if not self.mixed or not isinstance(record, Kept):
            return
        kind, name = _id(record)
        fields = _marked(record)
        known = self.written.setdefault((kind, name), {})
        had = self.had.setdefault((host.name, kind, name), set())
        if lost := had - fields.keys():
            self._broken(f"{host.name} has lost {sorted(lost)} of {name}")
        had.update(fields)
        for key, value in fields.items():
            if repr(known.setdefault(key, value)) != repr(value):
                self._broken(f"{host.name} has {key} of {name} as {value}, not {known[key]}")

    def lost_journal(self, host: Host) -> None:
        """What its disk had does not bind it any more: others have it, or it is gone."""
        for key in [key for key in self.had if key[0] == host.name]:
            had, (_, *of) = self.had.pop(key), key
            others = {
                told for (_, *its), told_of in self.had.items() if its == of for told in told_of
            }
            for gone in had - others:
                self.written[key[1], key[2]].pop(gone, None)

    def missing(self) -> str:
        """What some living node lacks of what the version to come has written, or nothing."""
        for (kind, name), fields in self.written.items():
            for host in self.cluster.living():
                assert host.node is not None
                records: Any = host.node.records
                if kind == "node":
                    records = host.node.tables.nodes.records
                found = _marked(records[name]) if name in records else {}
                for key, value in fields.items():
                    if repr(found.get(key)) != repr(value):
                        return f"{host.name} has lost {key} of {name}: {found.get(key)}"
        return ""

    def same(self, records: Sequence[Any]) -> bool:
        """Whether these are alike, but for what some of their builds don't know."""
        if not self.mixed or all(each == records[0] for each in records):
            return all(each == records[0] for each in records)
        seen = [BEFORE.cut(each) for each in records]
        seen = [each and _without_aside(each) for each in seen]
        if len({each.relief_turn for each in records if isinstance(each, JobRecord)}) > 1:
            # That memory was given back is not known to builds which count no turns.
            seen = [each and replace(each, relief=0) for each in seen]
        return all(each == seen[0] for each in seen)

    def _broken(self, text: str) -> None:
        self.cluster.checkers.broken(text)


_NO_JOB: Any = ""


def _identity(host: Host) -> Identity:
    release = host.release
    return Identity(host.name, host.boot, f"{host.name}:1", spoken=release.spoken,
                    release=release.name)  # fmt: skip


def _id(record: Kept) -> tuple[str, str]:
    return ("job", record.id) if isinstance(record, JobRecord) else ("node", record.node)


def _without_aside(record: Any) -> Any:
    """What it keeps aside is only what the version to come says; in its entries, too."""
    unknown = Unknown.of(_marked(record))
    if not isinstance(record, JobRecord):
        return replace(record, unknown=unknown)
    unfit = tuple(replace(each, unknown=Unknown.of(_marked(each))) for each in record.unfit)
    return replace(record, unknown=unknown, unfit=unfit)


def _marked(record: Kept | Unfit) -> dict[str, Any]:
    return {name: held for name, held in record.unknown.fields if name.startswith(MARK)}
