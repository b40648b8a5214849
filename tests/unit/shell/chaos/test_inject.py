"""What one node asks another to do to its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.core.words.bulk import Blow, StrikeHere
from elasticd.core.words.records import JobRecord
from elasticd.core.words.requests.chaos import StrikeRank, StruckProcess
from elasticd.errors import OperationError, UsageError
from elasticd.shell.chaos.inject import Chaos, wake_later
from elasticd.types import JobId, NodeId


@pytest.mark.parametrize("process", ["reducer", "node"])
def test_only_a_trainer_runs_out_of_memory(process: StruckProcess) -> None:
    """Also where another node asks for it: it would have stopped this one."""
    nothing = cast(Any, None)
    chaos = Chaos(nothing, nothing, nothing, nothing, nothing)
    with pytest.raises(UsageError, match="only a trainer"):
        asyncio.run(chaos.serve(StrikeHere(Blow("oom", process, NodeId("a"), 7, 0.0))))


@pytest.mark.process
def test_a_node_that_hangs_for_a_while_goes_on_behind_it() -> None:
    """It has stopped itself, so another process wakes it; one of its own may have ended by then."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    stopped = subprocess.Popen(["sleep", "60"])
    try:
        stopped.send_signal(signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
        wake_later([gone.pid, stopped.pid], 0.1)
        assert os.WIFCONTINUED(os.waitpid(stopped.pid, os.WCONTINUED)[1])
    finally:
        stopped.kill()
        stopped.wait()


def test_what_has_ended_is_not_broken() -> None:
    nothing = cast(Any, None)
    record = JobRecord(JobId("a-1"), 1, {}, "0" * 64, "finished")
    node = cast(Any, SimpleNamespace(records={record.id: record}))
    chaos = Chaos(node, nothing, nothing, nothing, nothing)
    with pytest.raises(OperationError, match=r"^a-1 has ended: it finished$"):
        asyncio.run(chaos.strike(StrikeRank("kill", record.id, 0), nothing))
