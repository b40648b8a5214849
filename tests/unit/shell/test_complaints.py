"""Complaints: all counted, few logged."""

from __future__ import annotations

from structlog.testing import capture_logs

from elasticd.shell.complaints import LINES_PER_MINUTE, MAX_REMEMBERED, Complaints


def test_the_same_reason_is_said_once_a_minute() -> None:
    now = [0.0]
    complain = Complaints("peers", clock=lambda: now[0])
    with capture_logs() as lines:
        for _ in range(5):
            complain("x", "no hello")
        now[0] = 61.0
        complain("x", "no hello")
    assert [(line["count"], line["unsaid"]) for line in lines] == [(1, 0), (6, 4)]
    assert complain.count == 6 and complain.last_reason == "x: no hello"


def test_reasons_without_end_cost_few_lines_and_little_memory() -> None:
    now = [0.0]
    complain = Complaints("peers", clock=lambda: now[0])
    with capture_logs() as lines:
        for number in range(100 * MAX_REMEMBERED):
            now[0] += 0.01
            complain("x", f"{number}" + "y" * 10_000)
    minutes = 1 + int(now[0] / 60)
    assert len(lines) <= LINES_PER_MINUTE * minutes
    assert all(len(line["reason"]) < 1000 for line in lines)
    assert len(complain._said) <= MAX_REMEMBERED
    assert sum(line["unsaid"] for line in lines) + len(lines) <= complain.count
