"""What is done next: in order, and nothing before the record that it may depend on is durable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from elasticd.core import duties
from elasticd.core.duties import Duties, Flush
from elasticd.core.endpoint import Endpoint
from elasticd.core.words import effects as e
from elasticd.core.words.frames import Frame
from elasticd.core.words.views import Heartbeat
from elasticd.errors import ElasticdError
from elasticd.types import JobId, NodeId, Tag

PEER = NodeId("peer")
OLD = Heartbeat(Tag(1, PEER, "n"), 1)
NEW = Heartbeat(Tag(2, PEER, "n"), 2)
BOOTS = ("mine", "theirs")


@dataclass
class FakeEndpoint:
    """Answers the n-th tick with the n-th list."""

    answers: list[list[e.Outward]]
    repeated: list[tuple[NodeId, Heartbeat]] = field(default_factory=list)

    def step(self, now: float, event: e.Inward) -> list[e.Outward]:
        return self.answers.pop(0)

    def repeat(self, now: float, node: NodeId, boots: Any, beat: Heartbeat) -> list[e.Outward]:
        assert boots == BOOTS
        self.repeated.append((node, beat))
        return [_beat(beat)]


def _beat(beat: Heartbeat) -> e.Transmit:
    return e.Transmit(PEER, Frame(BOOTS, 1, 0, 1, 1, 0, beat))


def _record(name: str) -> e.Persist:
    return e.Persist("job", name)


def _log(text: str) -> e.Log:
    return e.Log("info", text, {})


def _of(*answers: list[e.Outward]) -> Duties:
    made = Duties(cast(Endpoint, FakeEndpoint(list(answers))))
    for _ in answers:
        made.post(e.Tick())
    return made


def _until_flush(made: Duties, now: float = 0.0) -> list[Any]:
    """What is handed out up to the next flush, with it."""
    found: list[Any] = []
    while (todo := made.next(now)) is not None:
        found.append(todo)
    return found


def test_nothing_is_handed_out_while_a_flush_lasts() -> None:
    made = _of([_log("before"), _record("a"), _log("behind")], [_log("later")])
    assert _until_flush(made) == [_log("before"), Flush((_record("a"),))]
    assert made.flushing and not made.done
    made.flushed()
    assert _until_flush(made) == [_log("behind"), _log("later")]
    assert made.done


def test_records_of_all_that_has_come_are_flushed_together() -> None:
    made = _of([_record("a"), _log("1")], [_record("b"), _log("2")], [_log("3"), _record("c")])
    assert _until_flush(made) == [Flush((_record("a"), _record("b"), _record("c")))]
    made.flushed()
    assert _until_flush(made) == [_log("1"), _log("2"), _log("3")]


def test_the_event_of_a_record_is_told_before_the_record() -> None:
    """Or another node shows the end of a job, and has no event of it yet."""
    ended = e.Emit(None, "job_failed", "so", None, {})
    made = _of([_record("a"), _beat(OLD), ended, _log("1")])
    assert _until_flush(made) == [Flush((_record("a"),))]
    made.flushed()
    assert _until_flush(made) == [ended, _beat(OLD), _log("1")]


def test_no_record_overtakes_what_is_done_to_a_child_or_a_checkpoint() -> None:
    kill = e.KillChild(7, "over")
    made = _of([_record("a"), _log("1"), kill, _record("b")])
    assert _until_flush(made) == [Flush((_record("a"),))]
    made.flushed()
    assert _until_flush(made) == [_log("1"), kill, Flush((_record("b"),))]


def test_a_flush_takes_no_more_than_so_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "MAX_RECORDS_A_FLUSH", 2)
    made = _of([_record("a"), _record("b"), _record("c"), _log("1")])
    assert _until_flush(made) == [Flush((_record("a"), _record("b")))]
    made.flushed()
    assert _until_flush(made) == [Flush((_record("c"),))]


def test_heartbeats_of_a_flush_say_what_was_said_before_it() -> None:
    made = _of([_beat(OLD), _record("a"), _beat(NEW)])
    _until_flush(made, 10.0)
    assert made.beats(10.25) == [_beat(OLD)]
    made.flushed()
    assert _until_flush(made, 11.0) == [_beat(NEW)]
    assert made.beats(11.0) == [], "the node speaks for itself"


def test_a_disk_that_hangs_makes_the_node_silent() -> None:
    made = _of([_beat(OLD), _record("a")])
    _until_flush(made, 10.0)
    late = 10.0 + duties.STUCK_SECONDS
    assert made.beats(late) and not made.stuck(late)
    assert made.stuck(late + 0.1) and not made.beats(late + 0.1)


def test_who_had_no_heartbeat_lately_gets_none() -> None:
    made = _of([_beat(OLD)])
    _until_flush(made, 10.0)
    later = cast(FakeEndpoint, made._endpoint)
    later.answers.append([_record("a")])
    made.post(e.Tick())
    _until_flush(made, 12.0)
    assert made.beats(12.25) == []


def test_too_many_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "MAX_QUEUED_EVENTS", 1)
    made = _of([])
    with pytest.raises(ElasticdError, match="1 events wait"):
        made.post(e.Cancel(1, JobId("j")))
