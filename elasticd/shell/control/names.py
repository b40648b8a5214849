"""Ids by their beginnings: a request may name a job or a node by how only its id begins."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.nodes import PutOutNode
from elasticd.errors import OperationError, UsageError
from elasticd.shell.control.server import Handler, Handlers, Said, Stream
from elasticd.types import OF_NODE_ID, JobId

_SHOWN = 5


_NONCE_LETTERS = 4
"""At the end of a job's id, of which nobody takes digits for a number."""


def in_full(given: str, what: str, names: Iterable[str], exact: Iterable[str] = ()) -> str:
    """The one of ``names`` or ``exact`` that is ``given``, else the one of ``names`` that begins
    with it, else ``given``. No number is cut: ``mac-1`` is no beginning of ``mac-10``.

    Raises:
        OperationError: several begin with it.
    """
    known = set(names)
    if given in known or not given or given in exact:
        return given
    found = sorted(
        name for name in known if name.startswith(given) and not _cuts_number(given, what, name)
    )
    if len(found) > 1:
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        shown = ", ".join(found[:_SHOWN])
        raise OperationError(f"several {what}s begin with {given}: {shown}{more}")
    return found[0] if found else given


def _cuts_number(given: str, what: str, name: str) -> bool:
    in_nonce = what == "job" and len(given) > len(name) - _NONCE_LETTERS
    return given[-1].isdigit() and name[len(given) :][:1].isdigit() and not in_nonce


def _refuse_nameless(node: str) -> None:
    """A word may name no node; who asks for something names one."""
    if not node:
        raise UsageError(f"{node!r} is no node's id: {OF_NODE_ID}")


async def _at_once(job: JobId) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Names:
    """What the ids in a request are completed from. Forgotten jobs, nodes that are gone, and a node
    that is to be put out must be named in full.

    ``known``: returns when a job is in no preflight, and so is known if it is one.
    """

    jobs: Callable[[], Iterable[str]]
    forgotten: Callable[[], Iterable[str]]
    nodes: Callable[[], Iterable[str]]
    gone: Callable[[], Iterable[str]] = tuple
    """Nodes that there were."""
    known: Callable[[JobId], Awaitable[None]] = _at_once

    def complete(self, request: Any) -> Any:
        """``request`` with the ids in full: its fields ``job``, ``node`` and ``groups`` (of nodes).

        Raises:
            OperationError: several ids begin so.
            UsageError: a node's is empty.
        """
        changed: dict[str, Any] = {}
        if isinstance(request, PutOutNode):
            _refuse_nameless(request.node)
            return request
        for field in dataclasses.fields(request):
            value = getattr(request, field.name)
            if value is None:
                continue
            # Of a preflight 'job' is what a job needs that nobody has submitted yet.
            if field.name == "job" and isinstance(value, str):
                changed["job"] = in_full(value, "job", self.jobs(), self.forgotten())
            elif field.name == "node":
                changed["node"] = self._node(value)
            elif field.name == "groups":
                changed["groups"] = tuple(tuple(map(self._node, group)) for group in value)
        return dataclasses.replace(request, **changed) if changed else request

    def _node(self, given: str) -> str:
        _refuse_nameless(given)
        return in_full(given, "node", self.nodes(), self.gone())

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
