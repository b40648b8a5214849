"""What daemons say of themselves when they connect, and whether they can be peers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticd import __version__
from elasticd.core.words.connections import CONNECTION, PeerHello
from elasticd.core.words.versions import OLDEST, SPOKEN, Spoken
from elasticd.errors import ProtocolError
from elasticd.types import NodeId, Partition

HELLO_BYTES = 64 * 1024
HELLO_SECONDS = 5.0
"""A hello is no longer, and comes no later."""
ADDRESSES_OF_ONE = 16
"""One daemon gives no more."""
_LONGEST_TEXT = 80
"""Of what a stranger says, shown to people."""


class Refused(ProtocolError):
    """A daemon, but none that this one may work with."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What another daemon said of itself, and may be believed."""

    node: NodeId
    boot: str
    address: str
    addresses: tuple[str, ...]
    protocol: int = OLDEST
    """The newest version that both speak."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a daemon says of itself in its hello."""

    node: NodeId
    boot: str
    address: str
    partition: Partition = "available"
    addresses: tuple[str, ...] = ()
    """All that others may use, best first; empty: ``address`` only."""
    spoken: Spoken = SPOKEN
    release: str = __version__

    def frame(self) -> dict[str, Any]:
        every = self.addresses or (self.address,)
        said = PeerHello(
            self.node, self.boot, self.address, self.spoken.oldest, self.partition, every,
            self.spoken.newest, self.release,
        )  # fmt: skip
        return CONNECTION.encode(said)

    def check(self, frame: dict[str, Any]) -> Hello:
        """What a daemon says that may be this one's peer.

        Raises:
            Refused: it speaks no protocol that this one speaks, or has another rule for partitions.
            ProtocolError: it is no hello.
        """
        said = _read(frame)
        protocol = self._protocol(said)
        if said.partition != self.partition:
            # Which of two rules holds must not depend on who leads.
            raise Refused(
                f"{said.node} has partition = {_shown(said.partition)} in its elasticd.toml and"
                f" this node {self.partition!r}: all nodes of a cluster must agree"
            )
        addresses = (said.address,) if said.addresses is None else said.addresses
        if not 1 <= len(addresses) <= ADDRESSES_OF_ONE:
            raise ProtocolError("it gives no list of addresses")
        every = tuple(dict.fromkeys((*addresses, said.address)))
        return Hello(said.node, said.boot, said.address, every, protocol)

    def _protocol(self, said: PeerHello) -> int:
        """The version of the protocol that both use."""
        theirs = Spoken(said.version, said.version if said.newest is None else said.newest)
        if (common := self.spoken.common(theirs)) is not None:
            return common
        name, me = _shown(said.node), _shown(self.node)
        older = name if theirs.newest < self.spoken.oldest else me
        release = "of a version that it doesn't say" if said.release is None else said.release
        raise Refused(
            f"{name} runs elasticd {_text(release)} ({theirs}), and this node {me} elasticd"
            f" {self.release} ({self.spoken}): upgrade {older}"
        )


def _read(frame: dict[str, Any]) -> PeerHello:
    try:
        word = CONNECTION.decode(frame)
    except ProtocolError as error:
        raise ProtocolError(f"its first frame is no hello: {error}") from None
    if not isinstance(word, PeerHello):
        raise ProtocolError("its first frame is no hello")
    return word


def _shown(value: object) -> str:
    return repr(str(value)[:_LONGEST_TEXT])


def _text(value: str) -> str:
    return _shown(value)[1:-1]
