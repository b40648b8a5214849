"""``elasticctl chaos``: break a running job on purpose, with the real thing."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from elasticd.cli import output
from elasticd.cli.options import Home, Job, Json, common

app = typer.Typer(
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Inject a real fault into a running job.",
)

Rank = Annotated[int, typer.Option("--rank", min=0, help="The rank to hit.")]
Process = Annotated[
    Literal["trainer", "reducer", "node"],
    typer.Option("--process", help="Which process of the rank; node: its daemon and all of it."),
]
Seconds = Annotated[
    float, typer.Option("--seconds", min=0.0, help="How long it lasts; 0: for ever.")
]


def _strike(
    context: typer.Context,
    what: str,
    job: str,
    rank: int,
    process: str,
    home: Home,
    json: bool,
    seconds: float = 0.0,
) -> None:
    options = common(context, home, json)
    request = {"do": "chaos", "what": what, "job": job, "rank": rank}
    answer = options.client.request({**request, "process": process, "seconds": seconds})
    if options.json:
        output.print_json(answer)
    else:
        pid = f" {answer['pid']}" if answer["pid"] else ""
        print(f"{what}: {process}{pid} of rank {rank} on {answer['node']}")


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


@app.command()
def hang(
    context: typer.Context,
    job: Job,
    rank: Rank,
    process: Process = "trainer",
    seconds: Seconds = 0.0,
    home: Home = None,
    json: Json = False,
) -> None:
    """Stop a process with SIGSTOP: it lives, keeps its sockets, and does nothing any more.

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

    On Linux its address space is limited first, on macOS the grain asks for more than Metal has.

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
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="How long it lasts.")] = 30.0,
    home: Home = None,
    json: Json = False,
) -> None:
    """Let a process run for two fifths of the time, in short slices.

    \b
    Example:
      elasticctl chaos slow byte-lm-1-k3f9 --rank 1 --seconds 60
    """
    _strike(context, "slow", job, rank, process, home, json, seconds)
