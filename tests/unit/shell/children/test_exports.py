"""What a peer may ask of a trainer."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from elasticd.core.words.bulk import WANTS, WantState
from elasticd.core.words.effects import ChildId
from elasticd.core.words.trainers import TO_TRAINER, ExportState
from elasticd.errors import OperationError, ProtocolError
from elasticd.shell.children.exports import Exports, checked
from elasticd.shell.children.running import RunningChild
from elasticd.types import JobId, Stamp

GOOD: dict[str, Any] = {"job": "j", "step": 3, "stamp": "s"}
WHOLE = ExportState(serial=0, step=3, stamp=Stamp("s"), since=None, part=0, parts=1)


def asked(frame: dict[str, Any]) -> ExportState:
    wanted = WANTS.decode({"what": "state", **frame})
    assert isinstance(wanted, WantState)
    return checked(wanted)


@pytest.mark.parametrize(
    "changes",
    [
        {"job": None}, {"step": "3"}, {"step": True}, {"stamp": 3}, {"since": ["s"]},
        {"part": 1}, {"part": -1}, {"parts": 0}, {"parts": 10**6}, {"parts": "2"}, {"part": None},
    ],
    ids=str,
)  # fmt: skip
def test_what_would_end_a_trainer_does_not_reach_it(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        asked(GOOD | changes)


def test_a_whole_state_is_the_default() -> None:
    assert asked(GOOD) == WHOLE
    assert asked(GOOD | {"since": "r", "part": 1, "parts": 2}).part == 1


@dataclass
class Asked:
    """A trainer that answers nothing by itself."""

    serials: list[int] = field(default_factory=list)
    id: ChildId = 7

    @property
    def child(self) -> Asked:
        return self

    def send(self, frame: dict[str, Any]) -> None:
        word = TO_TRAINER.decode(frame)
        assert isinstance(word, ExportState)
        self.serials.append(word.serial)


async def ask(exports: Exports, trainer: Asked, step: int) -> asyncio.Task[int]:
    """A question that waits for its answer."""
    wanted = WantState(JobId("j"), step, Stamp(f"s{step}"))
    task = asyncio.create_task(exports.ask([cast(RunningChild, trainer)], wanted))
    await asyncio.sleep(0)
    return task


async def descriptors(*tasks: asyncio.Task[int]) -> list[int]:
    return await asyncio.gather(*tasks)


def test_each_answer_goes_to_its_question() -> None:
    async def run() -> None:
        exports, trainer = Exports(), Asked()
        first, second = await ask(exports, trainer, 1), await ask(exports, trainer, 2)
        one, two = os.pipe()
        exports.given(trainer.id, trainer.serials[1], two)
        exports.given(trainer.id, trainer.serials[0], one)
        assert await descriptors(first, second) == [one, two]
        os.close(one)
        os.close(two)

    asyncio.run(run())


def test_what_the_daemon_before_asked_is_no_answer_to_this_one() -> None:
    async def run() -> None:
        before, exports, trainer = Exports(), Exports(), Asked()
        old, new = await ask(before, trainer, 1), await ask(exports, trainer, 2)
        late, right = os.pipe()
        exports.given(trainer.id, trainer.serials[0], late)
        with pytest.raises(OSError):
            os.fstat(late)  # closed: nobody waits for it
        exports.refused(trainer.id, trainer.serials[0], "too late")
        assert not new.done()
        exports.given(trainer.id, trainer.serials[1], right)
        assert await descriptors(new) == [right]
        os.close(right)
        before.ended(trainer.id)
        with pytest.raises(OperationError, match="the trainer ended"):
            await old

    asyncio.run(run())
