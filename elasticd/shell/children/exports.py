"""States of trainers, asked for by whoever has need of one."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterable
from dataclasses import replace

from elasticd.core.words.bulk import WantState
from elasticd.core.words.effects import ChildId
from elasticd.core.words.trainers import TO_TRAINER, ExportState
from elasticd.errors import OperationError, ProtocolError
from elasticd.shell.children.running import RunningChild

_MAX_PARTS = 64
_SERIAL_BITS = 48


class Exports:
    """Questions to trainers that are not answered yet."""

    def __init__(self) -> None:
        # Not from 1: a trainer that outlived the daemon before us may yet answer what that asked.
        self._serials = secrets.randbits(_SERIAL_BITS)
        self._open: dict[tuple[ChildId, int], asyncio.Future[int]] = {}

    async def ask(self, trainers: Iterable[RunningChild], wanted: WantState) -> int:
        """A descriptor of what the first trainer that can exports; the caller closes it.

        Raises:
            OperationError: no trainer has that now.
            ProtocolError: no trainer could answer that.
        """
        asked = checked(wanted)
        reason = "no trainer"
        for trainer in trainers:
            self._serials += 1
            key = trainer.id, self._serials
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._open[key] = future
            trainer.child.send(TO_TRAINER.encode(replace(asked, serial=self._serials)))
            try:
                return await future
            except OperationError as error:
                reason = str(error)
            finally:
                self._open.pop(key, None)
        raise OperationError(f"step {asked.step} can't be exported: {reason}")

    def given(self, trainer: ChildId, serial: int, fd: int) -> None:
        """A trainer's answer, whose descriptor is closed if nobody waits for it any more."""
        future = self._open.get((trainer, serial))
        if future is None or future.done():
            os.close(fd)
        else:
            future.set_result(fd)

    def refused(self, trainer: ChildId, serial: int, reason: str) -> None:
        future = self._open.get((trainer, serial))
        if future is not None and not future.done():
            future.set_exception(OperationError(reason))

    def ended(self, trainer: ChildId) -> None:
        """It answers nothing any more."""
        for asked, serial in self._open:
            if asked == trainer:
                self.refused(asked, serial, "the trainer ended")


def checked(wanted: WantState) -> ExportState:
    """What a trainer is asked to export: checked here, for it would end of what it can't read.

    Raises:
        ProtocolError: it can't.
    """
    if not 0 <= wanted.part < wanted.parts <= _MAX_PARTS:
        raise ProtocolError(f"there is no part {wanted.part} of {wanted.parts}")
    return ExportState(0, wanted.step, wanted.stamp, wanted.since, wanted.part, wanted.parts)
