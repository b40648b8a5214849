"""Who is put out is cut off at once, told to all, and out after a restart, too."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from elasticd.core.words.connections import PutOut
from elasticd.errors import ProtocolError
from elasticd.shell.assembly.expulsion import Expulsion
from elasticd.shell.storage import issuing, papers
from elasticd.trust.authority import issued, new_key, request_of
from elasticd.trust.issuing import GivenCertificate
from elasticd.trust.names import Issued
from elasticd.trust.tokens import opened
from elasticd.types import NodeId
from tests.members import authority_of, credentials, member

OUT = NodeId("out")


class World:
    """What an expulsion does, in order."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.credentials = credentials("me")
        papers.write(home, self.credentials.member)
        self.done: list[object] = []
        self.seen = 0
        self.failures: list[OSError] = []
        self.expulsion = Expulsion(
            home,
            self.credentials,
            lambda: self.done.append("cut off"),
            self.done.append,
            self.failures.append,
            self.done.append,
            lambda: [OUT],
            lambda node: self.seen,
        )

    @property
    def stored(self) -> PutOut:
        return PutOut(papers.read_revoked(self.home).words())


def test_a_certificate_of_before_is_taken_no_more_and_a_later_one_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = issued(member(OUT).certificate)
    asyncio.run(world.expulsion.put_out(OUT))
    assert world.credentials.revoked.holds(before)
    assert world.done == ["cut off", world.expulsion.known]
    assert world.stored == world.expulsion.known
    assert not world.credentials.revoked.holds(issued(member("other").certificate))
    later = asyncio.run(_a_moment_later())
    assert not world.credentials.revoked.holds(later)


def test_a_certificate_from_a_clock_that_is_ahead_is_taken_no_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    ahead = datetime.now(UTC) + timedelta(days=1)
    founder = authority_of("test")
    certificate = founder.issue(request_of(new_key()), OUT, world.credentials.member.secret, ahead)
    world.seen = issued(certificate).serial
    asyncio.run(world.expulsion.put_out(OUT))
    assert world.credentials.revoked.holds(issued(certificate))


def test_who_is_put_out_comes_back_with_no_open_token(tmp_path: Path) -> None:
    world = World(tmp_path)
    asyncio.run(world.expulsion.put_out(OUT))
    assert not (papers.folder_of(tmp_path) / papers.TOKENS).exists(), "it makes no members"
    papers.write(tmp_path, world.credentials.member, authority_of("test").key)
    issuing.open_token(tmp_path, opened(b"secret", 2e9, 3), 1e9)
    assert papers.read_tokens(tmp_path)
    asyncio.run(world.expulsion.put_out(OUT))
    assert papers.read_tokens(tmp_path) == ()


async def _a_moment_later() -> Issued:
    await asyncio.sleep(0.002)  # serials count milliseconds
    return issued(member(OUT).certificate)


def test_what_another_says_is_cut_off_kept_and_passed_on_once(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    teller, hearer = World(tmp_path / "a"), World(tmp_path / "b")

    async def main() -> None:
        await teller.expulsion.put_out(OUT)
        word = teller.expulsion.known
        assert word is not None
        for _ in range(2):
            hearer.expulsion.heard(word)
        assert hearer.done == ["cut off", word]
        await hearer.expulsion.written()
        assert hearer.stored == word

    asyncio.run(main())


@pytest.mark.parametrize("serials", [{"x" * 32: "no"}, {"short": "1"}, {"x" * 32: "-1"}])
def test_nonsense_is_refused(tmp_path: Path, serials: dict[str, str]) -> None:
    world = World(tmp_path)
    with pytest.raises(ProtocolError, match="no certificate"):
        world.expulsion.heard(PutOut(serials))
    assert world.done == [] and world.expulsion.known is None


def test_a_disk_that_takes_nothing_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    word = PutOut({"0" * 32: "ff"})

    async def main() -> None:
        papers.folder_of(tmp_path).rename(tmp_path / "gone")
        world.expulsion.heard(word)
        await world.expulsion.written()

    asyncio.run(main())
    assert len(world.failures) == 1 and world.credentials.revoked.words() == word.serials


def test_what_renews_a_certificate_of_one_that_was_put_out_is_taken_no_more(tmp_path: Path) -> None:
    """Where it was made; who puts the node out knows only the certificate before."""
    world = World(tmp_path)
    papers.write(tmp_path, world.credentials.member, authority_of("test").key)
    name = world.credentials.member.name_of(OUT)
    issuing.write(tmp_path, {OUT: GivenCertificate(9, "key", 1.0, "h:1", first=7)})

    async def main() -> None:
        world.expulsion.heard(PutOut({name: "7"}))
        await world.expulsion.written()

    asyncio.run(main())
    assert world.credentials.revoked.holds(Issued(name, 9))
    assert world.stored == world.expulsion.known == world.done[-1] == PutOut({name: "9"})


def test_a_register_that_is_damaged_lets_nobody_in_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    papers.write(tmp_path, world.credentials.member, authority_of("test").key)
    (papers.folder_of(tmp_path) / issuing.ISSUED).write_bytes(b"{")
    asyncio.run(world.expulsion.put_out(OUT))
    assert world.stored == world.expulsion.known is not None
