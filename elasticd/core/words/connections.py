"""What two daemons say beside their session (docs/protocols.md §4).

A connection's own words stay on it: who opens it, whether it is live, how fast it is. Besides there
is what nodes tell for people's sake: what they are, and what happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from elasticd.core.words.codec import Words
from elasticd.types import NodeId


class Errand(bytes, Enum):
    """What a connection is for: its first byte, before TLS."""

    PEER = b"P"
    """A daemon's, to send its messages on."""
    FETCH = b"F"
    """Bulk data."""
    JOIN = b"J"
    """Of somebody who is no member yet."""
    RENEW = b"R"
    """Of a member that wants a new certificate, and nothing else."""


@dataclass(frozen=True, slots=True)
class PeerHello:
    """The first frame each way. What is compared with one's own is text that may be anything:
    whoever is refused for it is told what it was."""

    kind: ClassVar = "hello"
    node: NodeId
    boot: str
    """Names the run of the daemon."""
    address: str
    version: int = 0
    """The oldest protocol that it speaks. Daemons that know no range compare this with theirs."""
    partition: str = ""
    addresses: tuple[str, ...] | None = None
    """All that it advertises, best first; None: ``address`` only."""
    newest: int | None = None
    """The newest protocol that it speaks; None: ``version`` only."""
    release: str | None = None
    """The version of elasticd; None: one that doesn't say."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Measures an address; answered on the same connection."""

    kind: ClassVar = "ping"
    n: int


@dataclass(frozen=True, slots=True)
class Pong:
    kind: ClassVar = "pong"
    n: int


@dataclass(frozen=True, slots=True)
class MustRenew:
    """In place of a hello: the certificate that was shown is taken for nothing but to renew it."""

    kind: ClassVar = "must_renew"
    wanted: str
    """Up to this serial, in hex, they are to be renewed; the sender's own is newer."""


@dataclass(frozen=True, slots=True)
class TwinFound:
    """In place of a hello: another machine is taken for that node."""

    kind: ClassVar = "twin"
    at: str
    """Where that one is."""


@dataclass(frozen=True, slots=True)
class OpenFetch:
    """In place of a hello: the sender only wants something (bulk.py), whose fields are beside."""

    kind: ClassVar = "fetch"
    what: str = ""


@dataclass(frozen=True, slots=True)
class FetchRefused:
    """To a fetch: why there is nothing. The three answers have no name on the wire."""

    error: str


@dataclass(frozen=True, slots=True)
class FetchWaits:
    """To a fetch, every few seconds: it is being got ready. Another answer follows."""

    waits_seconds: float
    """So long already."""


@dataclass(frozen=True, slots=True)
class FetchSize:
    """To a fetch: so many bytes follow, as they are."""

    bytes: int


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What the sender is, for the list of nodes."""

    kind: ClassVar = "node_info"
    address: str
    pid: int
    chip: str
    memory_bytes: int
    version: str | None = None
    """Of elasticd; None: one that doesn't say."""
    serial: str = ""
    """Of its certificate, in hex; empty: it is of a version that can't renew it."""
    makes_members: bool = False
    """It has the authority's key."""
    addresses: tuple[str, ...] = ()
    """All that it advertises now, best first: they may change while it runs. Empty: it is of a
    version that doesn't say."""
    others: tuple[str, ...] = ()
    """Once connected: where it reaches others, since two may not know of each other's moves."""
    notifies: tuple[str, ...] = ()
    """On which events it tells people, as its ``[notify]`` says."""
    settings_refused: str = ""
    """Why its elasticd.toml as it is now is not taken; empty: it is, as far as is known."""


@dataclass(frozen=True, slots=True)
class HaveEvents:
    """Per origin, the number up to which the sender has all events; it wants those behind."""

    kind: ClassVar = "have_events"
    vector: dict[str, int]
    after: tuple[str, int] = ("", 0)
    """Origin and number of the last event that it was sent, where more are to come."""


@dataclass(frozen=True, slots=True)
class TakeEvents:
    """Events of any kind: what each must have, the log of events checks (shell/storage)."""

    kind: ClassVar = "events"
    items: tuple[dict[str, Any], ...]
    more: bool = False
    """There are more: who has taken these in asks again, for those after the last one."""


@dataclass(frozen=True, slots=True)
class PutOut:
    """Members that were put out: per name in their certificates the last serial, in hex, that is
    not taken any more. Lists merge to the larger serial.

    And which certificates of all members are old, as serials in hex; empty: none are."""

    kind: ClassVar = "put_out"
    serials: dict[str, str]
    renew: str = ""
    """Up to this one they are to be renewed."""
    refuse: str = ""
    """Up to this one they are good for that only."""


OfConnection = PeerHello | MustRenew | TwinFound | Ping | Pong
OfFetch = FetchRefused | FetchWaits | FetchSize
Aside = NodeInfo | HaveEvents | TakeEvents | PutOut

CONNECTION: Words[OfConnection] = Words(OfConnection, terse=True)
FETCH: Words[OpenFetch] = Words(OpenFetch)
OF_FETCH: Words[OfFetch] = Words(OfFetch, key="")
ASIDE: Words[Aside] = Words(Aside)
