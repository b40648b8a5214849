"""elasticctl cluster rotate: what it says, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from elasticd.cli import rotation
from elasticd.cli.options import Common
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.every import Request
from elasticd.core.words.requests.nodes import RotateCertificates, RotationTold
from elasticd.errors import NoDaemonError, OperationError
from elasticd.types import NodeId

A, B = NodeId("mac-1"), NodeId("mac-2")
BEGUN = RotationTold(5.0, (), (A,), (B,), False)
HALF = RotationTold(5.0, (A,), (), (B,), False)
OVER = RotationTold(5.0, (A,), (), (B,), True)


class Told:
    """A command line whose daemon says this."""

    def __init__(self, *said: RotationTold | BaseException, json: bool = False) -> None:
        self.json, self._said = json, said
        self.client = self

    def stream(self, request: Request) -> Iterator[dict[str, Any]]:
        assert request == RotateCertificates()
        for each in self._said:
            if isinstance(each, BaseException):
                raise each
            yield cast(dict[str, Any], to_plain(each))


def run(told: Told, clock: Iterator[float] | None = None) -> None:
    ticks = clock or iter([0.0] * 1000)
    rotation.run(cast(Common, told), lambda: next(ticks))


def test_each_change_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    run(Told(BEGUN, BEGUN, HALF, OVER))
    assert capsys.readouterr().out.splitlines() == [
        "0 of 2 renewed; mac-1 still to come; mac-2 is away, it is renewed when it is back",
        "1 of 2 renewed; mac-2 is away, it is renewed when it is back",
        "1 of 2 renewed; mac-2 is away, it is renewed when it is back; old certificates are"
        " refused from now on",
    ]


def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    run(Told(BEGUN, OVER, json=True))
    assert json.loads(capsys.readouterr().out) == {
        "renewed": ["mac-1"],
        "waiting": [],
        "away": ["mac-2"],
        "old_refused": True,
        "old_until_unix": 5.0,
    }


def test_it_ends_when_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 1.0, 2.0, 62.0])
    with pytest.raises(OperationError, match="nothing has changed for 60 s: mac-1 waits"):
        run(Told(BEGUN, BEGUN, BEGUN, OVER), clock)


@pytest.mark.parametrize(
    ("said", "raised", "match"),
    [
        ((NoDaemonError("none"),), NoDaemonError, "none"),
        ((BEGUN, NoDaemonError("gone")), OperationError, "gone; it goes on by itself"),
        ((BEGUN, KeyboardInterrupt()), KeyboardInterrupt, None),
        ((OperationError("say it on mac-1"),), OperationError, "say it on mac-1"),
    ],
)
def test_who_is_gone(
    said: tuple[Any, ...],
    raised: type[BaseException],
    match: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(raised, match=match):
        run(Told(*said))
    if raised is KeyboardInterrupt:
        assert "it goes on by itself" in capsys.readouterr().err


def test_many_names_are_counted() -> None:
    many = tuple(NodeId(f"n{number}") for number in range(6))
    text = rotation.worded(RotationTold(5.0, (), many, (), False))
    assert text == "0 of 6 renewed; n0, n1, n2 and 3 others still to come"
