"""A node that has to renew its certificate asks until it gets one, sooner when there is news."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from elasticd.shell import tasks
from elasticd.shell.assembly import renewing
from elasticd.shell.assembly.renewing import Renewing, Surroundings
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.trust.member import MemberPapers
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


class FewFiles(Credentials):
    """Of a node that has no descriptor to spare, or worse, for so many times."""

    fails: Sequence[Exception] = ()

    def show(self, member: MemberPapers, certificate: Path, key: Path) -> None:
        if self.fails:
            first, *self.fails = self.fails
            raise first
        super().show(member, certificate, key)


class Asking:
    """A node that nobody gives a new certificate."""

    def __init__(self, home: Path, shown: Callable[[], None] = lambda: None) -> None:
        papers.write(home, own := member("a"))
        credentials = self.credentials = FewFiles(own, *papers.shown(home), Revoked())
        credentials.renewal = Renewal(credentials.own.serial)
        self.times, self.asked = 0, asyncio.Event()
        connections = Alone()
        around = Surroundings(
            lambda: connections, self.issuers, lambda _: None, lambda _: None, shown
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


@pytest.mark.parametrize(
    "failure", [OSError(errno.EMFILE, "Too many open files"), LookupError("nobody knew of that")]
)
def test_a_new_certificate_that_cannot_be_shown_is_shown_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(renewing, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.001)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        shown = asyncio.Event()
        node = Asking(tmp_path, shown.set)
        papers.write(tmp_path, new := member("a"))
        node.credentials.fails = [failure, failure]
        node.renewing.start()
        async with asyncio.timeout(60):
            await shown.wait()
        assert node.credentials.member.certificate == new.certificate
        await node.renewing.close()

    asyncio.run(main())


def test_what_was_shown_before_stays_if_what_is_new_cannot_be_read(tmp_path: Path) -> None:
    node = Asking(tmp_path)
    before, at = node.credentials.own, node.credentials.member
    with pytest.raises(FileNotFoundError):
        node.credentials.show(member("a"), tmp_path / "gone.pem", tmp_path / "gone.key")
    assert node.credentials.member is at and node.credentials.own == before
