"""What the shell completes while somebody types: asked of a daemon, quickly or not at all.

Every command imports this; what only completion needs is imported where that is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from elasticd.client.client import Client
from elasticd.client.homes import user_home
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import ElasticdError
from elasticd.types import JobId

_SECONDS = 1.0


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of jobs."""
    with _quiet(found := list[Any]()):
        found += [job["id"] for job in _client(ctx).request(ShowStatus())["jobs"]]
    return _fitting(found, incomplete)


def complete_nodes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of nodes."""
    with _quiet(found := list[Any]()):
        found += [node["id"] for node in _client(ctx).request(ShowStatus(ended=0))["nodes"]]
    return _fitting(found, incomplete)


def complete_steps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Steps of the checkpoints of the job that was named before, the newest first."""
    with _quiet(found := list[Any]()):
        steps = {row["step"] for row in _stored(ctx) if isinstance(row["step"], int)}
        found += [str(step) for step in sorted(steps, reverse=True)]
    return _fitting(found, incomplete)


def complete_lineages(ctx: typer.Context, incomplete: str) -> list[str]:
    """Lineages of these checkpoints."""
    with _quiet(found := list[Any]()):
        found += sorted({row["lineage"] for row in _stored(ctx)})
    return _fitting(found, incomplete)


def complete_ranks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ranks of the job that was named before."""
    with _quiet(found := list[Any]()):
        jobs = _client(ctx).request(ShowStatus(_job(ctx)))["jobs"]
        found += [str(rank["rank"]) for job in jobs for rank in job["ranks"]]
    return _fitting(found, incomplete)


def complete_notified(incomplete: str) -> list[str]:
    """Events of which ``[notify]`` tells."""
    from elasticd.settings.notify import NotifyRules

    return _fitting(NotifyRules.__dataclass_fields__, incomplete)


def _stored(ctx: typer.Context) -> list[Any]:
    """The checkpoints of the job that was named before."""
    from elasticd.core.words.requests.checkpoints import ListCheckpoints

    rows: list[Any] = _client(ctx).request(ListCheckpoints(_job(ctx)))["checkpoints"]
    return rows


def _client(ctx: typer.Context) -> Client:
    """Of the home that the command line names so far."""
    at: Any = ctx
    while at is not None:
        if (home := at.params.get("home")) is not None:
            return Client(Path(home), _SECONDS)
        at = at.parent
    return Client(user_home(None), _SECONDS)


def _job(ctx: typer.Context) -> JobId:
    """The one that stands before what is completed. An option that lacks its value yet leaves what
    stands before it unread."""
    unread = [word for word in ctx.args if not word.startswith("-")]
    return JobId(ctx.params.get("job") or unread[0])


@contextmanager
def _quiet(found: list[Any]) -> Iterator[None]:
    """Whatever goes wrong, nothing is said: somebody is typing."""
    try:
        yield
    except (ElasticdError, OSError, LookupError, TypeError, ValueError):
        found.clear()


def _fitting(names: Iterable[Any], incomplete: str) -> list[str]:
    texts = [name for name in names if isinstance(name, str)]
    return [text for text in texts if text.startswith(incomplete) and text.isprintable()]
