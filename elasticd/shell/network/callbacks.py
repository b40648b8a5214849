"""Whom connections tell of what they bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from elasticd.core.words.records import Path
from elasticd.shell.network.transfer import Serve
from elasticd.trust.renewal import Renewal
from elasticd.types import NodeId


@dataclass(slots=True)
class Callbacks:
    """Whom to tell; all in the event loop's thread.

    ``connected(node, boot, address)`` and ``disconnected(node, boot, reason)`` alternate for a
    node. Between them ``moved(node, boot, address)`` says that it is reached at another address
    now, where what was sent to the last one may be lost, and ``paths(node, paths)`` how its
    addresses are. ``message(node, frame)`` comes only between them; if it can't make sense of a
    frame it raises ProtocolError, LookupError, TypeError or ValueError, and the
    peer is disconnected.
    """

    connected: Callable[[NodeId, str, str], None]
    disconnected: Callable[[NodeId, str, str], None]
    message: Callable[[NodeId, dict[str, Any]], None]
    serve: Serve
    moved: Callable[[NodeId, str, str], None] = lambda node, boot, address: None
    paths: Callable[[NodeId, tuple[Path, ...]], None] = lambda node, paths: None
    must_renew: Callable[[Renewal], None] = lambda wanted: None
