"""What this machine is called, and the node of a home.

gethostname() of a Mac follows the network: macOS sets it from what DHCP or the DNS say of the
address, again at each change. LocalHostName is the name that its owner has given it.
"""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path

from elasticd import systemtools
from elasticd.settings.places import MEMBER, papers_of
from elasticd.systemtools import Ask
from elasticd.types import is_node_id

LOCAL_HOST_NAME = ("/usr/sbin/scutil", "--get", "LocalHostName")


def machine_name(system: str = sys.platform, ask: Ask = systemtools.printed) -> str:
    """The short one, which stays. May block for a moment on a Mac."""
    own = ask(LOCAL_HOST_NAME) if system == "darwin" else ""
    return own or socket.gethostname().partition(".")[0]


def machine_names(system: str = sys.platform, ask: Ask = systemtools.printed) -> frozenset[str]:
    """All by which people may know it."""
    full, short = socket.gethostname(), machine_name(system, ask)
    now = full.partition(".")[0]
    return frozenset({full, now, short, f"{now}.local", f"{short}.local"})


def default_node_id(system: str = sys.platform, ask: Ask = systemtools.printed) -> str:
    """The machine's name, with everything unusual replaced by ``-``."""
    short = machine_name(system, ask)
    return re.sub("[^A-Za-z0-9_-]+", "-", short).strip("-_")[:63] or "node"


def name_in_cluster(home: Path) -> str | None:
    """The node of a home that is a member has the name in its papers, whatever the machine is
    called by now. None: it is none, or they are damaged, as is said where they are read whole."""
    try:
        node = json.loads((papers_of(home) / MEMBER).read_bytes())["node"]
    except (OSError, LookupError, TypeError, ValueError):
        return None
    return node if isinstance(node, str) and is_node_id(node) else None
