"""``elasticctl nodes``, and taking a node out: drained, and when it may be switched off."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import typer

from elasticd.cli import output, screen
from elasticd.cli.options import Common, Home, Json, common
from elasticd.cli.output import MAY_SWITCH_OFF, drained_note
from elasticd.client.client import Client
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests import DrainNode, ShowStatus
from elasticd.errors import NoDaemonError, OperationError
from elasticd.types import NodeId

POLL_SECONDS = 0.25
SILENCE_SECONDS = 30.0
"""How long no daemon at all may answer before the command gives up; the node stays drained."""


def nodes(context: typer.Context, home: Home = None, json: Json = False) -> None:
    """List all nodes: where each is, and whether it lives. Of drained ones, whether they may be
    switched off.

    On a narrow terminal columns are left out in this order: chip, memory, pid, address.

    \b
    Examples:
      elasticctl nodes
      elasticctl nodes --json
    """
    options = common(context, home, json)
    status = options.client.request(ShowStatus(ended=0))
    if options.json:
        screen.print_json({"nodes": status["nodes"]})
    else:
        output.print_nodes(status)


def drain_node(options: Common, node: str, *, wait: bool) -> None:
    """Drain a node and say whether it may be switched off; ``wait``: return once it may.

    Raises:
        OperationError: it has died, or takes part again, before its ranks had left.
        NoDaemonError: no daemon has answered for a while.
    """
    changed = options.client.change(DrainNode(NodeId(node)))
    state, note = _look(options.client, changed.id)
    if wait and note != MAY_SWITCH_OFF:
        if not options.json:
            screen.say(f"{changed.id} {changed.state}: {note or state}", flush=True)
        _await_leave(options.client, changed.id)
        note = MAY_SWITCH_OFF
    if options.json:
        free = note == MAY_SWITCH_OFF
        screen.print_json({**to_plain(changed), "may_switch_off": free, "why": note})
    else:
        screen.say(f"{changed.id} {changed.state}" + (f": {note}" if note else ""))
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
    answered = time.monotonic()
    while True:
        time.sleep(POLL_SECONDS)
        try:
            state, note = _look(client, name)
        except NoDaemonError as error:
            if time.monotonic() - answered > SILENCE_SECONDS:
                raise NoDaemonError(f"{error}; {name} stays drained") from None
            continue
        answered = time.monotonic()
        if note == MAY_SWITCH_OFF:
            return
        if state not in ("draining", "suspect"):
            raise OperationError(f"{name} is {state}, and was not seen without ranks before")
