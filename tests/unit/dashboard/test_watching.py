"""Jobs that are followed for pages and scrapers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticd.client.client import Client
from elasticd.dashboard import watching
from elasticd.dashboard.watching import JobWatch
from tests.unit.cli.test_report_pages import COURSE, T
from tests.unit.client.fake_daemon import FakeDaemon
from tests.unit.dashboard.asking import follow

JOB = "byte-lm-1-k3f9"
EVENTS = [*COURSE, {"end": True}]


def ended(watch: JobWatch) -> JobWatch:
    assert watch.caught_up.wait(20)
    watch.wait()
    return watch


def test_a_daemon_that_does_not_know_the_job_yet_is_asked_again(
    home: Path, daemon: Callable[[Path, Any], FakeDaemon]
) -> None:
    answers = iter([[{"error": f"no job {JOB}", "code": 1}]])
    daemon(home, {"events": lambda _: next(answers, EVENTS)})
    watches = follow(home)
    first = ended(watches.of(JOB))
    assert first.lost and first.told(T).course is None
    second = ended(watches.of(JOB))
    assert second is not first and not second.lost
    course = second.told(T + 200).course
    assert course is not None and course.ended and second.taken == len(COURSE)
    assert watches.of(JOB) is second, "it has told all"


def test_so_many_are_followed_at_once(
    home: Path, daemon: Callable[[Path, Any], FakeDaemon]
) -> None:
    daemon(home, {"events": EVENTS})
    watches = follow(home)
    first = [watches.of(f"j{n}") for n in range(watching.MOST_WATCHES)]
    assert watches.of("j0") is first[0]
    watches.of("another")
    assert watches.of("j0") is first[0] and watches.of("j1") is not first[1]


def test_it_remembers_what_was_seen_of_loss_and_speed(home: Path) -> None:
    watch = JobWatch(Client(home), JOB)
    for step in range(1000):
        watch.looked({"step": step, "loss": 1.0 / (step + 1), "steps_per_second": 2.0}, time.time())
    watch.looked({"step": 500, "loss": 7.0, "steps_per_second": None}, time.time())
    seen = watch.seen(time.time())
    assert seen.losses[-1] == (500, 7.0), "it went back"
    assert len(seen.losses) < 1000 and len(seen.rates) == watching.MOST_RATES


def test_who_comes_late_sees_the_whole_curve(
    home: Path, daemon: Callable[[Path, Any], FakeDaemon]
) -> None:
    daemon(home, {"events": EVENTS, "losses": {"losses": [[1, 9.0], [40, 5.0]], "ranks": []}})
    watch = JobWatch(Client(home), JOB)
    watch.looked({"step": 41, "loss": 4.0, "lost_steps": 0}, time.time())
    watch.start()
    ended(watch)
    watch.looked({"step": 42, "loss": 3.0, "lost_steps": 0}, time.time())
    assert watch.seen(time.time()).losses == ((1, 9.0), (40, 5.0), (41, 4.0), (42, 3.0))
