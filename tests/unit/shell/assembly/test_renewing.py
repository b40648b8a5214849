"""A node that has to renew its certificate asks until it gets one, sooner when there is news."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from elasticd.shell.assembly import renewing
from elasticd.shell.assembly.renewing import Renewing, Surroundings
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from tests.members import member


class Alone:
    """Nobody is connected."""

    def dialled(self) -> list[str]:
        return []

    def dial_now(self) -> None: ...

    async def connect_anew(self) -> None: ...

    def end_old(self) -> None: ...


class Asking:
    """A node that nobody gives a new certificate."""

    def __init__(self, home: Path) -> None:
        papers.write(home, own := member("a"))
        credentials = Credentials(own, *papers.shown(home), Revoked())
        credentials.renewal = Renewal(credentials.own.serial)
        self.times, self.asked = 0, asyncio.Event()
        connections = Alone()
        around = Surroundings(
            lambda: connections, self.issuers, lambda _: None, lambda _: None, lambda: None
        )
        self.renewing = Renewing(home, credentials, "h:1", around)

    def issuers(self) -> list[str]:
        self.times += 1
        self.asked.set()
        return []

    async def until_asked(self, times: int) -> None:
        """It has asked so often."""
        while self.times < times:
            self.asked.clear()
            await self.asked.wait()


def test_news_makes_no_pause_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewing, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(renewing, "LONGEST_PAUSE_SECONDS", 3600.0)

    async def main() -> None:
        node = Asking(tmp_path)
        node.renewing.start()
        async with asyncio.timeout(60):
            for _ in range(25):
                node.renewing.met()
                await node.until_asked(node.times + 1)
            # Counted with those, these would be pauses of hours.
            await node.until_asked(node.times + 3)
        await node.renewing.close()

    asyncio.run(main())
