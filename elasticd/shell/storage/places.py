"""Places for some who do what takes memory, threads or the network, and for some who wait."""

from __future__ import annotations

import asyncio

from elasticd.errors import OperationError


class Places:
    """Lets some be at it at once, and some more wait."""

    def __init__(self, most: int, waiting: int, taken: str) -> None:
        """``taken``: what is said to whoever finds everything taken, behind the number of those
        who are there: "other archives are being copied to it"."""
        self._free = asyncio.Semaphore(most)
        self._limit, self._there, self._taken = most + waiting, 0, taken

    async def begin(self) -> None:
        """Wait for a turn; :meth:`end` gives it back.

        Raises:
            OperationError: too many wait already.
        """
        if self._there >= self._limit:
            raise OperationError(f"{self._there} {self._taken}")
        self._there += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._there -= 1
            raise

    def end(self) -> None:
        self._there -= 1
        self._free.release()
