"""What this node has kept of a job's losses, for the command line and the web page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticd.core.words.requests.looking import ReadLosses
from elasticd.shell.control.server import Handlers, Stream, on
from elasticd.shell.storage.losses import Losses
from elasticd.types import JobId


@dataclass(frozen=True, slots=True)
class LossDesk:
    """``known``: the id of a job that there is; raises OperationError else."""

    losses: Losses
    known: Callable[[JobId], JobId]

    def handlers(self) -> Handlers:
        return on(ReadLosses, self.read)

    async def read(self, request: ReadLosses, stream: Stream) -> Mapping[str, Any]:
        return await self.losses.of(self.known(request.job))
