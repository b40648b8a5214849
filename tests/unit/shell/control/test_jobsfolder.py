"""A real folder, real renames, the kernel's real events."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.errors import OperationError, UsageError
from elasticd.removing import remove_tree
from elasticd.shell.control import jobsfolder as module
from elasticd.shell.control.jobsfolder import ItsId, JobsFolder, find_jobs
from elasticd.shell.storage.quiet import is_being_written
from elasticd.types import JobId
from tests.nobody import NOBODY, as_nobody

Run = Callable[[Coroutine[Any, Any, None]], None]


class Queue:
    """Takes what is submitted; says no to what the test wants it to."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refusals: dict[str, Exception] = {}
        self.calls: asyncio.Queue[str] = asyncio.Queue()
        self.numbers: Iterator[int] = itertools.count(1)
        self.jobs: list[JobId] = []
        """That each call that was let in had."""
        self.answers = asyncio.Event()
        self.answers.set()

    async def submit(self, path: Path, its_id: ItsId) -> JobId:
        text = path.read_text()  # noqa: ASYNC240
        job = await its_id(lambda: JobId(f"job-{next(self.numbers)}"))
        self.jobs.append(job)
        self.calls.put_nowait(text)
        if (error := self.refusals.get(text)) is not None:
            raise error
        await self.answers.wait()
        self.taken.append(text)
        return job


@contextlib.asynccontextmanager
async def watching(folder: Path, queue: Queue) -> AsyncIterator[JobsFolder]:
    jobs = await JobsFolder.start(folder, queue.submit)
    try:
        yield jobs
    finally:
        await jobs.close()


def rename_in(home: Path, name: str, text: str) -> Path:
    """Write beside and rename, as users are told to."""
    beside = home / "beside"
    beside.write_text(text)
    long_ago = time.time() - 60
    os.utime(beside, (long_ago, long_ago))
    return beside.rename(home / "jobs" / name)


def rename_folder_in(home: Path, name: str, text: str) -> Path:
    beside = home / "beside.d"
    beside.mkdir()
    (beside / "job.toml").write_text(text)
    (beside / "train.py").write_text("print()")
    long_ago = time.time() - 60
    for path in (beside / "job.toml", beside / "train.py", beside):
        os.utime(path, (long_ago, long_ago))
    return beside.rename(home / "jobs" / name)


async def appears(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240
        await asyncio.sleep(0.005)


def test_what_is_renamed_in_is_submitted_once(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        queue = Queue()
        async with watching(tmp_path / "jobs", queue):
            rename_in(tmp_path, "a.toml", "a")
            assert await queue.calls.get() == "a"
            rename_folder_in(tmp_path, "b", "b")
            assert await queue.calls.get() == "b"
            rename_in(tmp_path, "a again.toml", "a")
            rename_in(tmp_path, "c.toml", "c")
            assert await queue.calls.get() == "c"
        assert queue.taken == ["a", "b", "c"]
        again = Queue()
        async with watching(tmp_path / "jobs", again):  # a restart submits nothing twice
            rename_in(tmp_path, "d.toml", "d")
            assert await again.calls.get() == "d"
        assert again.taken == ["d"]

    run(main())


def test_what_lay_there_before_the_start_is_submitted(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        (tmp_path / "jobs").mkdir()
        rename_in(tmp_path, "b.toml", "b")
        rename_in(tmp_path, "a.toml", "a")
        queue = Queue()
        async with watching(tmp_path / "jobs", queue):
            assert [await queue.calls.get() for _ in range(2)] == ["a", "b"]

    run(main())


def test_a_refused_job_keeps_its_reason_until_it_is_replaced_or_gone(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        queue = Queue()
        queue.refusals["wrong"] = UsageError("job.toml:3: batch.micro: too large")
        reason, taken = tmp_path / "jobs" / "a.refused", tmp_path / "jobs" / "a.submitted"
        async with watching(tmp_path / "jobs", queue):
            rename_in(tmp_path, "a.toml", "wrong")
            await appears(reason)
            assert reason.read_text() == "job.toml:3: batch.micro: too large\n"
            rename_in(tmp_path, "a.toml", "right")
            while reason.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert queue.taken == ["right"]
            assert taken.read_text() == "job-2\n"
            path = rename_in(tmp_path, "a.toml", "wrong")
            await appears(reason)
            while taken.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            path.unlink()
            while reason.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    run(main())


def test_what_the_disk_keeps_beside_a_job_keeps_no_other_from_being_taken(
    tmp_path: Path, run: Run
) -> None:
    """The folder may lie on another disk than the home, and what the loop is told of that would
    end the daemon: the fixture sees to it that nothing is."""

    async def main() -> None:
        queue, jobs = Queue(), tmp_path / "jobs"
        queue.refusals["wrong"] = UsageError("it is wrong")
        for name in ("a.submitted", "a.refused"):
            (jobs / name).mkdir(parents=True)  # no unlink removes it
        async with watching(jobs, queue):
            path = rename_in(tmp_path, "a.toml", "wrong")
            assert await queue.calls.get() == "wrong"
            rename_in(tmp_path, "b.toml", "b")
            await appears(jobs / "b.submitted")
            path.unlink()
            rename_in(tmp_path, "c.toml", "c")
            await appears(jobs / "c.submitted")
        assert queue.taken == ["b", "c"]

    run(main())


@pytest.mark.usefixtures("soon_quiet")
def test_a_folder_that_cannot_be_shipped_is_refused(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        queue = Queue()
        (tmp_path / "jobs").mkdir()
        folder = rename_folder_in(tmp_path, "b", "b")
        (folder / "escape").symlink_to("/etc/passwd")
        async with watching(tmp_path / "jobs", queue):
            await appears(tmp_path / "jobs" / "b.refused")
            assert "escape" in (tmp_path / "jobs" / "b.refused").read_text()
        assert queue.taken == []

    run(main())


@pytest.fixture
def strangers_home() -> Iterator[Path]:
    """A home of somebody for whom permissions count: root reads everything."""
    with tempfile.TemporaryDirectory(prefix="elasticd-") as name:
        home = Path(name)
        (home / "jobs").mkdir()
        if os.geteuid() == 0:
            for path in (home, home / "jobs"):
                os.chown(path, NOBODY, -1)
        with as_nobody():
            yield home


@pytest.mark.usefixtures("soon_quiet")
@pytest.mark.parametrize("how", ["file", "script", "folder", "inside"])
def test_what_cannot_be_read_is_refused_and_keeps_no_other(
    strangers_home: Path, run: Run, how: str
) -> None:
    jobs = strangers_home / "jobs"

    async def main() -> None:
        queue = Queue()
        if how == "file":
            secret = rename_in(strangers_home, "a.toml", "a")
        elif how == "script":
            rest = "batch = { global = 2, micro = 1 }\ntrain = { steps = 1 }\n"
            text = f'{rest}[job]\nname = "a"\nentrypoint = "a.py"\n'
            rename_in(strangers_home, "a.toml", text)
            secret = rename_in(strangers_home, "a.py", "print()")
        else:
            folder = rename_folder_in(strangers_home, "a", "a")
            secret = folder if how == "folder" else folder / "job.toml"
        mode = secret.stat().st_mode
        secret.chmod(0)
        try:
            async with watching(jobs, queue):
                await appears(jobs / "a.refused")
                assert "can't be read" in (jobs / "a.refused").read_text()
                rename_in(strangers_home, "b.toml", "b")
                while queue.taken != ["b"]:
                    await queue.calls.get()
        finally:
            secret.chmod(mode)

    run(main())


def test_a_queue_that_cannot_take_it_now_is_asked_again(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)

    async def main() -> None:
        queue = Queue()
        queue.refusals["a"] = OperationError("no leader")
        async with watching(tmp_path / "jobs", queue):
            rename_in(tmp_path, "a.toml", "a")
            for _ in range(3):
                await queue.calls.get()
            assert not (tmp_path / "jobs" / "a.refused").exists()
            queue.refusals.clear()
            while not queue.taken:
                await queue.calls.get()
            assert queue.taken == ["a"]

    run(main())


def test_a_job_whose_answer_a_restart_has_cut_off_is_submitted_under_its_id(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        first, then = Queue(), Queue()
        first.answers.clear()
        async with watching(tmp_path / "jobs", first):
            rename_in(tmp_path, "a.toml", "a")
            await first.calls.get()
        assert not (tmp_path / "jobs" / "a.submitted").exists()
        then.numbers = itertools.count(7)
        async with watching(tmp_path / "jobs", then):
            await appears(tmp_path / "jobs" / "a.submitted")
        assert first.jobs == then.jobs == ["job-1"]
        assert (tmp_path / "jobs" / "a.submitted").read_text() == "job-1\n"

    run(main())


def test_a_job_that_was_not_noted_as_taken_is_submitted_under_its_id(
    tmp_path: Path, run: Run
) -> None:
    """As on a disk that is full by then."""

    async def main() -> None:
        queue, blocked = Queue(), tmp_path / "jobs" / f"{module.ACCEPTED_NAME}.partial"
        blocked.mkdir(parents=True)
        async with watching(tmp_path / "jobs", queue):
            rename_in(tmp_path, "a.toml", "a")
            await appears(tmp_path / "jobs" / "a.submitted")
            assert queue.calls.get_nowait() == "a" and queue.calls.empty()
        blocked.rmdir()
        async with watching(tmp_path / "jobs", queue):
            await queue.calls.get()
            await appears(tmp_path / "jobs" / module.ACCEPTED_NAME)
        assert queue.jobs == ["job-1", "job-1"]
        async with watching(tmp_path / "jobs", queue):
            rename_in(tmp_path, "b.toml", "b")
            assert await queue.calls.get() == "b"
        assert queue.jobs == ["job-1", "job-1", "job-2"]

    run(main())


def test_no_job_is_submitted_whose_id_is_not_noted(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.05)

    async def main() -> None:
        queue, blocked = Queue(), tmp_path / "jobs" / f"{module.DRAWN_NAME}.partial"
        drawn = asyncio.Queue[int]()

        def numbers() -> Iterator[int]:
            for number in itertools.count(1):
                drawn.put_nowait(number)
                yield number

        queue.numbers = numbers()
        blocked.mkdir(parents=True)
        async with watching(tmp_path / "jobs", queue):
            rename_in(tmp_path, "a.toml", "a")
            for _ in range(2):
                await drawn.get()
            assert queue.jobs == []
            blocked.rmdir()
            await queue.calls.get()
            await appears(tmp_path / "jobs" / "a.submitted")
        noted = json.loads((tmp_path / "jobs" / module.DRAWN_NAME).read_bytes())
        assert queue.jobs == [*noted.values()] and queue.taken == ["a"]

    run(main())


def test_the_id_of_a_refused_job_is_not_one_that_was_submitted(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        queue = Queue()
        queue.refusals["wrong"] = UsageError("no")
        for _ in range(2):
            async with watching(tmp_path / "jobs", queue):
                rename_in(tmp_path, "a.toml", "wrong")
                await queue.calls.get()
                await appears(tmp_path / "jobs" / "a.refused")
        assert queue.jobs == ["job-1", "job-1"]
        assert not (tmp_path / "jobs" / "a.submitted").exists()
        assert not (tmp_path / "jobs" / module.ACCEPTED_NAME).exists()

    run(main())


@pytest.mark.usefixtures("soon_quiet")
def test_what_is_written_in_place_is_taken_whole(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        queue = Queue()
        async with watching(tmp_path / "jobs", queue):
            with (tmp_path / "jobs" / "slow.toml").open("w") as file:
                for part in range(20):  # with pauses, as a copy over a network has
                    file.write(f"{part} ")
                    file.flush()
                    await asyncio.sleep(0.01 if sys.platform != "linux" else 0.03)
                    if sys.platform == "linux" and part == 10:
                        await asyncio.sleep(0.3)  # longer than the quiet time
            assert await queue.calls.get() == "".join(f"{part} " for part in range(20))

    run(main())


def test_other_files_are_left_alone(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        queue = Queue()
        async with watching(tmp_path / "jobs", queue):
            rename_in(tmp_path, ".hidden.toml", "hidden")
            rename_in(tmp_path, "train.py", "script")
            (tmp_path / "jobs" / "empty").mkdir()
            (tmp_path / "jobs" / "link.toml").symlink_to("/etc/passwd")
            rename_in(tmp_path, "z.toml", "z")
            assert await queue.calls.get() == "z"
            await appears(tmp_path / "jobs" / "z.submitted")
        names = sorted(path.name for path in (tmp_path / "jobs").iterdir())
        assert names == [
            ".accepted.json",
            ".drawn.json",
            ".hidden.toml",
            "empty",
            "link.toml",
            "train.py",
            "z.submitted",
            "z.toml",
        ]

    run(main())


def test_looking_causes_no_more_looking(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        queue = Queue()
        queue.refusals["wrong"] = UsageError("no")
        async with watching(tmp_path / "jobs", queue) as jobs:
            rename_in(tmp_path, "a.toml", "wrong")
            rename_in(tmp_path, "b.toml", "right")
            assert {await queue.calls.get(), await queue.calls.get()} == {"wrong", "right"}
            quiet = 0
            while quiet < 20:  # our own writes cause an event or two, and then it is quiet
                await asyncio.sleep(0.01)
                quiet = 0 if jobs._hint.is_set() else quiet + 1
            assert queue.calls.empty()

    run(main())


def test_damaged_memory_is_forgotten(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        queue = Queue()
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs" / module.ACCEPTED_NAME).write_text("{")
        rename_in(tmp_path, "a.toml", "a")
        async with watching(tmp_path / "jobs", queue):
            assert await queue.calls.get() == "a"

    run(main())


def test_those_that_were_dealt_with_keep_no_other_from_being_taken(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are; and more than are looked at in one go are taken in several."""
    monkeypatch.setattr(module, "MAX_JOBS", 3)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)

    async def main() -> None:
        queue = Queue()
        (tmp_path / "jobs").mkdir()
        for number in range(5):
            rename_in(tmp_path, f"{number}.toml", str(number))
            queue.refusals[str(number)] = UsageError("no")
        async with watching(tmp_path / "jobs", queue):
            assert [await queue.calls.get() for _ in range(5)] == ["0", "1", "2", "3", "4"]
            await appears(tmp_path / "jobs" / "4.refused")
            rename_in(tmp_path, "z.toml", "z")
            await appears(tmp_path / "jobs" / "z.submitted")
        assert queue.taken == ["z"]

    run(main())
    assert all(job.whole for job in find_jobs(tmp_path / "jobs"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    assert not is_being_written(path)
    with path.open("a"):
        assert is_being_written(path)
    assert not is_being_written(path) and not is_being_written(tmp_path / "missing")


def test_a_job_of_folders_without_end_is_looked_at_all_the_same(tmp_path: Path) -> None:
    below = tmp_path
    for _ in range(1100):
        below = below / "d"
        below.mkdir()
    os.utime(tmp_path / "d" / "d", ns=(1 << 61, 1 << 61))
    assert module._newest_ns(tmp_path) == 1 << 61
    remove_tree(tmp_path / "d")


def test_another_lora_yaml_makes_another_job(tmp_path: Path) -> None:
    """It is not sent, but what it says is."""
    pytest.importorskip("yaml", reason="needs elasticd[lm]")
    for name in ("model/config.json", "data/train.jsonl"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    toml = tmp_path / "a.toml"
    toml.write_text('[job]\nname = "a"\n[recipe]\nkind = "mlx-lm"\nconfig = "a.yaml"\n')
    found = []
    for iters in (1, 2, 1):
        (tmp_path / "a.yaml").write_text(f"model: model\niters: {iters}\n")
        job: Any = SimpleNamespace(name="a.toml", toml=toml)
        found.append(module.content_digest(job))
    assert found[0] == found[2] != found[1]


def test_an_empty_folder_makes_no_other_content(tmp_path: Path) -> None:
    """What a version took that shipped none is not taken again."""
    (tmp_path / "train.py").write_text("print()")
    (tmp_path / "job.toml").write_text(
        '[job]\nname = "a"\nentrypoint = "train.py"\nfiles = ["train.py", "ckpts"]\n'
        "[batch]\nglobal = 1\nmicro = 1\n[train]\nsteps = 1\n"
    )
    (tmp_path / "ckpts").mkdir()
    folder: Any = SimpleNamespace(name="a", toml=tmp_path / "job.toml")
    file: Any = SimpleNamespace(name="job.toml", toml=tmp_path / "job.toml")
    before = [module.content_digest(each) for each in (folder, file)]
    (tmp_path / "ckpts" / "deep").mkdir()
    assert [module.content_digest(each) for each in (folder, file)] == before
