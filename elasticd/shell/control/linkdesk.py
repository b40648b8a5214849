"""Measures this node's links, and has others measure theirs (docs/protocols.md §4)."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

from elasticd.core.words.bulk import OfLinks, WantDoor, WantLinks
from elasticd.core.words.records import Path
from elasticd.errors import ElasticdError, OperationError
from elasticd.preflight.links import LinkSeen
from elasticd.shell.clock import monotonic_seconds
from elasticd.shell.control.answers import fetched, file_with, told_by, trained
from elasticd.shell.control.gauge import CONNECT_SECONDS, knock, open_door
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.network.wall import CURE, Wall
from elasticd.types import JobId, NodeId

MAX_PATHS = 4
"""Of a peer's addresses so many are measured."""
LINK_SECONDS = 30.0
"""For all addresses of one peer."""
_WORD_BYTES = 16

Knock = Callable[[str, int, bytes], Awaitable[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class LinkDesk:
    """One node's.

    Attributes:
        paths_of: how this node reaches another.
        hosts: where this one is reached.
        trains: the jobs that have processes here now.
    """

    neighbours: Neighbours
    paths_of: Callable[[NodeId], Sequence[Path]]
    hosts: Callable[[], Sequence[str]]
    trains: Callable[[], Sequence[JobId]]
    knock: Knock = knock
    open: Callable[[str, bytes], int] = open_door

    async def serve(self, wanted: OfLinks) -> int:
        """A descriptor of what another node asks for; the caller closes it.

        Raises:
            OperationError: it can't have that.
        """
        match wanted:
            case WantDoor(host, word, busy):
                return file_with(self._door(host, word, busy))
            case WantLinks(peer, busy):
                return file_with(await self._own(peer, busy))
            case _:
                assert_never(wanted)

    async def measured(self, node: NodeId, peer: NodeId, *, busy: bool) -> list[LinkSeen]:
        """How ``node`` reaches ``peer``, at each of its addresses."""
        try:
            wanted, kind = WantLinks(peer, busy), tuple[LinkSeen, ...]
            own = partial(self._own, peer, busy)
            return [*await told_by(self.neighbours, node, wanted, kind, own, LINK_SECONDS)]
        except TimeoutError:
            return [LinkSeen(node, peer, error=f"{node} has not measured it in {LINK_SECONDS:g} s")]
        except (ElasticdError, OSError, ValueError) as error:
            return [LinkSeen(node, peer, error=str(error))]

    async def _own(self, peer: NodeId, busy: bool) -> list[LinkSeen]:
        me = self.neighbours.me
        if not busy and (job := trained(self.trains)):
            return [LinkSeen(me, peer, trains=job)]
        paths = self.paths_of(peer)[:MAX_PATHS]
        if not paths:
            return [LinkSeen(me, peer, error="their daemons are not connected")]
        return [await self._at(peer, path.host, busy) for path in paths]

    async def _at(self, peer: NodeId, host: str, busy: bool) -> LinkSeen:
        me, began, port = self.neighbours.me, monotonic_seconds(), 0
        try:
            word = secrets.token_hex(_WORD_BYTES)
            door = await fetched(self.neighbours, peer, WantDoor(host, word, busy), dict[str, Any])
            if "trains" in door:
                return LinkSeen(me, peer, host, trains=str(door["trains"]))
            port = int(door["port"])
            began = monotonic_seconds()
            speed, trip = await self.knock(host, port, word.encode())
        except TimeoutError:
            return LinkSeen(me, peer, host, error=f"nobody answers within {CONNECT_SECONDS:g} s")
        except OSError as error:
            walled = Wall().is_own(f"{host}:{port}", monotonic_seconds() - began)
            return LinkSeen(me, peer, host, error=str(error), walled=CURE if walled else "")
        except (ElasticdError, ValueError, LookupError, TypeError) as error:
            return LinkSeen(me, peer, error=f"{peer} opens no port at {host}: {error}")
        return LinkSeen(me, peer, host, speed, trip)

    def _door(self, host: str, word: str, busy: bool) -> dict[str, Any]:
        if not busy and (job := trained(self.trains)):
            return {"trains": job}
        if host not in self.hosts():
            raise OperationError(f"{host} is no address of {self.neighbours.me}")
        if len(word) != 2 * _WORD_BYTES:
            raise OperationError("bad word")
        return {"port": self.open(host, word.encode())}
