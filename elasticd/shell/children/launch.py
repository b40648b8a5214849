"""What is started for a child, and its start."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elasticd.errors import OperationError
from elasticd.settings.otherpython import not_started
from elasticd.supervision.logs import RotatedLog
from elasticd.types import Role


def new_nonce() -> str:
    """By which a process shows that it is the one that was started."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        command: absolute interpreter and arguments.
        folder: working folder of the process.
        log: its stdout and stderr, appended to.
        environment: the whole environment, without ``ELASTICD_CHILD``.
        settings: keys of ``ELASTICD_CHILD`` beside socket, nonce, role and grace_seconds.
        job, spare: of a trainer.
        python: the job's own interpreter, if that is started.
        nonce: as :func:`new_nonce` makes it.
    """

    role: Role
    command: Sequence[str]
    folder: Path
    log: Path
    environment: Mapping[str, str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    job: str = ""
    spare: bool = False
    nonce: str = field(default_factory=new_nonce)
    python: str = ""


def start(launch: Launch, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """One wait of this holds the loop up all the same, on Linux: Python keeps the interpreter to
    itself until the child has begun its program (vfork). That is mostly the daemon's own, which is
    in memory. The way round, a real fork, would copy the tables of all our memory each time."""
    try:
        output = RotatedLog(launch.log).open_append()
        try:
            return subprocess.Popen(
                list(launch.command),
                cwd=launch.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                close_fds=True,
                start_new_session=True,
            )
        finally:
            os.close(output)
    except OSError as error:
        if launch.python and error.filename == launch.python:
            raise OperationError(not_started(launch.python, error)) from error
        raise OperationError(f"{launch.role} does not start: {error}") from error
