"""``elasticctl notify``: who tells people what has happened, and whether that works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from elasticd.cli import screen
from elasticd.cli.completing import complete_notified
from elasticd.cli.options import Home, Json, common
from elasticd.cli.output import print_table
from elasticd.cli.tables import Table
from elasticd.core.words.requests.looking import ShowStatus, TryNotices

_TEST_SECONDS = 180.0
"""Longer than all that a node may have to do."""
TELLERS = Table(("node", "state", "tells people of"), text="tells people of")


def notify(
    context: typer.Context,
    test: Annotated[
        bool, typer.Option("--test", help="Have this node tell now, and say how it went.")
    ] = False,
    event: Annotated[
        str | None,
        typer.Option(
            "--event",
            metavar="EVENT",
            help="With --test: on this event only.",
            autocompletion=complete_notified,
        ),
    ] = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Show which nodes tell people what has happened ([notify] in their elasticd.toml).

    A node whose elasticd.toml is wrong goes on as before: below the table it says what is wrong.

    With --test the node that is asked does now what its [notify] says, once for each event, and
    what it prints is shown. Exit code: 1 if something did not work.

    \b
    Examples:
      elasticctl notify
      elasticctl notify --test
      elasticctl notify --test --event job_failed --home /tmp/cluster/node-1
    """
    options = common(context, home, json)
    if event is not None and not test:
        raise typer.BadParameter("goes with --test", param_hint="--event")
    if not test:
        nodes = options.client.request(ShowStatus(ended=0))["nodes"]
        _show(nodes, json=options.json)
        return
    # One that was stopped takes connections, too, and would be waited for that long.
    options.client.request(ShowStatus(ended=0))
    with options.client.open(TryNotices(event)) as connection:
        tried = connection.answer(_TEST_SECONDS)["tried"]
    if options.json:
        screen.print_json({"tried": tried})
    for each in () if options.json else tried:
        screen.say(f"{each['event']}: {each['error'] or 'told'}")
        for line in each["output"].splitlines():
            screen.say(f"  {line}")
    if any(each["error"] for each in tried):
        raise typer.Exit(1)


def _show(nodes: Sequence[Mapping[str, Any]], *, json: bool) -> None:
    """Of an earlier daemon it isn't known whether it refuses its file."""
    told = [
        {
            "node": each["id"],
            "state": each["state"],
            "notifies": list(each.get("notifies") or ()),
            "settings_refused": each.get("settings_refused") or None,
        }
        for each in nodes
    ]
    if json:
        screen.print_json({"nodes": told})
        return
    rows = [(each["node"], each["state"], ", ".join(each["notifies"])) for each in told]
    print_table(TELLERS, rows)
    for each in told:
        if why := each["settings_refused"]:
            screen.say(f"{each['node']} does not take what its elasticd.toml says now: {why}")
