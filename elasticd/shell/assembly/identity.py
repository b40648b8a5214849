"""What a daemon is: to its peers, to those who look for it in its home, in the list of nodes."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import psutil

from elasticd import __version__
from elasticd.core.words.connections import NodeInfo
from elasticd.settings.config import NodeConfig
from elasticd.shell.clock import unix_seconds
from elasticd.shell.network.hello import Identity
from elasticd.shell.storage import diskend
from elasticd.shell.storage.clusterid import read_cluster_id
from elasticd.shell.storage.durable import write_durable
from elasticd.supervision.birth import birth
from elasticd.types import NodeId

FILE_NAME = "daemon.json"


def to_peers(home: Path, settings: NodeConfig, boot: str) -> Identity:
    cluster_id = read_cluster_id(home)
    own = settings.addresses
    node = NodeId(settings.node_id)
    return Identity(cluster_id, settings.cluster, node, boot, own[0], settings.partition, own)


def in_lists(settings: NodeConfig) -> NodeInfo:
    chip = platform.processor() or platform.machine()
    memory = psutil.virtual_memory().total
    return NodeInfo(settings.addresses[0], os.getpid(), chip, memory, __version__)


def write(home: Path, settings: NodeConfig) -> None:
    """Say in the home which process runs there."""
    identity = {
        "pid": os.getpid(),
        "create_time": psutil.Process().create_time(),
        "born": birth(os.getpid()),
        "address": settings.addresses[0],
    }
    write_durable(home / FILE_NAME, json.dumps(identity).encode())
    diskend.begin(home)


def remove(home: Path, failure: BaseException | None) -> None:
    """It ends. Of a ``failure``: then its file stays, as that of one that crashed, and its keeper
    starts it again as launchd and systemd do by its exit code."""
    if failure is None:
        (home / FILE_NAME).unlink(missing_ok=True)
    else:
        diskend.note(home, failure, unix_seconds())
