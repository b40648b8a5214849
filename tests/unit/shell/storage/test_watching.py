"""To watch a folder is to walk it: no call of the library may be made in the loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from watchdog.events import FileSystemEvent, FileSystemEventHandler

from elasticd.shell.control import jobsfolder, notedids
from elasticd.shell.control.jobsfolder import (
    ACCEPTED_NAME,
    SUBMITTED_SUFFIX,
    ItsId,
    JobsFolder,
)
from elasticd.shell.storage import watching
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.watching import FolderWatch
from elasticd.types import JobId
from tests.unit.shell.hungdisk import HungDisk
from tests.unit.shell.storage.storednode import PEER, Node

Run = Callable[[Coroutine[Any, Any, None]], None]


class Hanging:
    """Like the library's observer, on a disk that hangs; notes its calls."""

    def __init__(self, disk: HungDisk, *, refuses: bool = False) -> None:
        self.disk, self.refuses = disk, refuses
        self.calls: list[str] = []

    def __call__(self) -> Hanging:
        return self

    def _call(self, name: str) -> None:
        self.disk.wait()
        self.calls.append(name)

    def schedule(
        self, handler: FileSystemEventHandler, path: str, *, recursive: bool = False
    ) -> None:
        self._call("schedule")

    def start(self) -> None:
        self._call("start")
        if self.refuses:
            raise OSError("inotify watch limit reached")

    def stop(self) -> None:
        self._call("stop")

    def join(self, seconds: float | None = None) -> None:
        self._call("join")


WHOLE = ["schedule", "start", "stop", "join"]


class Notes(FileSystemEventHandler):
    def __init__(self, told: Callable[[str], object]) -> None:
        self.told = told

    def on_any_event(self, event: FileSystemEvent) -> None:
        self.told(Path(str(event.src_path)).name)


def test_the_loop_turns_while_a_folder_is_walked(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk = HungDisk()
        observer = Hanging(disk)
        monkeypatch.setattr(watching, "Observer", observer)
        watch = FolderWatch()
        await disk.turned(watch.start(tmp_path, FileSystemEventHandler(), recursive=True))
        assert observer.calls == ["schedule", "start"]
        disk.go.clear()
        await disk.turned(watch.close())
        assert observer.calls == WHOLE

    run(main())


def test_one_that_is_ended_while_it_starts_is_ended_after_that(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk = HungDisk()
        observer = Hanging(disk)
        monkeypatch.setattr(watching, "Observer", observer)
        watch = FolderWatch()
        starting = asyncio.create_task(
            watch.start(tmp_path, FileSystemEventHandler(), recursive=True)
        )
        await asyncio.to_thread(disk.came.wait)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await disk.turned(watch.close())
        assert observer.calls == WHOLE

    run(main())


def test_a_disk_that_hangs_keeps_nobody_from_ending(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk = HungDisk()
        monkeypatch.setattr(watching, "Observer", Hanging(disk))
        monkeypatch.setattr(watching, "CLOSE_SECONDS", 0.01)
        watch = FolderWatch()
        starting = asyncio.create_task(
            watch.start(tmp_path, FileSystemEventHandler(), recursive=True)
        )
        await asyncio.to_thread(disk.came.wait)
        await watch.close()
        disk.go.set()
        await starting

    run(main())


def test_who_starts_hears_that_it_could_not_be(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk = HungDisk()
        disk.go.set()
        observer = Hanging(disk, refuses=True)
        monkeypatch.setattr(watching, "Observer", observer)
        watch = FolderWatch()
        with pytest.raises(OSError, match="limit"):
            await watch.start(tmp_path, FileSystemEventHandler(), recursive=True)
        await watch.close()
        assert observer.calls == ["schedule", "start"]
        await FolderWatch().close()

    run(main())


def test_what_changes_is_told_until_it_ends(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        told: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        notes = Notes(lambda name: loop.call_soon_threadsafe(told.put_nowait, name))
        watch = FolderWatch()
        await watch.start(tmp_path, notes, recursive=True)
        (tmp_path / "new").write_bytes(b"")
        while await told.get() != "new":
            pass
        await watch.close()
        for _ in range(told.qsize()):
            told.get_nowait()
        (tmp_path / "later").write_bytes(b"")
        await asyncio.sleep(0)
        assert told.empty()

    run(main())


def test_the_store_is_walked_beside_the_loop(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk = HungDisk()
        observer = Hanging(disk)
        monkeypatch.setattr(watching, "Observer", observer)
        node = Node(tmp_path)
        scrubber = Scrubber(node.states, lambda: [PEER])
        scrubber.start()
        await disk.turned(asyncio.wait_for(scrubber.watched.wait(), None))
        await scrubber.close()
        assert observer.calls == WHOLE

    run(main())


@pytest.mark.usefixtures("soon_quiet")
@pytest.mark.parametrize(
    ("module", "name"), [(notedids, "write_durable"), (jobsfolder, "write_whole")]
)
def test_the_jobs_folder_has_the_disk_asked_beside_the_loop(
    module: ModuleType, name: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        disk, later = HungDisk(), HungDisk()
        observer = Hanging(disk)
        monkeypatch.setattr(watching, "Observer", observer)
        monkeypatch.setattr(module, name, later.slow(getattr(module, name)))
        folder = tmp_path / "jobs"
        folder.mkdir()
        (tmp_path / "a.toml").write_text("a")
        (tmp_path / "a.toml").rename(folder / "a.toml")
        submitted = asyncio.Event()

        async def submit(path: Path, its_id: ItsId) -> JobId:
            submitted.set()
            return JobId("job-1")

        jobs = await JobsFolder.start(folder, submit)
        await disk.turned(asyncio.wait_for(submitted.wait(), None))
        assert observer.calls == ["schedule", "start"]
        await asyncio.to_thread(later.came.wait)
        await later.turned(jobs.close())
        assert observer.calls == WHOLE
        # What had begun is done: a job that was taken is not to be taken twice.
        assert "job-1" in (folder / ACCEPTED_NAME).read_text()
        assert (folder / f"a{SUBMITTED_SUFFIX}").exists() == (name == "write_whole")

    run(main())
