"""``python -m elasticd.reducer``: one rank's collectives, in a process that may be killed any
time.

It holds no state worth keeping. It waits as a warm spare until it gets ``form``, joins the ring,
and serves its trainer until the trainer closes the data socket (exit 0) or a collective fails
(``broken``, exit 1).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

from elasticd.ipc.child import DaemonLink


def main() -> int:
    """Run the reducer; returns the exit status."""
    link = DaemonLink.connect()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else each thread costs memory, for nothing
    from elasticd.reducer.form import form  # imports MLX: what makes the spare a warm one

    link.send({"t": "ready"})
    messages = link.messages()
    received = next(messages, None)
    if received is None:  # a spare without its daemon is of no use
        return 0
    message, fds = received
    threading.Thread(target=_listen, args=(messages,), name="daemon", daemon=True).start()
    try:
        server = form(message, fds)
        link.send({"t": "formed", "generation": message["generation"]})
        server.run()
    except EOFError:
        return 0
    except Exception as error:
        evidence = f"{type(error).__name__}: {error}"
        link.send({"t": "broken", "generation": message.get("generation"), "evidence": evidence})
        return 1
    return 0


def _listen(messages: Iterator[tuple[dict[str, Any], list[int]]]) -> None:
    for _, fds in messages:  # reading them is what keeps the dead-man off
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    os._exit(main())  # without MLX's own ending, which may wait for a ring that is gone
