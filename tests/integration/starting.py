"""How the daemons of a cluster start: forked by a nursery, or each by a Python of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from elasticd.cli import daemons
from elasticd.cli.daemons import DAEMON, LOG_FILE
from elasticd.shell.storage.durable import open_private
from tests import nursery

Daemon: TypeAlias = subprocess.Popen[bytes] | nursery.Forked


def start(
    nurseries: nursery.Nurseries | None,
    program: Sequence[str],
    home: Path,
    environment: Mapping[str, str],
) -> Daemon:
    """As ``local up`` does it; without ``nurseries`` it is a Python of its own."""
    words = ("run", "--home", str(home))
    if nurseries is None or program is not DAEMON:
        return daemons.start([*program, *words], home, home / LOG_FILE, environment)
    with open_private(home / LOG_FILE, "ab") as log:
        return nurseries.start(nursery.DAEMON, words, home, (log, log), environment)


def running(started: Sequence[Daemon]) -> list[str]:
    """Those of the nurseries, in words: by their command lines nobody could tell whose they are."""
    forked = (one for one in started if isinstance(one, nursery.Forked))
    return [f"forked daemon {one.pid}" for one in forked if one.runs]
