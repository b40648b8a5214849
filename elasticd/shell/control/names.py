"""Ids by their beginnings: a request may name a job or a node by how only its id begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import OperationError
from elasticd.shell.control.server import Handler, Handlers, Said, Stream
from elasticd.types import JobId

_SHOWN = 5


def in_full(given: str, what: str, names: Iterable[str]) -> str:
    """The one of ``names`` that is ``given``, else the one that begins with it, else ``given``.

    Raises:
        OperationError: several begin with it.
    """
    known = set(names)
    if given in known or not given:
        return given
    found = sorted(name for name in known if name.startswith(given))
    if len(found) > 1:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        shown = ", ".join(found[:_SHOWN])
        raise OperationError(f"several {what}s begin with {given}: {shown}{more}")
    return found[0] if found else given


async def _at_once(job: JobId) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Names:
    """What the ids in a request are completed from. Forgotten jobs must be named in full.

    ``known``: returns when a job is in no preflight, and so is known if it is one.
    """

    jobs: Callable[[], Iterable[str]]
    forgotten: Callable[[], Iterable[str]]
    nodes: Callable[[], Iterable[str]]
    known: Callable[[JobId], Awaitable[None]] = _at_once

    def complete(self, request: Any) -> Any:
        """``request`` with the ids in full: its fields ``job``, ``node`` and ``groups`` (of nodes).

        Raises:
            OperationError: several ids begin so.
        """
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(request):
            value = getattr(request, field.name)
            if value is None:
                continue
            # Of a preflight 'job' is what a job needs that nobody has submitted yet.
            if field.name == "job" and isinstance(value, str):
                if value not in self.forgotten():
                    changed["job"] = in_full(value, "job", self.jobs())
            elif field.name == "node":
                changed["node"] = self._node(value)
            elif field.name == "groups":
                changed["groups"] = tuple(tuple(map(self._node, group)) for group in value)
        return dataclasses.replace(request, **changed) if changed else request

    def _node(self, given: str) -> str:
        return in_full(given, "node", self.nodes())

    def completing(self, handlers: Handlers) -> Handlers:
        """``handlers``, which are given requests with the ids in full."""

        def wrapped(handler: Handler) -> Handler:
            async def handle(request: Any, stream: Stream) -> Said | None:
                request = self.complete(request)
                job = getattr(request, "job", None)
                if isinstance(job, str) and not isinstance(request, ShowStatus):
                    await self.known(JobId(job))
                return await handler(request, stream)

            return handle

        return {kind: wrapped(handler) for kind, handler in handlers.items()}
