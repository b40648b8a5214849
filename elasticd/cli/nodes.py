"""``elasticctl nodes``, and taking a node out: drained, and when it may be switched off."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import typer

from elasticd.cli import output, screen
from elasticd.cli.options import Common, Home, Json, Node, common
from elasticd.cli.output import MAY_SWITCH_OFF, drained_note
from elasticd.cli.silence import POLL_SECONDS, SilentDaemons
from elasticd.client.client import Client
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.looking import ShowStatus
from elasticd.core.words.requests.nodes import DrainNode, ForgetNode
from elasticd.errors import NoDaemonError, OperationError
from elasticd.types import NodeId

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def nodes(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """List all nodes: where each is, whether it lives, and which version of elasticd it runs. Of
    drained ones, whether they may be switched off.

    On a narrow terminal columns are left out in this order: chip, memory, pid, address.

    \b
    Examples:
      elasticctl nodes
      elasticctl nodes --json
      elasticctl nodes forget mac-3
    """
    options = common(context, home, json)
    if context.invoked_subcommand is not None:
        return
    status = options.client.request(ShowStatus(ended=0))
    if options.json:
        screen.print_json({"nodes": status["nodes"]})
    else:
        output.print_nodes(status)


@app.command(short_help="Take a node off the list that is gone for good.")
def forget(context: typer.Context, node: Node, home: Home = None, json: Json = False) -> None:
    """Take a node off the list that is gone for good.

    It is refused while the node is there: stop its daemon first. Should it come back all the same,
    it is listed again, as a new one: it is not drained. Its address stays in the 'peers' of your
    elasticd.toml files until you remove it there.

    \b
    Example:
      elasticctl nodes forget mac-3
    """
    options = common(context, home, json)
    changed = options.client.change(ForgetNode(NodeId(node)), screen.asking_again)
    if options.json:
        screen.print_json(to_plain(changed))
    else:
        screen.say(f"{changed.id} {changed.state}")


def drain_node(options: Common, node: str, *, wait: bool) -> None:
    """Drain a node and say whether it may be switched off; ``wait``: return once it may.

    Raises:
        OperationError: it has died, or takes part again, before its ranks had left.
        NoDaemonError: no daemon has answered for a while.
    """
    changed = options.client.change(DrainNode(NodeId(node)), screen.asking_again)
    away = "" if changed.state == "draining" else "it is drained once it answers"
    try:
        state, note = _look(options.client, changed.id)
        if wait and note != MAY_SWITCH_OFF:
            if not options.json:
                screen.say(f"{changed.id} {changed.state}: {note or away or state}", flush=True)
            _await_leave(options.client, changed.id)
            note = MAY_SWITCH_OFF
    except KeyboardInterrupt:
        screen.warn(
            f"\n{changed.id} stays drained; 'elasticctl nodes' says when it may be switched off,"
            f" 'elasticctl undrain {changed.id}' lets it take part again"
        )
        raise
    if options.json:
        free = note == MAY_SWITCH_OFF
        screen.print_json({**to_plain(changed), "may_switch_off": free, "why": note})
    else:
        said = note or away
        screen.say(f"{changed.id} {changed.state}" + (f": {said}" if said else ""))
        if not wait and note and note != MAY_SWITCH_OFF:
            screen.say("'elasticctl nodes' says when it may be switched off")


def _look(client: Client, name: str) -> tuple[str, str | None]:
    """The state of a node and what is said of its being drained."""
    status = client.request(ShowStatus(ended=0))
    found: Mapping[str, Any] = next(
        (node for node in status["nodes"] if node["id"] == name), {"id": name, "state": "unknown"}
    )
    return str(found.get("state")), drained_note(found, status["jobs"])


def _await_leave(client: Client, name: str) -> None:
    away = SilentDaemons(answered=True)
    while True:
        time.sleep(POLL_SECONDS)
        try:
            state, note = _look(client, name)
        except NoDaemonError as error:
            away.bear(error, f"; {name} stays drained")
            continue
        away.heard()
        if note == MAY_SWITCH_OFF:
            return
        if state not in ("draining", "suspect"):
            raise OperationError(f"{name} is {state}, and was not seen without ranks before")
