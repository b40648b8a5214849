"""HOME/elasticd.toml: what one node's daemon is told, and where its home is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from elasticd.settings.keep import KeepRules
from elasticd.settings.notify import HIDDEN, NotifyRules
from elasticd.settings.ownname import default_node_id, name_in_cluster
from elasticd.settings.places import FILE_NAME
from elasticd.settings.rules import (
    Rule,
    Value,
    Wrong,
    boolean,
    integer,
    list_of,
    meant,
    one_of,
    rule,
    show,
    text,
)
from elasticd.settings.toml import Document
from elasticd.types import NODE_ID, OF_NODE_ID, NodeRole, Partition

KEEP, NOTIFY = "keep", "notify"
TABLES: Mapping[str, type[KeepRules] | type[NotifyRules]] = {KEEP: KeepRules, NOTIFY: NotifyRules}
DEFAULT_LISTEN = "127.0.0.1:7070"
DEFAULT_DASHBOARD_HOST, DEFAULT_DASHBOARD_PORT = "127.0.0.1", 8050
PARTITIONS: tuple[Partition, ...] = get_args(Partition)
ROLES: tuple[NodeRole, ...] = get_args(NodeRole)
"""The first of them that a node has says what it does: it has those behind it, too."""

_LABEL = "[A-Za-z0-9_-]{1,63}"
_HOST = rf"{_LABEL}(?:\.{_LABEL})*\.?"
"""Nobody can look up another: each part of a name has 63 letters at most, and none is empty."""
_name: Rule = text(NODE_ID, OF_NODE_ID)


def roles_of(role: NodeRole) -> tuple[NodeRole, ...]:
    """All that a node does which does ``role``."""
    return ROLES[ROLES.index(role) :]


def _roles(value: object) -> tuple[object, ...]:
    roles: Any = list_of(one_of(NodeRole), len(ROLES))(value)
    if not roles:
        raise Wrong(f"must have one of {', '.join(map(show, ROLES))} at least")
    if twice := sorted(role for role in {*roles} if roles.count(role) > 1):
        raise Wrong(f"must have each role once, not {show(twice[0])} twice")
    return tuple(roles)


def _address(value: object) -> str:
    address = text()(value)
    assert isinstance(address, str)
    try:
        split_address(address)
    except ValueError:
        raise Wrong(f'must be "host:port", not {show(address)}') from None
    return address


def split_address(address: str) -> tuple[str, int]:
    """``"10.0.0.1:7070"`` as host and port.

    Raises:
        ValueError: it is something else, IPv6 included (MLX's ring speaks IPv4 only).
    """
    found = re.fullmatch(rf"({_HOST}):([0-9]{{1,5}})", address)
    if not found or not 1 <= int(found[2]) <= 65535:
        raise ValueError(f"{address!r} is not host:port")
    return found[1], int(found[2])


@dataclass(frozen=True)
class NodeConfig:
    """A validated elasticd.toml; every key is optional."""

    node_id: str = field(
        default_factory=default_node_id,
        metadata=rule(_name, "This node's name in the cluster."),
    )
    cluster: str = field(default="local", metadata=rule(_name, "The cluster's name, for people."))
    listen: str = field(
        default=DEFAULT_LISTEN,
        metadata=rule(
            _address,
            "Host and port on which this daemon listens for the others; 0.0.0.0: everywhere.",
        ),
    )
    advertise: tuple[str, ...] = field(
        default=(),
        metadata=rule(
            list_of(_address, 16),
            "Addresses by which others reach this node, the best one first; none: listen, or those"
            " that this machine has.",
        ),
    )
    peers: tuple[str, ...] = field(
        default=(),
        metadata=rule(
            list_of(_address, 1024),
            "Addresses of other daemons, beside those that this node learned when it joined.",
        ),
    )
    dashboard_port: int = field(
        default=DEFAULT_DASHBOARD_PORT,
        metadata=rule(integer(0, 65535), "Port of the web page and the metrics; 0: none."),
    )
    dashboard_host: str = field(
        default=DEFAULT_DASHBOARD_HOST,
        metadata=rule(
            text(_HOST, "a host name or an address"),
            "Host on which these are served; elsewhere than on loopback with TLS.",
        ),
    )
    discovery: bool = field(
        default=True,
        metadata=rule(
            boolean,
            "Announce this node by Bonjour, and look there for nodes that moved; needs"
            " elasticd[discovery].",
        ),
    )
    partition: Partition = field(
        default="available",
        metadata=rule(
            one_of(Partition),
            "When the network is cut: available: each side goes on; strict: one at most. The same"
            " on all nodes.",
        ),
    )
    failure_domain: str = field(
        default="",
        metadata=rule(
            text(),
            "What fails together with this node, a power strip say. Replicas go elsewhere first.",
        ),
    )
    quota_bytes: int = field(
        default=0,
        metadata=rule(
            integer(0, 2**62),
            "What checkpoints may take on this node's disk; 0: as much as there is.",
        ),
    )
    output_bytes: int = field(
        default=256 << 20,
        metadata=rule(
            integer(0, 2**62),
            "How much of main's output folder is copied to this node, of each job; 0: nothing.",
        ),
    )
    return_seconds: int = field(
        default=2,
        metadata=rule(
            integer(1, 600),
            "How long a daemon may be away for a restart before the others go on without its node.",
        ),
    )
    grace_seconds: int = field(
        default=30,
        metadata=rule(
            integer(6, 600),
            "How long trainers and reducers outlive a daemon that does not come back.",
        ),
    )
    roles: tuple[NodeRole, ...] = field(
        default=ROLES,
        metadata=rule(
            _roles,
            "What this node does: train; without that store: hold copies, and vote; alone witness:"
            " vote.",
        ),
    )
    keep: KeepRules = field(default=KeepRules(), metadata=rule(lambda _: KeepRules()))
    """A table of its own, which :func:`parse` reads."""
    notify: NotifyRules = field(default=NotifyRules(), metadata=rule(lambda _: NotifyRules()))
    """The same."""

    @property
    def role(self) -> NodeRole:
        """What the node does at most."""
        return next(role for role in ROLES if role in self.roles)

    @property
    def copied_bytes(self) -> int:
        """How much of main's output folder is copied to this node: a witness holds nothing."""
        return self.output_bytes if self.role != "witness" else 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """What other nodes are told to connect to, best first."""
        return self.advertise or (self.listen,)


def load(home: Path, file: Path | None = None) -> NodeConfig:
    """Read ``file``, or else HOME/elasticd.toml, which may be missing. Where it gives the node no
    name, that of a member is the one in its papers.

    Raises:
        ConfigError: the file is wrong (or ``file`` missing); says file, line and key.
    """
    path = file or home / FILE_NAME
    there = file is not None or path.exists()
    document = Document.read(path) if there else Document(str(path), {})
    if "node_id" not in document.data and (name := name_in_cluster(home)) is not None:
        document.data["node_id"] = name
    return parse(document)


def parse(document: Document) -> NodeConfig:
    """Raises ConfigError: a key is unknown, or a value wrong."""
    keep, notify = document.build(KeepRules, (KEEP,)), document.build(NotifyRules, (NOTIFY,))
    return replace(document.build(NodeConfig), keep=keep, notify=notify)


def values_of(config: NodeConfig) -> dict[str, Any]:
    """Each key with its value, ``keep.days`` for one in a table."""
    own = {item.name: getattr(config, item.name) for item in _keys()}
    for table, rules in TABLES.items():
        held = getattr(config, table)
        own |= {f"{table}.{item.name}": getattr(held, item.name) for item in fields(rules)}
    return own


def described() -> dict[str, Mapping[str, Any]]:
    """Of each key its rule, and what it is about."""
    own: dict[str, Mapping[str, Any]] = {item.name: item.metadata for item in _keys()}
    for table, rules in TABLES.items():
        own |= {f"{table}.{item.name}": item.metadata for item in fields(rules)}
    return own


def showable(key: str, value: Any) -> Any:
    """The value of a key for people and logs: not what may be a secret."""
    return HIDDEN if value and key.startswith(f"{NOTIFY}.") else value


def _keys() -> list[Field[Any]]:
    """Those that are in no table."""
    return [item for item in fields(NodeConfig) if item.name not in TABLES]


def checked(key: str, value: object) -> Value:
    """The value of a key, ``keep.days`` for one in a table, as it is kept.

    Raises:
        Wrong: there is no such key, or it can't have that value.
    """
    known = described()
    if key not in known:
        raise Wrong(f"{show(key)} is no key of {FILE_NAME}{meant(key, known)}")
    kept: Value = known[key]["rule"](value)
    return kept


def dump(config: NodeConfig) -> str:
    """The TOML text that :func:`load` reads ``config`` from; defaults are left out."""
    lines = []
    for item in _keys():
        value = getattr(config, item.name)
        if item.name in ("node_id", "listen") or value != item.default:
            lines.append(_assigned(item.name, value))
    for table, rules in TABLES.items():
        held = getattr(config, table)
        said = [
            _assigned(item.name, getattr(held, item.name))
            for item in fields(rules)
            if getattr(held, item.name) != item.default
        ]
        if said:
            lines += [f"\n[{table}]\n", *said]
    return "".join(lines)


def _assigned(key: str, value: Value) -> str:
    # Here JSON is TOML: whole numbers, and strings without unusual characters.
    return f"{key} = {json.dumps(list(value) if isinstance(value, tuple) else value)}\n"
