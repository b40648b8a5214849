"""What ``elasticctl cluster join`` does with the home of the node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticd.cli import clusterhome
from elasticd.cli.clusterhome import damage_told
from elasticd.cli.screen import warn
from elasticd.client.processes import find_daemon
from elasticd.errors import OperationError, UsageError
from elasticd.settings.config import NodeConfig
from elasticd.settings.places import FILE_NAME
from elasticd.settings.rules import Value
from elasticd.shell.network import mdns, ownaddresses
from elasticd.shell.storage import papers, settingsfile
from elasticd.shell.storage.durable import write_durable
from elasticd.trust.member import MemberPapers
from elasticd.trust.tokens import Token
from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class JoinedHome:
    """What has become of it.

    Attributes:
        issuer: the address that took the token; None: it was a member already.
        aside: where its papers are that were damaged; None: they weren't.
    """

    member: MemberPapers
    issuer: str | None = None
    aside: Path | None = None


def join(
    home: Path, settings: NodeConfig, taken: Token, node: NodeId, listen: str | None
) -> JoinedHome:
    """Have the home's node be a member of the token's cluster, as ``node``.

    Raises:
        UsageError: it is a member of another, or under another name.
        OperationError: it isn't let in. Or it is the one that lets others in, and is damaged.
        OSError: the disk is full or broken; what was asked can be asked again.
    """
    damage = clusterhome.damage_of(home)
    if damage is not None and clusterhome.has_let_in(home):
        raise OperationError(str(damage))
    sound = damage is None and papers.is_member(home)
    if sound and not clusterhome.is_lone(home, taken.pin):
        return JoinedHome(_member_already(home, taken, node))
    return _join(home, settings, taken, node, listen, again=damage is not None)


def _join(
    home: Path,
    settings: NodeConfig,
    taken: Token,
    node: NodeId,
    listen: str | None,
    *,
    again: bool,
) -> JoinedHome:
    """``again``: it has papers that are damaged."""
    from elasticd.client import joining

    if listen is not None:
        clusterhome.checked_listen(listen, bare=True)
    written = "listen" in settingsfile.keys_in(home / FILE_NAME)
    running = find_daemon(home) is not None
    clusterhome.make_members(home)
    key = joining.key_of(home, again=again)

    listens = ""

    def where(host: str) -> str:
        nonlocal listens
        listens = clusterhome.found_listen(
            host, settings, listen, written=written, running=running, free=clusterhome.free_port
        )
        return clusterhome.reached_at(listens, host, settings)

    joined = joining.ask(taken, key, node, where, lambda: _found(settings, taken))
    values: dict[str, Value] = {"node_id": node, "listen": listens}
    for name, agreed in (("cluster", joined.cluster), ("partition", joined.partition)):
        if (own := getattr(settings, name)) != agreed:
            warn(f"elasticd.toml: {name} = {own!r} becomes {agreed!r}, as on all of its nodes")
            values[name] = agreed
    # The papers last: with them the node is a member, and the command need not be repeated.
    settingsfile.change(home, values)
    aside = None
    if again:
        write_durable(home / joining.KEY_NAME, key)  # if what follows fails, it is asked with again
        aside = papers.put_aside(home, time.strftime("%Y%m%d-%H%M%S"))
    papers.write(home, joined.member)
    (home / joining.KEY_NAME).unlink(missing_ok=True)
    return JoinedHome(joined.member, joined.issuer, aside)


def _found(settings: NodeConfig, taken: Token) -> Iterator[str]:
    """Where the Mac is that made the token, if Bonjour says."""
    from elasticd.client import finding

    if not settings.discovery or not mdns.is_installed():
        return
    warn("none of the token's addresses answers; looking for that Mac by Bonjour")
    try:
        yield from finding.issuers(taken.pin, ownaddresses.hosts())
    except OSError as error:
        warn(f"Bonjour: {error}")


def _member_already(home: Path, taken: Token, node: NodeId) -> MemberPapers:
    with damage_told():
        member = papers.read(home)
    if member.cluster_id != taken.pin:
        raise UsageError(f"{home} is a member of another cluster ({clusterhome.leaving(home)})")
    if member.node != node:
        raise UsageError(f"{home} is a member already, as {member.node}")
    return member
