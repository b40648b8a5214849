"""``elasticctl chaos``: break a running job on purpose, with the real thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from elasticd.cli.completing import complete_nodes, complete_ranks
from elasticd.cli.options import Home, Job, Json, common, finite
from elasticd.cli.screen import print_json, say
from elasticd.core.words.requests.chaos import (
    CutHow,
    CutKind,
    CutLinks,
    StrikeKind,
    StrikeRank,
    StruckProcess,
)
from elasticd.types import JobId, NodeId

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)

Rank = Annotated[
    int,
    typer.Option("--rank", min=0, help="The rank to hit.", autocompletion=complete_ranks),
]
Process = Annotated[
    StruckProcess,
    typer.Option("--process", help="Which process of the rank. node: all of its node."),
]
Seconds = Annotated[
    float,
    typer.Option("--seconds", min=0.0, callback=finite, help="How long it lasts; 0: for ever."),
]


@app.callback(invoke_without_command=True)
def group(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Inject a real fault into a running job, or between nodes."""
    common(context, home, json)
    if context.invoked_subcommand is None:
        say(context.get_help())


def _strike(
    context: typer.Context,
    what: StrikeKind,
    job: str,
    rank: int,
    process: StruckProcess,
    home: Home,
    json: bool,
    seconds: float = 0.0,
) -> None:
    options = common(context, home, json)
    answer = options.client.request(StrikeRank(what, JobId(job), rank, process, seconds))
    if options.json:
        print_json(answer)
    else:
        pid = f" {answer['pid']}" if answer["pid"] else ""
        say(f"{what}: {process}{pid} of rank {rank} on {answer['node']}")


@app.command()
def kill(
    context: typer.Context,
    job: Job,
    rank: Rank,
    process: Process = "trainer",
    home: Home = None,
    json: Json = False,
) -> None:
    """End a process with SIGKILL.

    \b
    Example:
      elasticctl chaos kill byte-lm-1-k3f9 --rank 1
    """
    _strike(context, "kill", job, rank, process, home, json)


@app.command(short_help="Stop a process with SIGSTOP, so that it hangs.")
def hang(
    context: typer.Context,
    job: Job,
    rank: Rank,
    process: Process = "trainer",
    seconds: Seconds = 0.0,
    home: Home = None,
    json: Json = False,
) -> None:
    """Stop a process with SIGSTOP. It lives and keeps its sockets, but does nothing any more.

    \b
    Example:
      elasticctl chaos hang byte-lm-1-k3f9 --rank 1 --process reducer
    """
    _strike(context, "hang", job, rank, process, home, json, seconds)


@app.command()
def oom(
    context: typer.Context, job: Job, rank: Rank, home: Home = None, json: Json = False
) -> None:
    """Let a trainer's next grain need more memory than there is.

    On Linux its address space is limited first. On macOS the grain asks for more than Metal has.

    \b
    Example:
      elasticctl chaos oom byte-lm-1-k3f9 --rank 1
    """
    _strike(context, "oom", job, rank, "trainer", home, json)


@app.command()
def slow(
    context: typer.Context,
    job: Job,
    rank: Rank,
    process: Process = "trainer",
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, callback=finite, help="How long it lasts.")
    ] = 30.0,
    home: Home = None,
    json: Json = False,
) -> None:
    """Stop a process for three quarters of the time, in short slices.

    With --process node that is the trainers and reducers of the node. Its daemon runs on.

    \b
    Example:
      elasticctl chaos slow byte-lm-1-k3f9 --rank 1 --seconds 60
    """
    _strike(context, "slow", job, rank, process, home, json, seconds)


How = Annotated[
    CutHow,
    typer.Option(
        "--how",
        help="drop: packets vanish, both ways (needs root); one-way: packets from the first to the"
        " others vanish (needs root); close: connections end and are refused (needs no rights; of a"
        " ring Linux only).",
    ),
]
CutSeconds = Annotated[
    float,
    typer.Option("--seconds", min=0.1, max=3600.0, callback=finite, help="How long it lasts."),
]


def _cut(
    context: typer.Context,
    what: CutKind,
    groups: Sequence[Sequence[str]],
    how: CutHow,
    seconds: float,
    home: Home,
    json: Json,
) -> None:
    options = common(context, home, json)
    named = tuple(tuple(NodeId(node) for node in group) for group in groups)
    answer = options.client.request(CutLinks(what, named, seconds, how))
    if options.json:
        print_json(answer)
    else:
        between = " and ".join(", ".join(group) for group in groups)
        say(f"{what}: cut between {between} for {seconds:g} s ({how})")


@app.command(short_help="Cut the link between two nodes.")
def link(
    context: typer.Context,
    one: Annotated[str, typer.Argument(metavar="A", help="A node.", autocompletion=complete_nodes)],
    other: Annotated[
        str, typer.Argument(metavar="B", help="Another node.", autocompletion=complete_nodes)
    ],
    how: How = "drop",
    seconds: CutSeconds = 10.0,
    home: Home = None,
    json: Json = False,
) -> None:
    """Cut the link between two nodes, for their daemons and for their reducers.

    The cut ends by itself when the time is over, even if the daemons die.

    \b
    Examples:
      elasticctl chaos link node-0 node-1 --seconds 5
      elasticctl chaos link node-0 node-1 --how close
    """
    _cut(context, "link", [[one], [other]], how, seconds, home, json)


@app.command(short_help="Cut every link between groups of nodes.")
def partition(
    context: typer.Context,
    groups: Annotated[
        str, typer.Argument(metavar="A,B|C", help="Groups of nodes, in quotes: 'A,B|C'.")
    ],
    how: How = "drop",
    seconds: CutSeconds = 10.0,
    home: Home = None,
    json: Json = False,
) -> None:
    """Cut every link between groups of nodes. All other links stay.

    The cut ends by itself when the time is over, even if the daemons die.

    \b
    Examples:
      elasticctl chaos partition 'node-0,node-1|node-2' --seconds 20
      elasticctl chaos partition 'node-0|node-1|node-2' --how close
    """
    named = [[n.strip() for n in group.split(",") if n.strip()] for group in groups.split("|")]
    _cut(context, "partition", named, how, seconds, home, json)
