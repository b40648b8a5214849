"""What connects a trainer with its reducer: shared memory, and a socket with two ends."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from elasticd.core.words.effects import ChildId
from elasticd.ipc.memoryfile import create_memory


@dataclass(frozen=True, slots=True)
class DataPath:
    """What the reducer is to get of it."""

    memory: int
    reducer_end: socket.socket

    def fds(self) -> list[int]:
        return [self.memory, self.reducer_end.fileno()]

    def close(self) -> None:
        os.close(self.memory)
        self.reducer_end.close()


class DataPaths:
    """Those that trainers have and their reducers don't yet, by reducer."""

    def __init__(self) -> None:
        self._open: dict[ChildId, DataPath] = {}

    def open(self, reducer: ChildId) -> tuple[int, socket.socket]:
        """Make a path; the memory and the trainer's end of it, which the caller closes.

        Raises:
            OSError: no descriptors or memory left.
        """
        memory = create_memory()
        try:
            trainer_end, reducer_end = socket.socketpair()
        except BaseException:
            os.close(memory)
            raise
        self._open[reducer] = DataPath(memory, reducer_end)
        return memory, trainer_end

    def to(self, reducer: ChildId) -> DataPath | None:
        return self._open.get(reducer)

    def close(self, reducer: ChildId) -> None:
        """Our copies of it, if there is one."""
        path = self._open.pop(reducer, None)
        if path is not None:
            path.close()

    def close_all(self) -> None:
        for reducer in list(self._open):
            self.close(reducer)
