"""``elasticctl logs``: what a job's script printed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, cast

import typer

from elasticd.cli import screen
from elasticd.cli.completing import complete_nodes, complete_ranks
from elasticd.cli.grepping import Piece, matching
from elasticd.cli.logtail import follow_logs
from elasticd.cli.moments import since
from elasticd.cli.options import Follow, Home, Job, Json, common
from elasticd.cli.output import ENDED
from elasticd.client.client import Client
from elasticd.core.words.limits import in_short
from elasticd.core.words.requests.logs import ReadLogs
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import ElasticdError, UsageError
from elasticd.types import JobId, NodeId

Rank = Annotated[
    int | None,
    typer.Option(
        "--rank",
        min=0,
        show_default=False,
        help="Only the node that has this rank now, or had it last.",
        autocompletion=complete_ranks,
    ),
]
Node = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="NODE",
        show_default=False,
        help="Only this node, whatever ranks it had.",
        autocompletion=complete_nodes,
    ),
]
Tail = Annotated[
    int | None,
    typer.Option(
        "--tail",
        metavar="N",
        min=0,
        show_default=False,
        help="Of what each rank has printed so far only the last N lines.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        show_default=False,
        help="Only what was printed since then: 90s, 10m, 2h, 3d ago, or a local time such as"
        " 14:30 or '2026-01-31 14:30'.",
    ),
]
Grep = Annotated[
    str | None,
    typer.Option(
        "--grep",
        metavar="PATTERN",
        show_default=False,
        help="Only lines in which this regular expression (Python's) is found.",
    ),
]
_WAITS = ("queued", "preflight", "parked", "paused")
"""States in which nothing is printed."""

Raw = Annotated[bool, typer.Option("--raw", help="The bytes as they were printed, without labels.")]


def logs(
    context: typer.Context,
    job: Job,
    follow: Follow = False,
    rank: Rank = None,
    node: Node = None,
    tail: Tail = None,
    since_: Since = None,
    grep: Grep = None,
    raw: Raw = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Print what a job's script printed, on every rank.

    A log is a node's. Before each of its lines stands the rank that the node has now, or had last,
    or its name if it never had one. A rank moves to another node when its own is lost: what the
    lost one printed is shown by --node.

    What isn't printable is shown as an escape such as \\x1b, so that no script can steer your
    terminal; --raw gives the bytes, for files and pipes.

    If a node's log can't be read, or a part of it is gone, that is said on stderr. So it is if
    the N lines of --tail have more than 256 KiB each: then only the end of them is shown. So it is,
    too, that a job has printed nothing yet, and why.

    Daemons note once a second how long a log is: --since may begin about a second early. What
    several nodes printed is shown in the order of those notes, by the nodes' clocks; of a long log
    300 of them count. With -f what is new comes as it is printed, and it goes on where it was even
    if the daemon that it asked dies. If none answers for 30 s it gives up, with exit code 3.

    \b
    Examples:
      elasticctl logs byte-lm-1-k3f9 -f --rank 0
      elasticctl logs byte-lm-1-k3f9 --tail 20 --since 10m
      elasticctl logs byte-lm-1-k3f9 --node node-2
      elasticctl logs byte-lm-1-k3f9 --grep 'loss|Error' -f
      elasticctl logs byte-lm-1-k3f9 --rank 0 --raw > rank-0.log
    """
    options = common(context, home, json)
    if raw and options.json:
        raise UsageError("--raw and --json can't be given together")
    if raw and grep is not None:
        raise UsageError("--raw and --grep can't be given together")
    if rank is not None and node is not None:
        raise UsageError("--rank and --node can't be given together")
    moment = since(since_)
    if moment is not None and moment > time.time():
        screen.warn(f"--since {since_} is in the future: nothing has been printed since then")
    wanted = None if node is None else NodeId(node)
    request = ReadLogs(JobId(job), rank, follow, tail, moment, raw or None, node=wanted)
    client = options.client
    if follow:
        _say_waits(client, job)
    pieces: Iterable[Piece] = follow_logs(client, request) if follow else client.stream(request)
    if grep is not None:
        pieces = matching(pieces, grep)
    if options.json:
        some = _show(pieces, screen.print_json)
    else:
        labelled = rank is None and node is None
        printer = screen.RawPrinter() if raw else screen.LogPrinter(labelled=labelled)
        try:
            some = _show(pieces, printer.print)
        finally:
            printer.finish()
    if not some and tail is None and moment is None and grep is None:
        _say_nothing(client, job, rank, node)


def _say_waits(client: Client, job: str) -> None:
    """Of a job that prints nothing for now: else nobody would know what is waited for."""
    described = _described(client, job)
    if described.get("state") in _WAITS:
        screen.warn(f"{described['id']} {_how_it_is(described)}; what it prints comes when it runs")


def _say_nothing(client: Client, job: str, rank: int | None, node: str | None) -> None:
    described = _described(client, job)
    if not described:
        return
    who = described["id"] if rank is None else f"rank {rank} of {described['id']}"
    who += "" if node is None else f" on {node}"
    yet = "" if described.get("state") in ENDED else " yet"
    screen.warn(f"{who} has printed nothing{yet}: it {_how_it_is(described)}")


def _described(client: Client, job: str) -> Mapping[str, Any]:
    """As ``status`` tells it; empty: no daemon does, which is said where the logs are asked for."""
    with contextlib.suppress(ElasticdError):
        for each in client.request(ShowStatus(JobId(job)))["jobs"]:
            return cast(Mapping[str, Any], each)
    return {}


def _how_it_is(job: Mapping[str, Any]) -> str:
    state, place = str(job.get("state")), job.get("queue_position")
    how = {"failed": "failed", "finished": "finished", "cancelled": "was cancelled"}.get(state)
    how = how or f"is {state}" + (f" ({place}.)" if state == "queued" and place else "")
    reason = in_short(job.get("reason"))
    return f"{how}: {reason}" if reason else how


def _show(pieces: Iterable[Piece], show: Callable[[Piece], None]) -> bool:
    """What is missing is said on stderr. Whether there was anything."""
    some = False
    for piece in pieces:
        some = True
        if (why := piece.get("unread")) is not None:
            screen.warn(f"what {piece.get('node')} printed last could not be read: {why}")
        elif (why := piece.get("left_out")) is not None:
            screen.warn(f"the log of {piece.get('node')} is not whole: {why}")
        else:
            show(piece)
    return some
