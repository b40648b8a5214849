"""Clients that send jobs at the same time, to one daemon."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd import archive
from elasticd.core.jobs.nodes import NodeDuties
from elasticd.core.node import Node
from elasticd.core.words import effects as e
from elasticd.core.words.codec import to_plain
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.every import Outcome
from elasticd.core.words.requests.jobs import ArchivePart, NameJob, SubmitJob, Submitted
from elasticd.errors import OperationError, UsageError
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import DAY_VARIABLE
from elasticd.shell.children import launches
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.control.jobfiles import JobFiles
from elasticd.shell.control.listing import JobListing
from elasticd.shell.control.server import Stream
from elasticd.shell.control.submissions import MAX_RECEIVING, MAX_WAITING, Submissions
from elasticd.shell.network.neighbours import Neighbours
from elasticd.shell.storage.archives import Archives
from elasticd.shell.storage.states import States
from elasticd.types import JobId, NodeId

Run = Callable[[Coroutine[Any, Any, None]], None]
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
SPEC = JobSpec.from_dict(
    {
        "job": {"name": "job", "entrypoint": "train.py"},
        "batch": {"global": 8, "micro": 1},
        "train": {"steps": 1},
    }
)
DATA = b"the job's folder"


class Daemon:
    """One node, ``a``, of some. The control plane takes every job."""

    def __init__(self, folder: Path, members: tuple[NodeId, ...] = (A,)) -> None:
        self.folder = folder / "archives"
        self.members, self.drained = members, frozenset[NodeId]()
        self.failing: dict[NodeId, str] = {}
        self.asked: list[NodeId] = []
        self.queued: list[JobRecord] = []

    def start(self) -> Submissions:
        node = SimpleNamespace(
            records={},
            views=SimpleNamespace(view=SimpleNamespace(members=self.members)),
            liveness=SimpleNamespace(peers={}),
            drivers=SimpleNamespace(obstacle=lambda *_: ""),
            tables=SimpleNamespace(nodes=SimpleNamespace(standing=self.standing)),
        )
        near = cast(Neighbours, SimpleNamespace(me=A, fetch=self.fetch))
        archives = Archives(self.folder, near, lambda job: self.folder / job, lambda event: None)
        states = SimpleNamespace(archives=archives, me=A)
        files = JobFiles(cast(Node, node), archives, A)
        return Submissions(cast(Node, node), cast(States, states), files, self.ask)

    def standing(self) -> NodeDuties:
        return NodeDuties(leaving=self.drained)

    async def fetch(self, node: NodeId, wanted: Any, sink: int) -> int:
        assert not self.queued, "a job is known whose files one node has"
        self.asked.append(node)
        if node in self.failing:
            raise OperationError(self.failing[node])
        return 0

    async def ask(self, event: Callable[[int], e.Event]) -> Outcome:
        submit = event(1)
        assert isinstance(submit, e.Submit)
        self.queued.append(submit.record)
        return Submitted(submit.record.id)

    def arriving(self) -> int:
        return len([*self.folder.glob(".arriving-*")])


class Sender:
    """A client's end of the stream. It sends the second half of its job when it may."""

    def __init__(self) -> None:
        self.half, self.go = asyncio.Event(), asyncio.Event()
        self.stream = Stream(cast(Any, None), cast(Any, None))

    async def send(self, submissions: Submissions, number: int) -> Outcome:
        digest = archive.digest(DATA)
        request = SubmitJob(SPEC.to_dict(), len(DATA), digest, JobId(f"job-{number}-aaaa"))
        answer = asyncio.create_task(submissions.submit(request, self.stream))
        await self.stream._frames.put(to_plain(ArchivePart(DATA[:4])))
        await self.go.wait()
        await self.stream._frames.put(to_plain(ArchivePart(DATA[4:])))
        return await answer


def test_of_many_that_send_at_once_some_are_heard_and_the_others_wait(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        daemon = Daemon(tmp_path)
        submissions = daemon.start()
        senders = [Sender() for _ in range(MAX_RECEIVING + MAX_WAITING)]
        numbered = [*enumerate(senders, 1)]
        sending = [asyncio.create_task(each.send(submissions, n)) for n, each in numbered]
        while daemon.arriving() < MAX_RECEIVING:  # noqa: ASYNC110  files that threads make
            await asyncio.sleep(0)
        held_back = [each for each in senders if not each.stream._may_read.is_set()]
        assert held_back == senders[MAX_RECEIVING:]
        with pytest.raises(OperationError, match="36 other jobs are being sent to this node"):
            late = Sender()
            late.go.set()
            await late.send(submissions, 99)
        for each in senders:
            each.go.set()
        await asyncio.gather(*sending)
        assert len(daemon.queued) == len(senders)

    run(main())


def test_jobs_that_are_submitted_at_once_have_a_number_each(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        daemon = Daemon(tmp_path)
        submissions = daemon.start()
        sender = Sender()
        sending = asyncio.create_task(sender.send(submissions, 7))
        while not daemon.arriving():  # noqa: ASYNC110  a file that a thread makes
            await asyncio.sleep(0)
        named = [await submissions.name_job(NameJob("job"), sender.stream) for _ in range(2)]
        assert [each.id[: len("job-8")] for each in named] == ["job-8", "job-9"]
        taken = await submissions.take(SPEC, DATA, archive.digest(DATA))
        assert taken.id.startswith("job-10-")
        sender.go.set()
        await sending
        assert sorted(record.number for record in daemon.queued) == [7, 10]

    run(main())


def test_who_hangs_up_gives_his_place_to_the_next(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        daemon = Daemon(tmp_path)
        submissions = daemon.start()
        digest = archive.digest(DATA)

        async def begin(number: int) -> Outcome:
            name = JobId(f"job-{number}-aaaa")
            request = SubmitJob(SPEC.to_dict(), len(DATA), digest, name)
            return await submissions.submit(request, Sender().stream)

        gone = [asyncio.create_task(begin(n)) for n in range(1, MAX_RECEIVING + MAX_WAITING + 1)]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        last = Sender()
        last.go.set()
        await last.send(submissions, 99)
        assert [each.id for each in daemon.queued] == ["job-99-aaaa"]

    run(main())


def test_who_sends_empty_parts_is_refused_and_gives_his_place_back(
    tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        submissions, sender = Daemon(tmp_path).start(), Sender()
        request = SubmitJob(SPEC.to_dict(), len(DATA), archive.digest(DATA))
        await sender.stream._frames.put(to_plain(ArchivePart(b"")))
        with pytest.raises(UsageError, match="a part of the archive is empty"):
            await submissions.submit(request, sender.stream)
        assert submissions._receiving._there == 0

    run(main())


def submitted(daemon: Daemon) -> Submitted:
    return asyncio.run(_take(daemon))


async def _take(daemon: Daemon) -> Submitted:
    return await daemon.start().take(SPEC, DATA, archive.digest(DATA))


def test_a_job_is_known_when_its_files_are_on_as_many_nodes_as_it_wants(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, (A, B, C))
    assert submitted(daemon).short == "" and daemon.asked == [B]
    assert len(daemon.queued) == 1


def test_alone_nobody_is_waited_for(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    assert submitted(daemon).short == "" and daemon.asked == []


def test_a_drained_node_is_not_one_of_them(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, (A, B, C))
    daemon.drained = frozenset({B})
    assert submitted(daemon).short == "" and daemon.asked == [C]
    daemon.drained, daemon.asked, daemon.queued = frozenset({A}), [], []
    assert submitted(daemon).short == "" and daemon.asked == [B, C]


def test_who_has_the_files_is_said_if_they_are_too_few(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, (A, B, C))
    daemon.failing = {B: "its disk is full", C: "c is not connected"}
    short = "its files are on a only, not on 2 nodes (b: its disk is full; c: c is not connected)"
    assert submitted(daemon).short == short and daemon.asked == [B, C]
    assert len(daemon.queued) == 1


def test_what_arrives_damaged_is_not_queued(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    with pytest.raises(UsageError, match="damaged"):
        asyncio.run(daemon.start().take(SPEC, DATA, archive.digest(b"else")))
    assert daemon.queued == [] and [*daemon.folder.iterdir()] == []


def test_what_builds_of_before_refuse_is_in_no_recorded_settings(tmp_path: Path, run: Run) -> None:
    spec = replace(SPEC, job=replace(SPEC.job, pass_env=("HF_TOKEN",)))
    daemon = Daemon(tmp_path)

    async def main() -> None:
        await daemon.start().take(spec, DATA, archive.digest(DATA))

    run(main())
    assert daemon.queued[0].passed == ("HF_TOKEN",)
    assert daemon.queued[0].spec == SPEC.to_dict()


def test_a_recipe_is_beside_the_settings_that_builds_of_before_read(
    tmp_path: Path, run: Run
) -> None:
    given = {"kind": "mlx-lm", "config": {"model": "/m", "iters": 9}}
    spec = JobSpec.from_dict({"job": {"name": "a"}, "recipe": given})
    daemon = Daemon(tmp_path)

    async def main() -> None:
        await daemon.start().take(spec, DATA, archive.digest(DATA))

    run(main())
    (record,) = daemon.queued
    assert "recipe" not in record.spec and JobSpec.from_dict(record.spec).train.steps == 9
    start = cast(e.StartTrainer, SimpleNamespace(job=record.id, spare=False))
    files = ChildFiles(tmp_path / "home")
    files.home.mkdir()
    told = JobSpec.from_dict(launches.trainer(start, record, files, "nonce", {}).settings["spec"])
    assert replace(told, job=spec.job) == spec
    with pytest.raises(OperationError, match="recipe"):
        launches.trainer(start, replace(record, recipe="{"), files, "nonce", {})


@pytest.mark.parametrize("place", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_templates_of_a_recipe_write_the_day_on_which_it_was_submitted(
    tmp_path: Path, run: Run, travel: Callable[[str], None], place: str
) -> None:
    """In UTC, wherever the daemon is, or the one that its job.toml says. A script has none."""
    travel(place)
    daemon, recipe = Daemon(tmp_path), {"kind": "mlx-lm", "config": {"model": "/m"}}
    one = JobSpec.from_dict({"job": {"name": "job"}, "recipe": recipe})
    said = replace(one, job=replace(one.job, env={DAY_VARIABLE: "2025-01-02", "A": "b"}))

    async def main() -> None:
        submissions = daemon.start()
        submissions.now = lambda: 1_700_006_399.0  # a second before its end
        for spec in (one, said, SPEC):
            await submissions.take(spec, DATA, archive.digest(DATA))

    run(main())
    environments = [record.spec["job"]["env"] for record in daemon.queued]
    assert environments == [
        {DAY_VARIABLE: "2023-11-14"},
        {DAY_VARIABLE: "2025-01-02", "A": "b"},
        {},
    ]
    start = cast(e.StartTrainer, SimpleNamespace(job=daemon.queued[0].id, spare=False))
    files = ChildFiles(tmp_path / "home")
    files.home.mkdir()
    launch = launches.trainer(start, daemon.queued[0], files, "nonce", {"TZ": "Asia/Tokyo"})
    assert launch.environment[DAY_VARIABLE] == "2023-11-14"


def test_no_number_is_taken_after_which_there_is_none_for_others(tmp_path: Path, run: Run) -> None:
    daemon = Daemon(tmp_path)
    submissions = daemon.start()

    async def main() -> None:
        sender = Sender()
        sender.go.set()
        with pytest.raises(UsageError, match="far above those of other jobs"):
            await sender.send(submissions, 999_999_999)
        sender = Sender()
        sender.go.set()
        await sender.send(submissions, 40_000)
        named = await submissions.name_job(NameJob("job"), sender.stream)
        assert named.id.startswith("job-40001-")

    run(main())


def test_a_job_that_is_taken_again_under_its_id_is_one(tmp_path: Path, run: Run) -> None:
    daemon = Daemon(tmp_path)
    submissions = daemon.start()

    async def main() -> None:
        job = submissions.new_id("job")
        for _ in range(2):
            taken = await submissions.take(SPEC, DATA, archive.digest(DATA), given=job)
            assert taken.id == job
        assert {each.id for each in daemon.queued} == {job}

    run(main())


def test_who_submitted_is_what_the_kernel_says(tmp_path: Path, run: Run) -> None:
    daemon = Daemon(tmp_path)

    async def main() -> None:
        sender = Sender()
        sender.stream.uid = os.getuid()
        sender.go.set()
        await sender.send(daemon.start(), 1)
        await daemon.start().take(SPEC, DATA, archive.digest(DATA))

    run(main())
    found = [(each.submitter, each.submitted_on) for each in daemon.queued]
    assert found == [(pwd.getpwuid(os.getuid()).pw_name, A), ("", "")]


def test_what_is_foreseen_is_in_the_record_and_told_once_the_job_is_known(
    tmp_path: Path, run: Run
) -> None:
    daemon, told = Daemon(tmp_path), list[int]()
    submissions = daemon.start()

    async def foresee(
        record: JobRecord, waits: Callable[[], None]
    ) -> tuple[JobRecord, Callable[[], None]]:
        return replace(record, inexact="seen"), lambda: told.append(len(daemon.queued))

    submissions.foresee = foresee

    async def main() -> None:
        await submissions.take(SPEC, DATA, archive.digest(DATA))
        (record,) = daemon.queued
        assert record.inexact == "seen" and told == [1]
        submissions.node.records[record.id] = record
        sender = Sender()
        sender.go.set()
        again = archive.digest(DATA)
        await sender.stream._frames.put(to_plain(ArchivePart(DATA)))
        await submissions.submit(
            SubmitJob(SPEC.to_dict(), len(DATA), again, record.id), sender.stream
        )
        assert len(daemon.queued) == 2 and told == [1], "it was known"

    run(main())


def test_a_job_is_in_its_preflight_until_it_is_known(tmp_path: Path, run: Run) -> None:
    daemon = Daemon(tmp_path)
    submissions, go = daemon.start(), asyncio.Event()
    preflights = submissions.preflights
    listing = JobListing(submissions.node, cast(Any, None), cast(Any, None), preflights)

    async def foresee(
        record: JobRecord, waits: Callable[[], None]
    ) -> tuple[JobRecord, Callable[[], None]]:
        assert preflights.records() == [], "what is over at once is no state"
        waits()
        await go.wait()
        return record, lambda: None

    submissions.foresee = foresee

    async def main() -> None:
        taken = asyncio.create_task(submissions.take(SPEC, DATA, archive.digest(DATA)))
        while not preflights.records():  # noqa: ASYNC110  its files are written by a thread
            await asyncio.sleep(0)
        (record,) = preflights.records()
        (shown,) = listing.before(None)
        assert (shown["id"], shown["state"]) == (record.id, "preflight") and "2 s" in shown[
            "reason"
        ]
        assert listing.before(record.id) == [shown] and listing.before(JobId("job-9-aaaa")) == []
        over = asyncio.create_task(preflights.over(record.id))
        await asyncio.sleep(0)
        assert not over.done()
        go.set()
        await taken
        await over
        await preflights.over(record.id)
        assert preflights.records() == [] and listing.before(None) == []

    run(main())


def test_a_client_that_hangs_up_leaves_no_job_in_its_preflight(tmp_path: Path, run: Run) -> None:
    submissions = Daemon(tmp_path).start()
    preflights = submissions.preflights

    async def foresee(
        record: JobRecord, waits: Callable[[], None]
    ) -> tuple[JobRecord, Callable[[], None]]:
        waits()
        await asyncio.Event().wait()
        raise AssertionError

    submissions.foresee = foresee

    async def main() -> None:
        taken = asyncio.create_task(submissions.take(SPEC, DATA, archive.digest(DATA)))
        while not preflights.records():  # noqa: ASYNC110  its files are written by a thread
            await asyncio.sleep(0)
        (record,) = preflights.records()
        taken.cancel()
        await asyncio.wait([taken])
        await preflights.over(record.id)
        assert preflights.records() == []

    run(main())
