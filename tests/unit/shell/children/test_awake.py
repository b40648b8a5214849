"""A machine stays awake as long as a rank runs on it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticd.shell.children.awake import CAFFEINATE, Awake, keeper
from tests.unit.shell.children.test_children import Node

Run = Callable[[Coroutine[Any, Any, None]], None]

pytestmark = pytest.mark.process

# "-w pid: Waits for the process with the specified pid to exit. Once the the process exits, the
# assertion is also released." (caffeinate(8)); -i "Create an assertion to prevent the system from
# idle sleeping".
LIKE_CAFFEINATE = f"""#!{sys.executable}
import sys
from elasticd.supervision.exits import wait_without_reaping
assert sys.argv[1:3] == ["-i", "-w"], sys.argv
print("held", flush=True)
wait_without_reaping(int(sys.argv[3]))
"""


@pytest.fixture(params=["linux", "darwin"])
def awake(request: pytest.FixtureRequest, tmp_path: Path) -> Awake:
    """As each system has it; here what caffeinate does is done by a stand-in."""
    found = keeper(request.param)
    if not found:
        return Awake(found)
    assert found == CAFFEINATE
    program = tmp_path / "caffeinate"
    program.write_text(LIKE_CAFFEINATE)
    program.chmod(0o755)
    return Awake([str(program), *found[1:]])


@pytest.fixture
def rank() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait(10)


def words_of(pid: int) -> list[str]:
    """A process has none for a moment, while another program takes the place of its first one."""
    while not (words := psutil.Process(pid).cmdline()):
        time.sleep(0.001)
    return words


def test_it_is_held_until_the_rank_has_ended_whatever_becomes_of_the_daemon(
    awake: Awake, rank: subprocess.Popen[bytes]
) -> None:
    held = awake.hold(rank.pid)
    if held is None:
        assert not awake.command, "nothing keeps this system awake, and nothing needs to"
        return
    assert held.holder.poll() is None
    assert words_of(held.holder.pid)[-3:] == ["-i", "-w", str(rank.pid)]
    rank.kill()
    assert held.holder.wait(20) == 0, "it has ended by itself"
    held.release()


def test_where_it_can_not_be_had_the_rank_runs_all_the_same(tmp_path: Path) -> None:
    assert Awake([str(tmp_path / "no-such-program"), "-i", "-w"]).hold(1) is None


def test_each_trainer_has_one_until_it_ends_and_no_reducer(tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        asked: list[int] = []
        held: list[subprocess.Popen[bytes]] = []

        class Holds(Awake):
            def hold(self, pid: int) -> Any:
                asked.append(pid)
                found = Awake(["sleep"]).hold(60)
                assert found is not None
                held.append(found.holder)
                return found

        node = Node(tmp_path, Holds())
        trainer = node.made["trainer"]
        assert asked == [trainer.pid]
        assert held[0].poll() is None
        node.children.on_exit(trainer, -9)
        assert held[0].returncode == -9, "ended and reaped"
        node.close()

    run(main())
