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
from typing import TYPE_CHECKING, Any, NoReturn

from elasticd.core.words import reducers as w
from elasticd.core.words.processes import Alive
from elasticd.ipc.child import DaemonLink, Resume
from elasticd.supervision.priority import BEHIND_DAEMONS, give_way
from elasticd.types import Tag

if TYPE_CHECKING:
    from elasticd.reducer.greeting import StrangerError


_WARM = w.ReducerWarm(proves=True, walks=True, chains=True)


def main() -> int:
    """Run the reducer; returns the exit status."""
    give_way(BEHIND_DAEMONS)
    link = DaemonLink.connect()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else each thread costs memory, for nothing
    from elasticd.reducer.form import form  # imports MLX: what makes the spare a warm one
    from elasticd.reducer.greeting import StrangerError

    state = _State(link)
    state.ready()
    messages = link.messages()
    received = next(messages, None)
    if received is None:
        return 0
    order, fds = w.TO_REDUCER.decode(received[0]), received[1]
    assert not isinstance(order, Alive), order  # which is all that is said to a reducer besides
    state.generation = order.generation
    threading.Thread(target=_listen, args=(messages,), name="daemon", daemon=True).start()
    try:
        server = form(order, fds, state.met_stranger, state.broke)
        state.formed()
        server.run()
    except EOFError:
        return 0
    except StrangerError as error:
        state.met_stranger(error)
    except Exception as error:
        state.broke(error)
    return 0


class _State:
    """What the reducer tells its daemon of itself, again when that was restarted."""

    def __init__(self, link: DaemonLink) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._warm = self._formed = False
        self.generation: Tag | None = None
        link.introduce = self._introduce

    def say(self, word: w.FromReducer) -> None:
        self._link.send(w.FROM_REDUCER.encode(word))

    def ready(self) -> None:
        with self._lock:
            self._warm = True
            self.say(_WARM)

    def formed(self) -> None:
        with self._lock:
            assert self.generation is not None
            self._formed = True
            self.say(w.ReducerFormed(self.generation))

    def met_stranger(self, error: StrangerError) -> NoReturn:
        """The ring can't be used: MLX may wait in it for ever, so this ends the process."""
        assert self.generation is not None
        self.say(w.ReducerBroken(self.generation, str(error), error.at, error.wrong))
        os._exit(1)

    def broke(self, error: Exception) -> NoReturn:
        """A collective failed: MLX may wait in another for ever, so this ends the process."""
        assert self.generation is not None
        self.say(w.ReducerBroken(self.generation, f"{type(error).__name__}: {error}"))
        os._exit(1)

    def _introduce(self, resume: Resume) -> None:
        with self._lock:
            words: list[w.FromReducer] = [w.ReducerHere(self.generation, self._formed)]
            if self._warm and self.generation is None:
                words.append(_WARM)
            resume([w.FROM_REDUCER.encode(word) for word in words])


def _listen(messages: Iterator[tuple[dict[str, Any], list[int]]]) -> None:
    for _, fds in messages:  # reading them is what keeps the dead-man off
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    os._exit(main())  # without MLX's own ending, which may wait for a ring that is gone
