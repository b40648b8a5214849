"""The tree of errors.

ElasticdError
 ├── UsageError        what the user gave is wrong: exit code 2, one line, nothing changed
 │    └── ConfigError  ... with file, line and key
 ├── OperationError    it was tried and failed: exit code 1
 ├── NoDaemonError     no daemon answers: exit code 3
 ├── ProtocolError     another process sent what it must not
 │    └── IdError      ... what is no id
 ├── StateError        a stored or transferred state can't be used
 │    ├── MismatchError  ... because it belongs to another model or job
 │    ├── RotError       ... because its bytes are not those that were written
 │    ├── LackError      ... because this node has no right copy of its part
 │    ├── DamageError    ... and no restart of the daemon cures that: its exit code 4
 │    └── DiskError      ... because the disk refuses: full, read-only, no permission, broken
 └── GenerationLost    the world that this rank was a member of has ended
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ElasticdError(Exception):
    """Base of every error that this package raises on purpose."""

    exit_code = 1


class UsageError(ElasticdError):
    exit_code = 2


class ConfigError(UsageError):
    """A setting is wrong; ``str()`` is ``file:line: key: what is wrong``."""

    def __init__(
        self, message: str, *, file: str = "", line: int | None = None, key: str = ""
    ) -> None:
        self.file, self.line, self.key, self.message = file, line, key, message
        where = file if line is None else f"{file}:{line}"
        super().__init__(": ".join(part for part in (where, key, message) if part))


class OperationError(ElasticdError):
    exit_code = 1


class NoDaemonError(ElasticdError):
    exit_code = 3


class ProtocolError(ElasticdError):
    pass


class IdError(ProtocolError):
    """``said``: without the field that it was sent in, which whoever has typed it doesn't know."""

    def __init__(self, said: str, field: str = "") -> None:
        super().__init__(f"{field}: {said}" if field else said)
        self.said = said


class StateError(ElasticdError):
    pass


class MismatchError(StateError):
    pass


class SpentError(StateError):
    """Only a new process can take it."""


class DiskError(StateError):
    pass


class TakenError(StateError):
    """Another world's files of the same state have this name here; nothing is written over them."""


class RotError(StateError):
    pass


class LackError(StateError):
    """A shard that this node is to hold isn't here, or is another state's: a copy cures that."""


class DamageError(StateError):
    exit_code = 4


class GenerationLost(ElasticdError):
    """The reducer, the daemon or another member ended this generation; wait for the next world."""


INCURABLE = (UsageError.exit_code, DamageError.exit_code)
"""Exit codes of a daemon that no restart cures: wrong settings, a damaged journal."""


@contextmanager
def naming(path: object, beside: object = None) -> Iterator[None]:
    """Have an OSError that doesn't say where it happened, as those of writes, name ``path``. So
    does one of the file ``beside`` it, which is to become it: nobody has asked for that."""
    try:
        yield
    except OSError as error:
        if error.filename is None or str(error.filename) == str(beside):
            error.filename = str(path)
        raise
