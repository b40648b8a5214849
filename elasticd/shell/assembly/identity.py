"""What a daemon is: to its peers, to those who look for it in its home, in the list of nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil

from elasticd.build import build
from elasticd.core.words.connections import NodeInfo
from elasticd.machinememory import total_bytes
from elasticd.settings.config import NodeConfig
from elasticd.settings.places import DAEMON_FILE
from elasticd.shell.assembly.chip import chip
from elasticd.shell.clock import unix_seconds
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.network.hello import Identity
from elasticd.shell.storage import diskend, issuing, papers, starting
from elasticd.shell.storage.durable import write_durable
from elasticd.supervision.naming import named
from elasticd.trust.names import Issued
from elasticd.types import NodeId


def to_peers(settings: NodeConfig, boot: str) -> Identity:
    own = settings.addresses
    me = NodeId(settings.node_id)
    return Identity(me, boot, own[0], settings.partition, own, release=build())


def as_member(home: Path, settings: NodeConfig) -> Credentials:
    """What shows others that this node is of their cluster. A node alone that has nothing yet makes
    a cluster of its own, which others can join.

    Raises:
        UsageError: it has peers and no certificate, or the certificate of another node.
        DamageError: a file of it is damaged.
        OperationError: the list of those that joined here is.
    """
    own = starting.belonging(home, settings)
    if own is None:
        # Loaded only here: its cryptography takes 13 MiB, and a member never needs it.
        from elasticd.shell.storage import founding

        founding.found(home, NodeId(settings.node_id))
        return as_member(home, settings)
    papers.settle(home)
    certificate, key = papers.shown(home)
    return Credentials(own.member, certificate, key, own.revoked, own.renewal)


def of_others(home: Path, settings: NodeConfig, own: Credentials) -> tuple[str, ...]:
    """Where other members may be: as elasticd.toml says, where they were when this node joined, and
    where those are that joined here.

    Raises:
        OperationError: the list of the latter is damaged.
    """
    joined = [
        given.address
        for node, given in issuing.read(home).items()
        if not own.revoked.holds(Issued(own.member.name_of(node), given.serial))
    ]
    every = (*settings.peers, *own.member.peers, *joined)
    return tuple(dict.fromkeys(each for each in every if each not in settings.addresses))


def in_lists(settings: NodeConfig) -> NodeInfo:
    own, memory = settings.addresses, total_bytes()
    told = settings.notify.told
    return NodeInfo(own[0], os.getpid(), chip(), memory, build(), addresses=own, notifies=told)


def write(home: Path, settings: NodeConfig) -> None:
    """Say in the home which process runs there."""
    identity = {**named(psutil.Process(), home), "address": settings.addresses[0]}
    write_durable(home / DAEMON_FILE, json.dumps(identity).encode())
    diskend.begin(home)


def remove(home: Path, failure: BaseException | None) -> None:
    """It ends. Of a ``failure``: then its file stays, as that of one that crashed, and its keeper
    starts it again as launchd and systemd do by its exit code."""
    if failure is None:
        (home / DAEMON_FILE).unlink(missing_ok=True)
    else:
        diskend.note(home, failure, unix_seconds())
