"""The page's web server against a fake daemon."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from elasticd.cli.reports.goodput import goodput
from elasticd.dashboard.guard import HEADERS
from elasticd.dashboard.server import CHANGES, PAGE
from tests.unit.cli.conftest import STATUS
from tests.unit.cli.test_report_pages import COURSE, read
from tests.unit.client.fake_daemon import FakeDaemon

from .asking import SHOWN, TOKEN, Answer, ask, sent_events, served

JOB = "byte-lm-1-k3f9"
JSON = ("content-type", "application/json")
Daemon = Callable[[Path, Any], FakeDaemon]
EVENTS = [*COURSE, {"end": True}]
ANSWERS: dict[str, Any] = {
    "status": STATUS,
    "events": EVENTS,
    "checkpoints": {"job": JOB, "checkpoints": [{"step": 120, "replicas": 2}], "silent": {}},
    "logs": [{"rank": 0, "node": "node-0", "text": "<b>one</b>\ntwo\n"}, {"end": True}],
    "pause": {"id": JOB, "state": "paused"},
    "resume": {"id": JOB, "state": "running"},
    "cancel": {"id": JOB, "state": "cancelled"},
    "drain": {"id": "node-1", "state": "draining"},
    "undrain": {"id": "node-1", "state": "alive"},
}


def asked(home: Path, path: str, *headers: tuple[str, str], **how: Any) -> Answer:
    async def main() -> Answer:
        found = served(home)
        try:
            return await ask(found.app, path, *headers, **how)
        finally:
            found.live.stop()

    return asyncio.run(main())


def test_metrics(home: Path, daemon: Daemon) -> None:
    daemon(home, ANSWERS)
    answer = asked(home, "/metrics", SHOWN)
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
    found = {
        (sample.name, sample.labels.get("job"), sample.labels.get("cause")): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    spent = goodput(read(COURSE))
    assert found["elasticd_job_goodput_ratio", JOB, None] == spent.share
    assert found["elasticd_job_time_seconds", JOB, "useful"] == spent.useful
    assert found["elasticd_daemon_up", None, None] == 1


def test_metrics_without_a_daemon(home: Path) -> None:
    home.mkdir()
    answer = asked(home, "/metrics", SHOWN)
    assert answer.status == 200 and b"elasticd_daemon_up 0.0" in answer.body
    assert b"elasticd_view_epoch" not in answer.body


def test_scrapers_together_ask_once(home: Path, daemon: Daemon) -> None:
    fake = daemon(home, ANSWERS)

    async def main() -> None:
        app = served(home).app
        await asyncio.gather(*(ask(app, "/metrics", SHOWN) for _ in range(5)))

    asyncio.run(main())
    assert [request["do"] for request in fake.requests].count("status") == 1


@pytest.mark.parametrize("path", ["/metrics", "/api/live", "/api/logs", "/api/checkpoints",
                                  "/api/change", "/nowhere", "//", "/page.js/"])  # fmt: skip
def test_nothing_is_read_without_the_token(home: Path, daemon: Daemon, path: str) -> None:
    fake = daemon(home, ANSWERS)
    for method in ("GET", "POST"):
        answer = asked(home, path, method=method)
        assert answer.status == 401
    assert not fake.requests


def test_every_answer_has_the_headers(home: Path) -> None:
    home.mkdir()
    for path in (*PAGE, "/metrics", "/nowhere", "/api/logs"):
        for shown in ((), (SHOWN,)):
            assert asked(home, path, *shown).headers.items() >= HEADERS.items()


def test_there_is_nothing_else(home: Path) -> None:
    home.mkdir()
    for path in ("/nowhere", "/page/index.html", "/../../etc/passwd", "/%2e%2e/x"):
        assert asked(home, path, SHOWN).status == 404
    assert asked(home, "/", SHOWN, method="POST").status == 405
    assert asked(home, "/api/change", SHOWN).status == 405


def test_what_is_not_there_is_told_as_every_other_error(home: Path) -> None:
    home.mkdir()
    for path, method in (("/api/nowhere", "GET"), ("/metrics", "POST"), ("/api/change", "GET")):
        answer = asked(home, path, SHOWN, method=method)
        assert answer.headers["content-type"] == "application/json"
        assert answer.said["error"].startswith("there is nothing")
    assert answer.headers["allow"] == "POST"


def change(home: Path, body: Any, *headers: tuple[str, str], **how: Any) -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asked(home, "/api/change", *headers, method="POST", body=data, **how)


@pytest.mark.parametrize("do", sorted(CHANGES))
def test_changes(home: Path, daemon: Daemon, do: str) -> None:
    fake = daemon(home, ANSWERS)
    name = "node-1" if "drain" in do else JOB
    answer = change(home, {"do": do, "id": name}, SHOWN, JSON)
    assert answer.status == 200 and answer.said["state"] == ANSWERS[do]["state"]
    key = "node" if "drain" in do else "job"
    assert fake.requests == [{"do": do, key: name}]


@pytest.mark.parametrize(
    "headers",
    [
        (JSON,),
        (JSON, ("authorization", "Bearer x")),
        (JSON, ("cookie", f"token={TOKEN}")),
        (JSON, SHOWN, ("origin", "http://evil.example")),
        (JSON, SHOWN, ("origin", "http://127.0.0.1:9000")),
        (JSON, SHOWN, ("sec-fetch-site", "cross-site")),
        (SHOWN, ("content-type", "text/plain")),
        (SHOWN,),
    ],
)
def test_nothing_is_changed_for_others(
    home: Path, daemon: Daemon, headers: tuple[tuple[str, str], ...]
) -> None:
    fake = daemon(home, ANSWERS)
    assert change(home, {"do": "cancel", "id": JOB}, *headers).status in (401, 403, 415)
    assert change(home, {"do": "cancel", "id": JOB}, SHOWN, JSON, host="evil").status == 421
    assert not fake.requests


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"3", b"null", b"[" * 4000, b"\xff", {"do": "cancel"}, {"id": JOB},
     {"do": "forget", "id": JOB}, {"do": "shutdown", "id": JOB}, {"do": ["cancel"], "id": JOB},
     {"do": "cancel", "id": 3}, {"do": "cancel", "id": ""},
     {"do": "cancel", "id": "\ud800"}, {"do": "\ud800", "id": JOB}],
)  # fmt: skip
def test_nothing_else_can_be_changed(home: Path, daemon: Daemon, body: Any) -> None:
    fake = daemon(home, ANSWERS)
    assert change(home, body, SHOWN, JSON).status == 400
    assert not fake.requests


def test_what_is_too_long_is_not_read(home: Path, daemon: Daemon) -> None:
    fake = daemon(home, ANSWERS)
    assert change(home, {"do": "cancel", "id": "x" * 5000}, SHOWN, JSON).status == 413
    assert not fake.requests


def test_what_the_daemon_refuses_is_said(home: Path, daemon: Daemon) -> None:
    daemon(home, ANSWERS | {"cancel": {"error": "no job x", "code": 1}})
    answer = change(home, {"do": "cancel", "id": "x"}, SHOWN, JSON)
    assert (answer.status, answer.said) == (409, {"error": "no job x"})


def test_no_daemon_answers(home: Path) -> None:
    home.mkdir()
    answer = change(home, {"do": "cancel", "id": "x"}, SHOWN, JSON)
    assert answer.status == 503 and "no daemon runs" in answer.said["error"]


def test_logs_and_checkpoints(home: Path, daemon: Daemon) -> None:
    daemon(home, ANSWERS)
    lines = asked(home, f"/api/logs?job={JOB}", SHOWN).said["lines"]
    assert lines == ["[0] <b>one</b>", "[0] two"]
    stored = asked(home, f"/api/checkpoints?job={JOB}", SHOWN).said
    assert stored["checkpoints"] == [{"step": 120, "replicas": 2}]


def has_course(body: bytes) -> bool:
    told = [data for kind, data in sent_events(body) if kind == "course"]
    return any(each["course"] and each["course"]["ended"] for each in told)


def test_a_page_is_told_what_there_is(home: Path, daemon: Daemon) -> None:
    daemon(home, ANSWERS)
    answer = asked(home, "/api/live", SHOWN, until=has_course)
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = sent_events(answer.body)
    kind, look = told[0]
    assert kind == "look" and look["job"]["id"] == JOB and look["trouble"] == ""
    assert [node["id"] for node in look["nodes"]] == ["node-0", "node-1"]
    course = next(data for kind, data in reversed(told) if kind == "course")["course"]
    spent = goodput(read(COURSE))
    assert course["goodput"] == spent.share and course["went_to"]["detection"] == spent.detection
    assert course["faults"][0]["seconds"] == 1.0 and course["recoveries"][0]["seconds"] == 4.0


def test_however_many_pages_there_is_one_look(home: Path, daemon: Daemon) -> None:
    all_open = threading.Event()

    def answer(request: Any) -> list[Any]:
        assert all_open.wait(30)
        return [STATUS]

    fake = daemon(home, ANSWERS | {"status": answer})

    async def main() -> list[Answer]:
        found = served(home, pause=60.0)
        async with asyncio.TaskGroup() as group:
            pages = [
                group.create_task(
                    ask(found.app, "/api/live", SHOWN, until=lambda body: bool(sent_events(body)))
                )
                for _ in range(20)
            ]
            while found.live.pages < len(pages):  # noqa: ASYNC110 (nobody announces it)
                await asyncio.sleep(0.002)
            all_open.set()
        found.live.stop()
        assert found.live.pages == 0
        return [page.result() for page in pages]

    told = [sent_events(page.body)[0] for page in asyncio.run(main())]
    assert len(told) == 20 and all(kind == "look" for kind, _ in told)
    # The second one is for those that came while the first was under way.
    assert [request["do"] for request in fake.requests].count("status") <= 2
    assert [request["do"] for request in fake.requests].count("events") <= 1


def test_a_daemon_that_is_gone_is_said(home: Path) -> None:
    home.mkdir()

    def enough(body: bytes) -> bool:
        return bool(sent_events(body))

    answer = asked(home, "/api/live", SHOWN, until=enough)
    kind, look = sent_events(answer.body)[0]
    assert kind == "look" and "no daemon runs" in look["trouble"]


@pytest.mark.parametrize("status", [{"jobs": [3]}, {"jobs": 3}, {"loop": 3, "jobs": []}])
def test_a_look_that_fails_is_said_and_the_next_one_is_made(
    home: Path, daemon: Daemon, status: Any
) -> None:
    answers = iter([[status]])
    daemon(home, ANSWERS | {"status": lambda _: next(answers, [STATUS])})

    def healed(body: bytes) -> bool:
        return any(data["trouble"] == "" for kind, data in sent_events(body) if kind == "look")

    answer = asked(home, "/api/live", SHOWN, until=healed)
    _, look = sent_events(answer.body)[0]
    assert "internal error" in look["trouble"]


def test_too_many_pages_at_once(
    home: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon(home, ANSWERS)
    monkeypatch.setattr("elasticd.dashboard.live.MOST_PAGES", 3)

    async def main() -> list[Answer]:
        found = served(home)
        pages = [
            asyncio.create_task(
                ask(found.app, "/api/live", SHOWN, until=lambda b: bool(looks_of(b)))
            )
            for _ in range(10)
        ]
        answers = await asyncio.gather(*pages)
        assert found.live.pages == 0
        again = await ask(found.app, "/api/live", SHOWN, until=lambda b: bool(looks_of(b)))
        found.live.stop()
        return [*answers, again]

    answers = asyncio.run(main())
    assert [answer.status for answer in answers].count(200) == 4
    assert answers[-1].status == 200, "the others have left"


def test_a_page_that_goes_before_it_is_told_anything_has_left(home: Path) -> None:
    home.mkdir()

    async def main() -> int:
        found = served(home)
        task = asyncio.create_task(ask(found.app, "/api/live", SHOWN))
        while not found.live.pages:  # noqa: ASYNC110 (nobody announces it)
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        found.live.stop()
        return found.live.pages

    assert asyncio.run(main()) == 0


def test_pages_end_when_there_is_another_token(home: Path, daemon: Daemon) -> None:
    daemon(home, ANSWERS)
    tokens = [TOKEN]

    def change_it(body: bytes) -> bool:
        if looks_of(body):
            tokens[0] = "another"
        return False  # who reads does not hang up

    async def main() -> None:
        found = served(home, token=lambda: tokens[0])
        answer = await ask(found.app, "/api/live", SHOWN, until=change_it)
        assert answer.status == 200 and found.live.pages == 0
        assert (await ask(found.app, "/api/live", SHOWN)).status == 401
        found.live.stop()

    asyncio.run(main())


def test_who_asks_only_for_the_head_of_the_stream_has_it(home: Path) -> None:
    home.mkdir()
    answer = asked(home, "/api/live", SHOWN, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


def looks_of(body: bytes) -> list[Any]:
    return [data for kind, data in sent_events(body) if kind == "look"]


def test_a_job_that_is_forgotten_holds_up_no_cluster(home: Path, daemon: Daemon) -> None:
    epochs = iter(range(4, 10_000))

    def status(request: Any) -> list[Any]:
        if request.get("job"):
            return [{"error": f"no job {request['job']}", "code": 1}]
        return [STATUS | {"view": STATUS["view"] | {"epoch": next(epochs)}}]

    daemon(home, ANSWERS | {"status": status})
    answer = asked(home, "/api/live?job=gone", SHOWN, until=lambda body: len(looks_of(body)) > 2)
    looks = looks_of(answer.body)
    assert looks[-1]["view"]["epoch"] > looks[0]["view"]["epoch"] >= 4
    assert looks[-1]["live"] and looks[-1]["trouble"].startswith("no job gone; this is")
    assert looks[-1]["job"]["id"] == JOB, "the one that has its turn"
    assert {data["job"] for kind, data in sent_events(answer.body) if kind == "course"} == {JOB}


def test_a_daemon_that_hangs_is_waited_for_once_for_all_pages(home: Path, daemon: Daemon) -> None:
    over = threading.Event()
    all_open = threading.Event()

    def status(_: Any) -> list[Any]:
        assert all_open.wait(30)
        over.wait(30)
        return []

    fake = daemon(home, ANSWERS | {"status": status})

    async def main() -> list[Answer]:
        found = served(home, pause=60.0, answer_seconds=0.2)
        async with asyncio.TaskGroup() as group:
            pages = [
                group.create_task(
                    ask(found.app, f"/api/live?job=j{n}", SHOWN, until=lambda b: bool(looks_of(b)))
                )
                for n in range(8)
            ]
            while found.live.pages < len(pages):  # noqa: ASYNC110 (nobody announces it)
                await asyncio.sleep(0.002)
            all_open.set()
        found.live.stop()
        return [page.result() for page in pages]

    told = [looks_of(page.body)[0] for page in asyncio.run(main())]
    over.set()
    assert len(told) == 8 and not any(look["live"] for look in told)
    assert all("0.2 s" in look["trouble"] for look in told)
    assert len(fake.requests) <= 2


def test_scrapers_wait_for_nothing_that_pages_ask(home: Path, daemon: Daemon) -> None:
    over = threading.Event()

    def logs(_: Any) -> list[Any]:
        over.wait(30)
        return [{"end": True}]

    fake = daemon(home, ANSWERS | {"logs": logs})

    async def main() -> None:
        app = served(home).app
        path = f"/api/logs?job={JOB}"
        pages = [asyncio.create_task(ask(app, path, SHOWN)) for _ in range(8)]
        while not fake.requests:  # noqa: ASYNC110 (nobody announces it)
            await asyncio.sleep(0.002)
        answer = await ask(app, "/metrics", SHOWN)
        assert b"elasticd_daemon_up 1.0" in answer.body and not any(page.done() for page in pages)
        over.set()
        await asyncio.gather(*pages)

    try:
        asyncio.run(main())
    finally:
        over.set()


TURNING = "a\u202eb\x1b[31mc\nnext\tline"
SEEN = "a\\u202eb\\x1b[31mc\nnext\tline"


def test_what_is_not_printable_is_shown_escaped(home: Path, daemon: Daemon) -> None:
    job = STATUS["jobs"][0] | {"reason": TURNING}
    daemon(
        home,
        ANSWERS
        | {
            "status": STATUS | {"jobs": [job]},
            "logs": [{"rank": 0, "node": "n", "text": TURNING}, {"end": True}],
            "checkpoints": {"silent": {"node-1": TURNING}},
            "cancel": {"error": TURNING, "code": 1},
        },
    )
    look = looks_of(asked(home, "/api/live", SHOWN, until=lambda b: bool(looks_of(b))).body)[0]
    assert look["job"]["reason"] == look["jobs"][0]["reason"] == SEEN
    assert asked(home, f"/api/logs?job={JOB}", SHOWN).said["lines"] == [
        f"[0] {SEEN.splitlines()[0]}", f"[0] {SEEN.splitlines()[1]}",
    ]  # fmt: skip
    assert asked(home, f"/api/checkpoints?job={JOB}", SHOWN).said["silent"] == {"node-1": SEEN}
    assert change(home, {"do": "cancel", "id": JOB}, SHOWN, JSON).said["error"] == SEEN
