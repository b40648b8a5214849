"""What one node asks another to do to its processes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from elasticd.core.words.bulk import Blow, StrikeHere
from elasticd.core.words.requests import StruckProcess
from elasticd.errors import UsageError
from elasticd.shell.chaos.inject import Chaos
from elasticd.types import NodeId


@pytest.mark.parametrize("process", ["reducer", "node"])
def test_only_a_trainer_runs_out_of_memory(process: StruckProcess) -> None:
    """Also where another node asks for it: it would have stopped this one."""
    nothing = cast(Any, None)
    chaos = Chaos(nothing, nothing, nothing, nothing, nothing)
    with pytest.raises(UsageError, match="only a trainer"):
        asyncio.run(chaos.serve(StrikeHere(Blow("oom", process, NodeId("a"), 7, 0.0))))
