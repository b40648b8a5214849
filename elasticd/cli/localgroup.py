"""``elasticctl local``: a cluster of daemons on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from elasticd.cli import local as local_cluster
from elasticd.cli import output
from elasticd.cli.keeper import keeper_of
from elasticd.cli.options import Home, Json, common
from elasticd.cli.screen import print_json, say
from elasticd.counting import counted
from elasticd.settings.localhomes import MAX_LOCAL_NODES

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def local(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """Start and stop a cluster of real daemons on this machine."""
    common(context, home, json)
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command("up")
def local_up(
    context: typer.Context,
    nodes: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--nodes",
            min=1,
            max=MAX_LOCAL_NODES,
            show_default=False,
            help="How many daemons. Default: as many as the home has, or 3.",
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            "--partition",
            metavar="strict|available",
            show_default=False,
            help="What happens when the network is cut. available: each side goes on; strict: one"
            " side at most. Default: as the home has it, or available.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Restart daemons that die, until 'local down'."),
    ] = False,
    home: Home = None,
    json: Json = False,
) -> None:
    """Start the daemons that don't run; return once they share a view.

    A home that was used before gets the same nodes again, with what they had stored.

    \b
    Examples:
      elasticctl local up -n 3 --home /tmp/cluster
      elasticctl local up --keep
    """
    options = common(context, home, json)
    described = local_cluster.up(options.local_home, nodes, partition=partition, keep=keep)
    keeper = keeper_of(options.local_home)
    if options.json:
        found = {"home": str(options.local_home), "nodes": described, "keeper": keeper}
        print_json(found)
        return
    rows = [(node["id"], node["address"], node["pid"]) for node in described]
    output.print_table(output.STARTED, rows)
    kept = f", kept by process {keeper}" if keeper else ""
    shared = counted(len(rows), "daemon shares", "daemons share")
    say(f"{shared} a view{kept}; home {options.local_home}")


@app.command("down")
def local_down(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """End all daemons of the local cluster and everything they started.

    What they stored stays. It is no error if nothing runs.

    \b
    Example:
      elasticctl local down --home /tmp/cluster
    """
    options = common(context, home, json)
    ended = local_cluster.down(options.local_home)
    if options.json:
        print_json({"home": str(options.local_home), "ended": ended})
    else:
        say(f"ended {', '.join(ended)}" if ended else f"nothing runs in {options.local_home}")
