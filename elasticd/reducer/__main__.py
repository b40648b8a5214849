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

from elasticd.ipc.child import DaemonLink, Resume


def main() -> int:
    """Run the reducer; returns the exit status."""
    link = DaemonLink.connect()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else each thread costs memory, for nothing
    from elasticd.reducer.form import form  # imports MLX: what makes the spare a warm one

    state = _State(link)
    state.ready()
    messages = link.messages()
    received = next(messages, None)
    if received is None:
        return 0
    message, fds = received
    state.generation = message.get("generation")
    threading.Thread(target=_listen, args=(messages,), name="daemon", daemon=True).start()
    try:
        server = form(message, fds)
        state.formed()
        server.run()
    except EOFError:
        return 0
    except Exception as error:
        evidence = f"{type(error).__name__}: {error}"
        link.send({"t": "broken", "generation": message.get("generation"), "evidence": evidence})
        return 1
    return 0


class _State:
    """What the reducer tells its daemon of itself, again when that was restarted."""

    def __init__(self, link: DaemonLink) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._warm = self._formed = False
        self.generation: Any = None
        link.introduce = self._introduce

    def ready(self) -> None:
        with self._lock:
            self._warm = True
            self._link.send({"t": "ready"})

    def formed(self) -> None:
        with self._lock:
            self._formed = True
            self._link.send({"t": "formed", "generation": self.generation})

    def _introduce(self, resume: Resume) -> None:
        with self._lock:
            here = {"t": "here", "generation": self.generation, "formed": self._formed}
            warm = self._warm and self.generation is None
            resume([here, {"t": "ready"}] if warm else [here])


def _listen(messages: Iterator[tuple[dict[str, Any], list[int]]]) -> None:
    for _, fds in messages:  # reading them is what keeps the dead-man off
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    os._exit(main())  # without MLX's own ending, which may wait for a ring that is gone
