"""``elasticctl jobs`` and ``elasticctl wait``: which jobs there are, and the end of one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from elasticd.cli import output, plainjobs, screen, watch
from elasticd.cli.monitors.board import can_redraw, drawn, redraw
from elasticd.cli.monitors.joblist import JobsLookout, picture
from elasticd.cli.options import Home, Job, Json, common
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.errors import UsageError

STATES = (
    "queued", "preflight", "running", "recovering", "parked", "paused", *output.ENDED,
)  # fmt: skip
WATCHED_ENDED = 20


def jobs(
    context: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help=f"Only jobs in this state, one of {', '.join(STATES)}; may be given several"
            " times.",
            autocompletion=lambda incomplete: [s for s in STATES if s.startswith(incomplete)],
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            "--last",
            metavar="N",
            min=0,
            show_default=False,
            help="Of the ended jobs only the N that ended last.",
        ),
    ] = None,
    watched: Annotated[
        bool, typer.Option("--watch", "-w", help="Show the list again each second; q leaves.")
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """List all jobs: first those that have their turn, then the queue in its order, then those
    that rest, then the ended ones, the latest first.

    A terminal shows one line of each reason; 'elasticctl status JOB' has the whole. On a narrow one
    it goes below its row. Then columns are left out in this order: recoveries, ranks, steps/s,
    loss, step.

    --watch goes on when the daemon that it asks dies. Without a terminal, with TERM=dumb and with
    --json the list is printed once all the same.

    \b
    Examples:
      elasticctl jobs
      elasticctl jobs --watch
      elasticctl jobs --state failed --last 5
      elasticctl jobs --state queued --state running
    """
    options = common(context, home, json)
    for name in state or ():
        if name not in STATES:
            raise UsageError(f"--state must be one of {', '.join(STATES)}, not {name}")
    client = options.client
    status = client.request(ShowStatus())
    chosen = choose(status["jobs"], state or (), last)
    console = Console()
    if options.json:
        screen.print_json({"jobs": list(map(plainjobs.told, chosen))})
    elif watched and can_redraw(console):
        # Years of ended jobs have no room, and would be told each second.
        ended = None if state else WATCHED_ENDED if last is None else last
        ask = lambda: choose(client.request(ShowStatus(ended=ended))["jobs"], state or (), last)  # noqa: E731
        _watch(console, JobsLookout(ask, chosen))
    elif status["jobs"] and not chosen:
        screen.say("no such jobs")
    else:
        output.print_jobs({"jobs": chosen})


def _watch(console: Console, lookout: JobsLookout) -> None:
    """Until somebody leaves."""

    def draw() -> Text:
        width, height = console.width, console.height
        return drawn(picture(lookout.jobs, lookout.trouble, width, height, time.time()))

    lookout.start()
    try:
        redraw(console, draw, lambda key: None)
    finally:
        lookout.stop()


def choose(
    found: Sequence[Mapping[str, Any]], states: Sequence[str], last: int | None
) -> list[Mapping[str, Any]]:
    """The jobs in one of ``states`` (none: in any), in the order in which they are listed."""
    wanted = output.in_order(job for job in found if not states or job.get("state") in states)
    ended = [job for job in wanted if job.get("state") in output.ENDED]
    return [*wanted[: len(wanted) - len(ended)], *ended[:last]]


def wait(context: typer.Context, job: Job, home: Home = None, json: Json = False) -> None:
    """Show a job's progress until it ends. Daemons may die meanwhile.

    While no daemon answers it says so and tries again, for 30 s. If you interrupt the command the
    job goes on.

    Exit codes: 0 if it finished, 1 if it failed or was cancelled, 3 if no daemon answers: the job
    may go on then.

    \b
    Examples:
      elasticctl wait byte-lm-1-k3f9
      elasticctl wait byte-lm-1-k3f9 --json && echo well done
    """
    options = common(context, home, json)
    if code := watch.wait(options.client, job, json=options.json, answered=False):
        raise typer.Exit(code)
