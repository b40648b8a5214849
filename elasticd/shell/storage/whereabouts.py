"""Where the other members were last, in HOME/cluster/addresses.json.

When all daemons were off some may be at other addresses than those at which they joined. Who was
told of that looks there. It is a hint and no more: who answers there shows who it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from elasticd.settings.config import split_address
from elasticd.shell.storage import papers
from elasticd.shell.storage.durable import write_durable
from elasticd.shell.tasks import Tasks
from elasticd.types import NodeId

FILE_NAME = "addresses.json"
MOST_NODES = 64
"""Of more those are kept of which there was news last."""
MOST_ADDRESSES = 256
"""So many of theirs are looked at."""

log = structlog.get_logger(__name__)


def read(home: Path, *, complain: bool = True) -> dict[NodeId, tuple[str, ...]]:
    """What was noted, the oldest news first. Of a file that can't be read nothing: the others say
    it again."""
    path = papers.folder_of(home) / FILE_NAME
    try:
        said = json.loads(path.read_bytes())
        return {NodeId(node): _addresses(each) for node, each in list(said.items())[-MOST_NODES:]}
    except FileNotFoundError:
        pass
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        if complain:
            log.warning("where others were last is not known", path=str(path), reason=str(error))
    return {}


def _addresses(said: Iterable[str]) -> tuple[str, ...]:
    found = tuple(said)
    for each in found:
        split_address(each)
    return found


@dataclass(slots=True)
class Whereabouts:
    """Notes where others are, one write at a time. Runs in the event loop's thread."""

    home: Path
    known: dict[NodeId, tuple[str, ...]] = field(init=False)
    _tasks: Tasks = field(default_factory=lambda: Tasks("noting where other nodes are"))
    _writing: bool = False

    def __post_init__(self) -> None:
        self.known = read(self.home)

    def addresses(self) -> list[str]:
        """The newest first."""
        every = (each for found in reversed(self.known.values()) for each in found)
        return list(every)[:MOST_ADDRESSES]

    def note(self, node: NodeId, addresses: tuple[str, ...]) -> None:
        """``node`` is there now."""
        if not addresses or self.known.get(node) == addresses:
            return
        self.known.pop(node, None)
        self.known[node] = addresses
        while len(self.known) > MOST_NODES:
            del self.known[next(iter(self.known))]
        if not self._writing:
            self._writing = True
            self._tasks.start(self._write())

    async def _write(self) -> None:
        """Until the disk has what is known. What it refuses is noted with the next news."""
        written: list[tuple[NodeId, tuple[str, ...]]] = []
        path = papers.folder_of(self.home) / FILE_NAME
        try:
            while (now := list(self.known.items())) != written:
                await asyncio.to_thread(write_durable, path, _as_json(now))
                written = now
        except OSError as error:
            log.warning("where others are could not be noted", path=str(path), reason=str(error))
        finally:
            self._writing = False


def _as_json(known: Iterable[tuple[NodeId, tuple[str, ...]]]) -> bytes:
    return json.dumps(dict(known), indent=1).encode() + b"\n"
