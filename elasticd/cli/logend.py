"""The end of a daemon's log, for who waits in vain for it to answer."""

from __future__ import annotations

import contextlib
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence

from elasticd.errors import OperationError

LOG_LINES = 15


def with_log(error: OperationError, command: Sequence[str]) -> OperationError:
    """``error``, and the last lines of what ``command`` prints: the log."""
    last: deque[str] = deque(maxlen=LOG_LINES)
    with contextlib.suppress(OperationError):
        last.extend(printed_lines(command))
    log = "\n".join(f"  {line}" for line in last) or "  (it has logged nothing)"
    return OperationError(f"{error}. The end of its log:\n{log}")


def printed_lines(command: Sequence[str]) -> Iterator[str]:
    """What a command prints, errors too, a line at a time; it is ended when nobody wants more.

    Raises:
        OperationError: there is no such program here, or it failed: the lines say why.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except FileNotFoundError:
        raise OperationError(f"{command[0]}: there is no such program here") from None
    with process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield line.decode("utf-8", "replace").rstrip("\n")
        except GeneratorExit:
            process.terminate()
            raise
    if process.returncode:
        raise OperationError(f"{command[0]} ended with status {process.returncode}")
