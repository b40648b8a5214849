"""That the home is still the folder in which the daemon began. If its disk goes, what a daemon has
open there may go on to work, and what it makes would lie where the disk was."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from elasticd.errors import DiskError

LOOK_SECONDS = 2.0


class HomeWatch:
    """One daemon's."""

    def __init__(self, home: Path, gone: Callable[[DiskError], object]) -> None:
        """``gone`` is told once it is another one, or none.

        Raises:
            OSError: it can't be looked at.
        """
        self._home, self._gone, self._began = home, gone, os.stat(home)

    async def rounds(self) -> None:
        """Until it is another one."""
        while True:
            try:
                await asyncio.to_thread(self.look)
            except DiskError as error:
                self._gone(error)
                return
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Raises DiskError: it is another one, or none. A disk that only refuses is found by what
        is written there."""
        try:
            same = os.path.samestat(os.stat(self._home), self._began)
        except (FileNotFoundError, NotADirectoryError):
            same = False
        except OSError:
            return
        if not same:
            raise DiskError(
                f"{self._home}: is not the folder any more in which the daemon began; mount the"
                " disk that it is on, or put it back, and start the daemon again"
            )
