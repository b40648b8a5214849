"""The command line itself: what it is told before a command, and which commands there are."""

from __future__ import annotations

from typing import Annotated

import typer

from elasticd.build import build
from elasticd.cli.later import Commands, add_later
from elasticd.cli.options import Home, Json, common
from elasticd.cli.screen import say

app = typer.Typer(
    name="elasticctl",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"elasticctl {build()}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    home: Home = None,
    json: Json = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Train models on a cluster of elasticd daemons.

    \b
    Try it on this machine:
      elasticctl local up -n 3
      elasticctl submit job.toml --wait
      elasticctl local down

    Exit codes: 0 done, 1 tried and failed, 2 wrong usage or input, 3 no daemon answers.
    """
    common(context, home, json)
    if context.invoked_subcommand is None:
        say(context.get_help())


add_later(app, "submit", "commands.submit_", "Ship a job's folder, queue the job, print its id.")
add_later(app, "jobs", "jobs.jobs", "List all jobs, the ended ones too.")
add_later(app, "wait", "jobs.wait", "Show a job's progress until it ends.")
add_later(app, "disk", "disk.disk", "Show what takes the space on a node's disk.")
add_later(app, "status", "showing.status", "Show the cluster and its jobs, or one job in detail.")
add_later(app, "logs", "logs.logs", "Print what a job's script printed.")
add_later(app, "events", "showing.events", "Print what happened, one event a line, in local time.")
add_later(app, "monitor", "monitor.monitor", "Watch the cluster and a job, live.")
add_later(app, "dashboard", "dashboard.dashboard", "Print the address of the web page of a node.")
add_later(app, "notify", "notify.notify", "Show who tells people what has happened, or try it.")
add_later(app, "outputs", "outputs.outputs", "Fetch the files that a job has written.")
add_later(app, "report", "report.report", "Write a file that tells how a job went.")
add_later(app, "cancel", "commands.cancel", "End a job; its checkpoints stay.")
add_later(app, "forget", "commands.forget", "Remove an ended job, with all its files on all nodes.")
add_later(app, "pause", "commands.pause", "Stop a job at a stored step, and free its memory.")
add_later(app, "resume", "commands.resume", "Let a paused job go on, with the same bits.")
add_later(app, "retry", "commands.retry", "Try nodes again that a job goes on without.")
add_later(app, "drain", "commands.drain", "Let a node's ranks leave, and run no job there.")
add_later(app, "undrain", "commands.undrain", "Let a drained node take part again.")
add_later(
    app,
    "configure",
    "configure.configure",
    "Write this node's elasticd.toml, by questions or flags.",
)
add_later(app, "preflight", "preflight.preflight", "Look at all nodes before a job runs on them.")
add_later(app, "optimize", "optimize.optimize", "Try a job with other settings, and measure.")
add_later(app, "check-network", "preflight.check_network", "Measure the links between all nodes.")
add_later(app, "calibrate", "preflight.calibrate", "Measure how fast each node computes.")
add_later(app, "doctor", "health.doctor", "Say what is wrong with this node's home.")
add_later(app, "reset", "reset.reset", "Forget the cluster's state, so that a node begins anew.")
add_later(app, "demo", "commands.demo", "Train, break, heal: see it work on this machine.")
add_later(
    app, "local", "localgroup.app", "Start and stop a cluster of real daemons on this machine."
)
add_later(app, "cluster", "cluster.app", "Make a cluster of several machines, and let others in.")
add_later(app, "service", "service.app", "Run the daemon as a service of launchd or systemd.")
add_later(app, "chaos", "chaos.app", "Inject a real fault into a running job, or between nodes.")
add_later(app, "checkpoints", "checkpoints.app", "List, verify, export and remove stored states.")
add_later(app, "nodes", "nodes.app", "List all nodes, and whether they live.")
