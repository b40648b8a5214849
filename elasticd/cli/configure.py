"""``elasticctl configure``: a node's elasticd.toml, by questions or by flags."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticd.cli import clusterhome
from elasticd.cli.options import Home, Json, common
from elasticd.cli.screen import clean, print_json, say, warn
from elasticd.client.processes import find_daemon
from elasticd.errors import UsageError
from elasticd.settings import config
from elasticd.settings.changing import is_live
from elasticd.settings.config import NOTIFY, TABLES, described, showable, split_address, values_of
from elasticd.settings.localhomes import begun_anew, is_local
from elasticd.settings.notify import HIDDEN
from elasticd.settings.places import FILE_NAME
from elasticd.settings.rules import Value, Wrong, shown
from elasticd.settings.toml import Document
from elasticd.shell.network.ownaddresses import EVERYWHERE
from elasticd.shell.storage import papers, settingsfile

_ASKED = ("node_id", "listen", "partition", "failure_domain", "quota_bytes", "keep.days",
          "keep.bytes")  # fmt: skip
"""What is asked at a terminal; the other keys are for who knows that they want them."""
_AGREED = ("partition",)
"""On what all nodes must agree."""

Changes = dict[str, Value | None]


Listen = Annotated[
    str | None, typer.Option("--listen", metavar="HOST:PORT", help="Where its daemon listens.")
]
NodeName = Annotated[
    str | None, typer.Option("--node-id", metavar="ID", help="The node's name in the cluster.")
]
Advertise = Annotated[
    list[str] | None,
    typer.Option(
        "--advertise",
        metavar="HOST:PORT",
        help="Where others reach it; several times, the best first.",
    ),
]
Peer = Annotated[
    list[str] | None,
    typer.Option("--peer", metavar="HOST:PORT", help="Where another daemon is; several times."),
]
PartitionOption = Annotated[
    str | None,
    typer.Option(
        "--partition",
        metavar="available|strict",
        help="What the sides of a cut network do. The same on all nodes.",
    ),
]
FailureDomain = Annotated[
    str | None,
    typer.Option(
        "--failure-domain", metavar="NAME", help="What fails together, a power strip say."
    ),
]
Roles = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="ROLE[,ROLE]",
        help="What the node does: train; store: hold copies, train nothing; witness: only vote.",
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key of the file; several times."),
]
Defaults = Annotated[
    list[str] | None,
    typer.Option("--default", metavar="KEY", help="Have its default again; several times."),
]


def configure(
    context: typer.Context,
    node_id: NodeName = None,
    listen: Listen = None,
    advertise: Advertise = None,
    peers: Peer = None,
    partition: PartitionOption = None,
    failure_domain: FailureDomain = None,
    roles: Roles = None,
    assignments: Assignments = None,
    defaults: Defaults = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """Write this node's elasticd.toml: by flags, or by questions if there are none.

    Your comments stay, but for those within a list that is changed. A new file says of each key
    what it is. Nothing is written before all is checked. A daemon that runs follows the file: what
    it can't take while it runs holds when it is started again.

    \b
    Examples:
      elasticctl configure
      elasticctl configure --failure-domain rack-2 --set keep.days=90
      elasticctl configure --roles store
      elasticctl configure --set quota_bytes=200_000_000_000 --default keep.bytes
    """
    options = common(context, home, json)
    folder = clusterhome.own_home(options)
    before = values_of(config.load(folder))
    flags = {
        "node_id": node_id,
        "listen": listen,
        "advertise": advertise,
        "peers": peers,
        "partition": partition,
        "failure_domain": failure_domain,
        "roles": roles.split(",") if roles is not None else None,
    }
    changes = _flagged(flags) | _assigned(assignments or []) | _default(defaults or [])
    if not changes:
        if options.json or not sys.stdin.isatty():
            raise UsageError("say what to change (--set KEY=VALUE), or run it at a terminal")
        changes = _answers(folder, before)
    _check_name(folder, changes)
    if changes.keys() & {"advertise", "listen"}:
        _check_address(changes)
    clusterhome.make(folder)
    after = values_of(settingsfile.change(folder, changes))
    _tell(folder, before, after, json=options.json)


def _flagged(flags: Mapping[str, str | Sequence[str] | None]) -> Changes:
    said = {"peers": "--peer"}
    return {
        key: _checked(said.get(key, f"--{key.replace('_', '-')}"), key, value)
        for key, value in flags.items()
        if value not in (None, [])
    }


def _assigned(assignments: Sequence[str]) -> Changes:
    changes: Changes = {}
    for assignment in assignments:
        document = replace(Document.parse("", FILE_NAME), secrets=((NOTIFY,),))
        document.override(assignment)
        for key, value in _flat(document.data).items():
            hidden = key.partition(".")[0] == NOTIFY
            said = f"{assignment.partition('=')[0]}={HIDDEN}" if hidden else assignment
            changes[key] = _checked(f"--set {said}", key, value)
    return changes


def _default(keys: Sequence[str]) -> Changes:
    for key in keys:
        if key not in described():
            _checked("--default", key, None)
    return dict.fromkeys(keys)


def _flat(data: Mapping[str, Any]) -> dict[str, Any]:
    """With ``keep.days`` for a key in a table; deeper there is none."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if key in TABLES and isinstance(value, Mapping):
            flat |= {f"{key}.{name}": item for name, item in value.items()}
        else:
            flat[key] = value
    return flat


def _checked(option: str, key: str, value: object) -> Value:
    try:
        return config.checked(key, value)
    except Wrong as wrong:
        where = "".join(wrong.below)
        raise UsageError(f"{option}: {where}{' ' if where else ''}{wrong}") from None


def _answers(home: Path, before: Mapping[str, Value]) -> Changes:
    """What somebody at a terminal says. Ctrl-C and the end of the input change nothing."""
    say(f"{home / FILE_NAME}: Enter keeps what stands in brackets")
    changes: Changes = {}
    for key in _ASKED:
        if key == "node_id" and papers.is_member(home):
            continue  # its certificate has that name
        say()
        say(str(described()[key]["about"]))
        while (answer := _ask(key, before[key])) is not None:
            try:
                changes[key] = config.checked(key, answer)
                break
            except Wrong as wrong:
                say(f"  {wrong}")
    return changes


def _ask(key: str, old: Value) -> object | None:
    """None: it stays."""
    try:
        text = input(clean(f"{key} [{old}]: ")).strip()
    except EOFError:
        raise UsageError("the answers ended; nothing was changed") from None
    if not text:
        return None
    if isinstance(old, int):
        with contextlib.suppress(ValueError):
            return int(text)
    return text


def _check_name(home: Path, changes: Changes) -> None:
    if "node_id" not in changes or not papers.is_member(home):
        return
    with clusterhome.damage_told():
        member = papers.read(home)
    node = changes["node_id"]
    if node is not None and member.node != node:  # without the key the certificate's name holds
        raise UsageError(
            f"node_id: this node is {member.node!r} in its cluster, as its certificate says; with"
            f" another name it has to join anew ({clusterhome.leaving(home)})"
        )


def _check_address(changes: Changes) -> None:
    """Others must be told more than that it is this machine."""
    advertise = changes.get("advertise")
    for address in advertise if isinstance(advertise, tuple) else ():
        if split_address(str(address))[0] == EVERYWHERE:
            raise UsageError(
                f"advertise: others can't connect to {address}: name this machine's addresses, or"
                f" none, and its daemon finds them with --listen {address}"
            )


def _tell(
    home: Path, before: Mapping[str, Value], after: Mapping[str, Value], *, json: bool
) -> None:
    file = home / FILE_NAME
    changed = {k: showable(k, value) for k, value in after.items() if value != before[k]}
    running = find_daemon(home) is not None
    later = [key for key in changed if running and not is_live(key)]
    if json:
        print_json({"file": str(file), "changed": changed, "restart": later})
        return
    if not changed:
        say(f"{file}: nothing has changed")
    for key, value in changed.items():
        say(f"{key} = {shown(value)}")
    for key in _AGREED:
        if key in changed:
            text = f"{key}: all nodes must have the same, or they refuse each other"
            if is_local(home):  # where 'local up' gives all of them what the first one has
                text += f": {begun_anew(home, f'local up --{key} {changed[key]}')}"
            warn(text)
    if later:
        again = clusterhome.restarting(home)
        warn(f"{', '.join(later)}: holds when its daemon is started again ({again})")
