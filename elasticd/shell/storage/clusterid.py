"""Which local cluster a home belongs to: daemons of another one are ignored."""

from __future__ import annotations

from pathlib import Path

from elasticd.errors import DamageError

CLUSTER_ID_NAME = "cluster_id"


def read_cluster_id(home: Path) -> str:
    """Of a local cluster; empty where there is none.

    Raises:
        DamageError: the file is there and says nothing.
    """
    path = home / CLUSTER_ID_NAME
    try:
        found = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        found = ""
    if not found:
        text = "copy it from another node's home, or write it anew: 'elasticctl local down', 'up'"
        raise DamageError(f"{path}: damaged; {text}")
    return found
