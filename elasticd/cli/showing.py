"""The commands that show what a daemon tells of the cluster, and change nothing. As ``status`` is
asked often, this loads only what it needs."""

from __future__ import annotations

import typer

from elasticd.cli import output, plainjobs
from elasticd.cli.options import Follow, Home, Json, MaybeJob, Performance, common
from elasticd.cli.screen import print_json, say
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.types import JobId


def status(
    context: typer.Context,
    job: MaybeJob = None,
    performance: Performance = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show the cluster and its jobs, or one job in detail.

    With --performance it shows what the time of a step goes to, in seconds, of each rank: the mean
    of its last 20 steps. 'waiting' is for other ranks; 'script' is the loop's own code. On a narrow
    terminal columns are left out in this order: script, checkpoint, update, data, waiting, reduce,
    compute.

    \b
    Examples:
      elasticctl status
      elasticctl status --performance
      elasticctl status byte-lm-1-k3f9 --json
    """
    options = common(context, home, json)
    answer = options.client.request(ShowStatus(_id(job)))
    if options.json:
        print_json({**answer, "jobs": list(map(plainjobs.told, answer["jobs"]))})
    elif performance:
        output.print_performance(answer)
    elif job is None:
        output.print_status(answer)
    else:
        for described in answer["jobs"]:
            output.print_job(described)


def events(
    context: typer.Context,
    job: MaybeJob = None,
    follow: Follow = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Print what happened, one event a line, in local time.

    With -f it goes on and prints new events as they come, even if the daemon that it asked dies. If
    none answers for 30 s it gives up, with exit code 3.

    \b
    Example:
      elasticctl events byte-lm-1-k3f9 -f
    """
    from elasticd.cli import watch

    options = common(context, home, json)
    client = options.client
    if follow:
        found = watch.follow_events(client, job)
    else:
        found = client.stream(ReadEvents(_id(job)), patient=True)
    for event in found:
        if options.json:
            print_json(event)
        else:
            say(output.event_line(event), flush=follow)


def _id(job: str | None) -> JobId | None:
    return JobId(job) if job is not None else None
