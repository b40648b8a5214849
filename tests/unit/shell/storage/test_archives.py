"""Jobs' folders on one node, and what a power cut or a bad disk makes of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd import archive
from elasticd.core.words import effects as e
from elasticd.core.words.bulk import KeepArchive, Want, WantArchive
from elasticd.core.words.codec import UNKNOWN
from elasticd.core.words.records import JobRecord
from elasticd.errors import OperationError, ProtocolError
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.archives import (
    ASKING_SECONDS,
    MAX_COPYING,
    MAX_WAITING,
    STRAY_LOOKS,
    Archives,
)
from elasticd.shell.storage.arrival import Arrival, Settle
from elasticd.shell.storage.durable import PARTIAL_SUFFIX, settle
from elasticd.shell.storage.spreading import Spread
from elasticd.types import JobId, NodeId
from tests.tinydisk import tiny_disk
from tests.unit.nested import nest
from tests.unit.shell.hungdisk import HungDisk

JOB = JobId("job-1")


class Peer:
    """Another node, which has an archive."""

    def __init__(self, data: bytes) -> None:
        self.data, self.asked = data, 0
        self.next = b""
        """What it has the next time, if that is something else."""

    def connected(self) -> list[NodeId]:
        return [NodeId("other")]

    async def fetch(
        self, node: NodeId, wanted: WantArchive, sink: int, limit_bytes: int | None = None
    ) -> int:
        self.asked += 1
        given, self.data = self.data, self.next or self.data
        return os.write(sink, given)


class Home:
    """A node that has been sent a job."""

    def __init__(self, folder: Path) -> None:
        script = folder / "sent"
        (script / "lib").mkdir(parents=True)
        (script / "train.py").write_text("import lib.model\n")
        (script / "lib" / "model.py").write_text("x = 1\n")
        packed = archive.pack(script)
        self.record = JobRecord(JOB, 1, {"job": {"name": "job"}}, packed.digest, "running")
        self.tar = folder / "archives" / f"{packed.digest}.tar"
        self.work = folder / "work" / JOB
        self.peer = Peer(packed.data)
        self.folder = folder
        asyncio.run(self.start().keep(packed.data, packed.digest))

    def start(self, settle: Settle = settle, asking_seconds: float = ASKING_SECONDS) -> Archives:
        peer = cast(Neighbours, self.peer)
        self.told: list[Any] = []
        folder = self.folder / "archives"
        work, told = self.work, self.told.append
        return Archives(folder, peer, lambda _: work, told, settle, asking_seconds=asking_seconds)

    def ensure(self) -> None:
        """A daemon starts and is told that the job runs here."""
        asyncio.run(self.start().ensure(self.record))
        assert self.told == [e.ArchiveReady(JOB, True, "")]
        assert (self.work / "train.py").read_text() == "import lib.model\n"
        assert (self.work / "lib" / "model.py").read_text() == "x = 1\n"


def _emptied(home: Home) -> None:
    (home.work / "lib" / "model.py").write_bytes(b"")


def _zeros(home: Home) -> None:
    (home.work / "train.py").write_bytes(bytes(17))


def _half(home: Home) -> None:
    (home.work / "train.py").unlink()
    left = home.work.parent / f".{JOB}.abc"
    left.mkdir()
    (left / "train.py").write_bytes(b"")


def _deep(home: Home) -> None:
    """A script, or whoever tidies up by hand, has left folders in each other without end."""
    (home.work / "train.py").unlink()
    nest(home.work, "d", 1100)
    nest(home.work.parent / f".{JOB}.abc", "d", 1100)


@pytest.mark.parametrize("cut", [_emptied, _zeros, _half, _deep])
def test_a_working_folder_that_a_power_cut_emptied_is_unpacked_again(
    tmp_path: Path, cut: Callable[[Home], None]
) -> None:
    home = Home(tmp_path)
    home.ensure()
    cut(home)
    home.ensure()
    assert [path.name for path in home.work.parent.iterdir()] == [JOB]
    assert home.peer.asked == 0


def test_a_sound_working_folder_is_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.ensure()
    before = home.work.stat().st_ino
    home.ensure()
    assert home.work.stat().st_ino == before


@pytest.mark.parametrize("content", [b"", bytes(1024)])
def test_a_damaged_archive_is_fetched_from_another_node(tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path)
    home.tar.write_bytes(content)
    home.ensure()
    assert home.peer.asked == 1 and home.tar.read_bytes() == home.peer.data


def test_why_nobody_gives_an_archive_is_told_before_it_is_asked_for_again(tmp_path: Path) -> None:
    """People see it, and the control plane tries again; a minute of trying here says nothing."""
    assert ASKING_SECONDS <= 2.0
    home = Home(tmp_path)
    home.tar.unlink()
    home.peer.data = b"another"
    asyncio.run(home.start(asking_seconds=0.01).ensure(home.record))
    (said,) = home.told
    assert not said.ok and "other: " in said.reason


def test_an_archive_that_nobody_gives_is_asked_for_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.tar.unlink()
    right, home.peer.data = home.peer.data, b"another"
    home.peer.next = right
    asyncio.run(home.start(asking_seconds=60.0).ensure(home.record))
    assert home.told == [e.ArchiveReady(JOB, True, "")]
    assert home.peer.asked == 2 and home.tar.read_bytes() == right


def test_the_loop_turns_while_an_archive_is_written(tmp_path: Path) -> None:
    home, disk = Home(tmp_path), HungDisk()
    data = home.tar.read_bytes()
    digest = archive.digest(data)
    home.tar.unlink()
    archives = home.start(settle=disk.slow(settle))
    asyncio.run(disk.turned(archives.keep(data, digest)))
    assert home.tar.read_bytes() == data


def test_the_loop_turns_while_an_archive_from_a_peer_is_written(tmp_path: Path) -> None:
    home, disk = Home(tmp_path), HungDisk()
    home.tar.unlink()
    archives = home.start(settle=disk.slow(settle))
    asyncio.run(disk.turned(archives.ensure(home.record)))
    assert home.told == [e.ArchiveReady(JOB, True, "")]
    assert archive.digest(home.tar.read_bytes()) == home.record.archive


def test_an_archive_that_is_being_submitted_stays(tmp_path: Path) -> None:
    """It is there before its job is known."""
    home = Home(tmp_path)
    archives = home.start()

    def remove(used: bool) -> None:
        asyncio.run(archives.remove(home.record.archive, lambda: used))

    with archives.held(home.record.archive):
        remove(used=False)
        assert home.tar.exists()
    remove(used=True)
    assert home.tar.exists(), "its job is known by now"
    remove(used=False)
    assert not home.tar.exists()


def test_what_the_disk_keeps_is_told_and_keeps_no_other_here(tmp_path: Path) -> None:
    """Nor the daemon from starting: the archives may lie on another disk than its home."""
    home = Home(tmp_path)
    kept, other = home.tar, home.tar.with_name("other.tar")
    kept.unlink()
    for path in (kept, kept.with_name(f".arriving-{PARTIAL_SUFFIX}")):
        path.mkdir()  # no unlink removes that
    archives = home.start()

    async def main() -> None:
        done, why = await archives.remove(kept.stem, lambda: False)
        assert not done and str(kept) in why
        assert await archives.remove(kept.stem, lambda: True) == (True, "")
        other.touch()
        stay = [await archives.remove_strays(set[str]) for _ in range(STRAY_LOOKS)]
        assert stay[:-1] == [[]] * (STRAY_LOOKS - 1) and [str(kept) in w for w in stay[-1]] == [
            True
        ]

    asyncio.run(main())
    assert kept.exists() and not other.exists()


def test_the_same_archive_twice_at_a_time_is_whole(tmp_path: Path) -> None:
    home, disk = Home(tmp_path), HungDisk()
    data = home.tar.read_bytes()
    digest = archive.digest(data)
    archives = home.start(settle=disk.slow(settle))

    async def twice() -> None:
        first = asyncio.create_task(archives.keep(data, digest))
        while not disk.came.is_set():  # noqa: ASYNC110  a heartbeat each
            await asyncio.sleep(0)
        first.cancel()  # its client hung up
        second = asyncio.create_task(archives.keep(data, digest))
        await asyncio.sleep(0)
        disk.go.set()
        await second

    asyncio.run(twice())
    assert home.tar.read_bytes() == data
    assert [path.name for path in home.tar.parent.iterdir()] == [home.tar.name]


class Other:
    """The other node, as the first one sees it: what it is asked it does with its own archives."""

    me = NodeId("first")

    def __init__(self, archives: Archives, unknown: bool = False) -> None:
        self.archives, self.unknown = archives, unknown

    async def fetch(
        self, node: NodeId, wanted: Want, sink: int, limit_bytes: int | None = None
    ) -> int:
        if self.unknown:
            raise OperationError(f"keep_archive from 10.0.0.2:7070: {UNKNOWN} 'keep_archive'")
        assert isinstance(wanted, KeepArchive) and wanted.source == self.me
        await self.archives.keep_copy(wanted.digest, wanted.source)
        return 0


def other_node(home: Home) -> Archives:
    """Its archives, which it fetches from ``home``."""
    peer = cast(Neighbours, home.peer)
    return Archives(home.folder / "other", peer, lambda _: home.work, home.told.append)


def spread_to(home: Home, other: Other) -> Spread:
    archives = home.start()
    archives._neighbours = cast(Neighbours, other)
    return asyncio.run(archives.spread(home.record.archive, other.me, [NodeId("other")], 1))


def test_another_node_keeps_a_copy_and_fetches_it_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    other = other_node(home)
    for _ in range(2):
        assert spread_to(home, Other(other)) == Spread((NodeId("other"),), {})
    assert home.peer.asked == 1
    kept = tmp_path / "other" / home.tar.name
    assert [*kept.parent.iterdir()] == [kept] and kept.read_bytes() == home.tar.read_bytes()


def test_what_is_not_what_its_digest_says_is_not_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.peer.data = b"something else"
    found = spread_to(home, Other(other_node(home)))
    assert found == Spread((), {NodeId("other"): "the archive's digest does not match"})
    assert [*(tmp_path / "other").iterdir()] == []


def test_a_node_of_an_earlier_version_keeps_no_copy(tmp_path: Path) -> None:
    home = Home(tmp_path)
    found = spread_to(home, Other(other_node(home), unknown=True))
    assert found == Spread((), {NodeId("other"): "its elasticd is older, and takes no copies"})


def test_a_copy_stays_until_its_job_is_known(tmp_path: Path) -> None:
    """Another job that had the same files may be forgotten just then."""
    home = Home(tmp_path)
    other = other_node(home)

    async def main() -> None:
        await other.keep_copy(home.record.archive, NodeId("first"))
        await other.remove(home.record.archive, lambda: False)

    asyncio.run(main())
    assert (tmp_path / "other" / home.tar.name).exists()


def test_what_a_submission_has_left_goes_unless_its_job_becomes_known(tmp_path: Path) -> None:
    home = Home(tmp_path)
    digest = home.record.archive

    async def main() -> None:
        archives, jobs = home.start(), set[str]()

        async def look(times: int) -> bool:
            for _ in range(times):
                await archives.remove_strays(lambda: jobs)
            return home.tar.exists()

        assert await look(STRAY_LOOKS - 1)
        with archives.held(digest):  # it is submitted again
            assert await look(STRAY_LOOKS)
        assert await look(STRAY_LOOKS - 1)
        jobs.add(digest)
        assert await look(STRAY_LOOKS)
        jobs.clear()
        assert await look(STRAY_LOOKS - 1) and not await look(1)

    asyncio.run(main())


def test_no_more_copies_wait_than_there_are_places_for(tmp_path: Path) -> None:
    """Each may be of a hundred MiB, and whoever asks has other nodes to ask."""
    home = Home(tmp_path)
    limit = MAX_COPYING + MAX_WAITING

    async def story() -> None:
        may, digests = asyncio.Event(), [f"{number:064x}" for number in range(limit)]

        class Slow(Peer):
            async def fetch(self, *_: Any) -> int:
                await may.wait()
                raise OperationError("it has gone")

        home.peer = Slow(b"")
        copies = other_node(home)
        work = [asyncio.create_task(copies.keep_copy(d, NodeId("first"))) for d in digests]
        await asyncio.sleep(0)  # all have begun
        with pytest.raises(OperationError, match=f"^{limit} other archives are being copied"):
            await copies.keep_copy(home.record.archive, NodeId("first"))
        may.set()
        ends = await asyncio.gather(*work, return_exceptions=True)
        assert {str(end) for end in ends} == {"it has gone"}
        with pytest.raises(OperationError, match="it has gone"):
            await copies.keep_copy(digests[0], NodeId("first"))

    asyncio.run(story())


def test_what_is_being_removed_is_not_taken_for_a_copy(tmp_path: Path) -> None:
    """It is looked for when nothing is being removed: it would be gone behind the answer."""
    home = Home(tmp_path)
    archives, seen = home.start(), list[bool]()
    looked = archives._is_sound

    def look(digest: str) -> bool:
        seen.append(archives._storing.locked())
        return looked(digest)

    archives._is_sound = look  # type: ignore[method-assign]

    async def main() -> None:
        removing = asyncio.create_task(archives.remove(home.record.archive, lambda: False))
        await asyncio.sleep(0)  # it has found that nobody needs it
        await archives.keep_copy(home.record.archive, NodeId("first"))
        await removing

    asyncio.run(main())
    assert seen == [True] and home.tar.exists() and home.peer.asked == 1


@pytest.mark.parametrize("digest", ["../sent/train", "", "a/b", "\0"])
def test_a_name_from_elsewhere_is_none_of_a_file(tmp_path: Path, digest: str) -> None:
    archives = Home(tmp_path).start()
    with pytest.raises(ProtocolError, match="bad digest"):
        archives.open(digest)
    with pytest.raises(ProtocolError, match="bad digest"):
        asyncio.run(archives.keep_copy(digest, NodeId("first")))


def test_an_archive_that_does_not_come_whole_leaves_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    archives = home.start()

    async def hangs_up() -> None:
        with archives.arrival() as arriving:
            await asyncio.to_thread(arriving.write, b"half")
            assert len([*home.tar.parent.iterdir()]) == 2
            raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(hangs_up())
    assert [*home.tar.parent.iterdir()] == [home.tar]


def test_what_a_killed_daemon_was_receiving_goes_at_the_next_start(tmp_path: Path) -> None:
    home = Home(tmp_path)
    Arrival(home.tar.parent).write(b"half")
    assert len([*home.tar.parent.iterdir()]) == 2
    home.start()
    assert [*home.tar.parent.iterdir()] == [home.tar]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_sound_archive_that_came_while_a_damaged_one_was_read_stays(
    tmp_path: Path, replaced: bool
) -> None:
    home = Home(tmp_path)
    archives, sound = home.start(), home.tar.read_bytes()
    home.tar.write_bytes(b"damaged")
    with home.tar.open("rb") as reading:
        if replaced:
            beside = home.tar.with_suffix(".new")
            beside.write_bytes(sound)
            beside.rename(home.tar)
        archives._damaged(home.record.archive, reading.fileno())
    assert home.tar.exists() is replaced


@pytest.mark.process
def test_a_disk_that_takes_no_archive_is_named_by_its_folder(tmp_path: Path) -> None:
    """Nobody knows the file that it was to be while it came."""
    home = Home(tmp_path)
    home.tar.unlink()
    with tiny_disk(tmp_path / "archives", files=1):
        with pytest.raises(OSError, match="No space left") as caught:
            asyncio.run(home.start().keep(b"x", archive.digest(b"x")))
        assert caught.value.filename == str(tmp_path / "archives")
