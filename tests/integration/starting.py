"""How the daemons of a cluster start: forked by a nursery, or each by a Python of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

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
    words: tuple[str | Path, ...] = ("run", "--home", home)
    with open_private(home / LOG_FILE, "ab") as log:
        if nurseries is not None and program is DAEMON:
            return nurseries.start(nursery.DAEMON, words, home, (log, log), environment)
        return subprocess.Popen(
            [*program, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env=environment,
            start_new_session=True,
        )


def running(daemons: Sequence[Daemon]) -> list[str]:
    """Those of the nurseries, in words: by their command lines nobody could tell whose they are."""
    forked = (one for one in daemons if isinstance(one, nursery.Forked))
    return [f"forked daemon {one.pid}" for one in forked if one.runs]
