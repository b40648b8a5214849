"""The node that makes members has all renew their certificates. What others say is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from elasticd.core.words.codec import from_plain, to_plain
from elasticd.core.words.connections import NodeInfo, PutOut
from elasticd.core.words.requests.nodes import RotateCertificates, RotationTold
from elasticd.errors import OperationError
from elasticd.shell.assembly.renewing import Renewing, Surroundings
from elasticd.shell.assembly.rotating import KnownNodes, Rotating
from elasticd.shell.network.credentials import Credentials
from elasticd.shell.storage import papers
from elasticd.trust import renewal
from elasticd.trust.renewal import Renewal
from elasticd.trust.revoked import Revoked
from elasticd.types import NodeId
from tests.members import authority_of, member

ME, B, C = NodeId("me"), NodeId("b"), NodeId("c")


class NoConnections:
    def __init__(self) -> None:
        self.anew = 0

    def dialled(self) -> list[str]:
        return []

    def dial_now(self) -> None: ...

    async def connect_anew(self) -> None:
        self.anew += 1

    def end_old(self) -> None: ...


class World:
    """One daemon that makes members; ``infos`` is what others have said, ``present`` who is
    there."""

    def __init__(self, home: Path, settle_seconds: float = 0.0) -> None:
        self.home = home
        shown = papers.read(home), *papers.shown(home)
        known = papers.read_renewal(home)
        self.credentials = Credentials(*shown, papers.read_revoked(home), known)
        self.infos: dict[NodeId, NodeInfo] = {}
        self.present = {ME}
        self.done: list[object] = []
        self.connections = NoConnections()
        around = Surroundings(
            lambda: self.connections, list, self.done.append, self.done.append, lambda: None
        )
        self.own = Renewing(home, self.credentials, "h:1", around)
        every = lambda: {ME, *self.infos}  # noqa: E731
        known_nodes = KnownNodes(
            every, every, lambda: self.present, lambda: self.infos, lambda _: 0
        )
        self.rotating = Rotating(
            home, self.credentials, self.own, known_nodes, self.done.append,
            lambda kind, text: self.done.append(f"{kind}: {text}"), settle_seconds=settle_seconds,
        )  # fmt: skip
        self.told: list[RotationTold] = []

    def says(self, node: NodeId, serial: int | None, makes: bool = False) -> None:
        """``None``: it runs a version that can't renew."""
        word = "" if serial is None else renewal.word_of(serial)
        self.infos[node] = NodeInfo("h:2", 1, "arm", 1, "1", word, makes)
        self.present.add(node)
        self.rotating.go_on()

    async def send(self, said: Any) -> None:
        self.told.append(from_plain(RotationTold, to_plain(said)))

    async def asked(self) -> None:
        await self.rotating.asked(RotateCertificates(), self)  # type: ignore[arg-type]

    async def until(self, true: Callable[[], object]) -> None:
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.rotating.close()
        await self.own.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    papers.write(tmp_path, member(ME), authority_of("test").key)
    return tmp_path


def play(home: Path, main: Callable[[World], Awaitable[None]], **settings: float) -> World:
    async def body() -> World:
        world = World(home, **settings)
        world.own.start()
        world.rotating.start()
        async with asyncio.timeout(20):
            await main(world)
        await world.close()
        return world

    return asyncio.run(body())


def test_a_node_alone_renews_its_own_and_takes_the_old_one_no_more(home: Path) -> None:
    before = papers.read(home)

    async def main(world: World) -> None:
        own = world.credentials.own
        await world.asked()
        assert world.credentials.renewal.refuses(own) and world.credentials.own != own
        await world.own.close()

    world = play(home, main)
    now = papers.read(home)
    assert now.key != before.key and world.credentials.member == now
    assert papers.read_renewal(home) == world.credentials.renewal
    assert not world.credentials.renewal.is_under_way
    last = world.told[-1]
    assert (last.renewed, last.waiting, last.away, last.refused) == ((ME,), (), (), True)
    assert "certificates_rotated: 1 of 1 nodes have new certificates" in world.done


def test_old_ones_are_taken_until_all_that_are_there_have_new_ones(home: Path) -> None:
    async def main(world: World) -> None:
        world.says(B, 1)
        world.says(C, 1)
        world.present.remove(C)
        asking = asyncio.create_task(world.asked())
        await world.until(lambda: world.told and world.told[-1].renewed == (ME,))
        assert (world.told[-1].waiting, world.told[-1].away) == ((B,), (C,))
        assert world.credentials.renewal.refused == 0
        # Said again it is the same rotation.
        wanted = world.credentials.renewal.wanted
        again = asyncio.create_task(world.asked())
        world.says(B, wanted + 1)
        await asyncio.gather(asking, again)
        assert world.credentials.renewal == Renewal(wanted, wanted)
        assert world.told[-1] == RotationTold(world.told[-1].wanted_unix, (B, ME), (), (C,), True)
        assert PutOut({}, *Renewal(wanted).words()) in world.done

    play(home, main)


def test_one_that_was_put_out_is_not_waited_for(home: Path) -> None:
    async def main(world: World) -> None:
        world.says(B, 1)
        world.credentials.revoked = Revoked({world.credentials.member.name_of(B): 1})
        await world.asked()
        assert world.told[-1].renewed == (ME,) and world.told[-1].refused

    play(home, main)


def test_it_goes_on_after_a_restart_once_those_that_are_there_can_be_known(home: Path) -> None:
    async def begin(world: World) -> None:
        world.says(B, 1)
        asking = asyncio.create_task(world.asked())
        await world.until(lambda: world.told and world.told[-1].renewed == (ME,))
        asking.cancel()

    assert play(home, begin).credentials.renewal.is_under_way

    async def go_on(world: World) -> None:
        world.infos[B] = NodeInfo("h:2", 1, "arm", 1, "1", "1")  # it is listed, and isn't there yet
        asking = asyncio.create_task(world.asked())
        await world.until(lambda: len(world.told) > 1)  # it has looked more than once
        assert world.told[-1].away == (B,) and world.credentials.renewal.is_under_way
        world.says(B, world.credentials.renewal.wanted + 1)
        await asking
        assert world.told[-1].renewed == (B, ME)

    play(home, go_on, settle_seconds=60.0)


def test_a_version_that_cannot_renew_is_named_and_nothing_begins(home: Path) -> None:
    async def main(world: World) -> None:
        world.says(B, None)
        with pytest.raises(OperationError, match=r"b runs a version .* upgrade it first"):
            await world.asked()
        assert world.credentials.renewal == Renewal() == papers.read_renewal(home)

    play(home, main)


def test_another_node_says_where(home: Path) -> None:
    (papers.folder_of(home) / papers.AUTHORITY_KEY).unlink()

    async def main(world: World) -> None:
        for makes, said in ((False, "on the node where 'cluster init' was run"), (True, "on b")):
            world.says(B, 1, makes)
            with pytest.raises(OperationError, match=f"me makes no certificates: say it {said}"):
                await world.asked()

    play(home, main)


def test_a_disk_that_takes_nothing_begins_nothing(home: Path) -> None:
    async def main(world: World) -> None:
        stuck = papers.folder_of(home) / "renewal.json.partial"
        stuck.mkdir()
        with pytest.raises(OSError):
            await world.asked()
        assert world.credentials.renewal == Renewal()
        stuck.rmdir()
        await world.asked()

    play(home, main)


def test_a_certificate_that_is_on_the_disk_and_was_not_shown_is_shown(home: Path) -> None:
    """Its disk failed while key and certificate took their places."""

    async def main(world: World) -> None:
        from elasticd.shell.storage import founding

        founder = founding.founder_of(home)
        assert founder is not None
        request = founding.next_request(home)
        wanted = Renewal(world.credentials.own.serial)
        certificate = founder.issue(request, ME, world.credentials.member.secret)
        papers.write_renewal(home, wanted)
        papers.renew(home, certificate)
        world.own.heard(wanted)
        await world.until(lambda: world.credentials.member.certificate == certificate)

    play(home, main)
