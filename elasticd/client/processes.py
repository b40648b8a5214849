"""The process that a file of a home names, by its pid and when it was born. One that was copied
there with another home names none."""

from __future__ import annotations

import json
from pathlib import Path

import psutil

from elasticd.settings.places import DAEMON_FILE
from elasticd.supervision.birth import UNSEEN, has_ended, is_same
from elasticd.supervision.naming import is_copied


def find(record: Path) -> psutil.Process | None:
    """The process that the file names, if that very process still runs."""
    try:
        named = json.loads(record.read_bytes())
        if is_copied(named, record.parent):
            return None
        process = psutil.Process(int(named["pid"]))
        born, created = str(named.get("born", "")), float(named["create_time"])
        same = is_same(process.pid, born, created)
        alive = not has_ended(process)
    except (*UNSEEN, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return process if alive and same else None


def find_daemon(home: Path) -> psutil.Process | None:
    """The daemon of the node whose home this is."""
    return find(home / DAEMON_FILE)
