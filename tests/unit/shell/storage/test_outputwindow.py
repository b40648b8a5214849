"""A node dies, or becomes main, at any point while it copies main's output and puts it in place."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from elasticd.outputs import PARTIAL_PREFIX
from tests.unit.shell.storage.outputnet import JOB, A, B, C, Net, Node

_CHANGES = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.utime"}


class Points:
    """Calls ``reached`` before each change that this process makes below a folder, from the n-th
    such on; ``syncs``: before each time that it waits for names to be on the medium. One at a time:
    a hook stays for ever."""

    current: ClassVar[Points | None] = None

    def __init__(
        self, folder: Path, number: int, reached: Callable[[], None], syncs: bool = False
    ) -> None:
        self._folder, self._left, self._reached = str(folder), number, reached
        self._syncs = syncs

    def __enter__(self) -> None:
        if not _hooked:
            sys.addaudithook(_hook)
            _hooked.append(True)
        Points.current = self

    def __exit__(self, *raised: object) -> None:
        Points.current = None

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        flags = args[2] if event == "open" and isinstance(args[2], int) else 0
        if self._syncs:
            counts = bool(flags & os.O_DIRECTORY)
        else:
            counts = bool(flags & os.O_CREAT) or event in _CHANGES
        if counts and str(args[0]).startswith(self._folder):
            self._left -= 1
            if self._left <= 0:
                self._reached()


_hooked: list[bool] = []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if Points.current is not None:
        Points.current.see(event, args)


def copied_once(folder: Path) -> Net:
    """C has b's copy of a's files, of which b has lost one by now; and b has written more."""
    net = Net(folder)
    a, c = net.nodes[A], net.nodes[C]
    a.write(log="1\n", gone="x", best="a's")
    asyncio.run(c.follow())
    net.world = (2, (B, A, C))
    net.nodes[B].write(log="1\n", gone="x")
    asyncio.run(c.follow())
    return later(net)


def later(net: Net) -> Net:
    b = net.nodes[B]
    b.write(log="1\n2\n", new="y")
    (b.output / "gone").unlink(missing_ok=True)
    return net


def main(folder: Path) -> None:
    """Make folders 1, 2, …: in the n-th C was killed before the n-th change of its next copy."""
    for number in itertools.count(1):
        net = copied_once(folder / str(number))
        child = os.fork()
        if not child:
            with Points(net.folder / C, number, lambda: os._exit(9)):
                asyncio.run(net.nodes[C].follow())
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            return


def killed(folder: Path) -> list[Net]:
    """They are started again."""
    root = Path(__file__).parents[4]
    command = [sys.executable, "-m", "tests.unit.shell.storage.test_outputwindow", str(folder)]
    subprocess.run(command, check=True, timeout=120, cwd=root)
    nets = []
    for here in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        nets.append(Net(here))
        nets[-1].world = (2, (B, A, C))
    assert len(nets) > 10
    return nets


async def become_main(net: Net, node: Node) -> dict[str, str]:
    """Its newest copy, and then its script adds to a file."""
    net.world = (3, (C, A))
    await node.keeper.enters(JOB, 3, (C, A))
    had = node.copy()
    with (node.output / "log").open("a") as file:
        file.write("mine\n")
    return had


def test_who_was_killed_and_becomes_main_goes_on_with_its_newest_copy(
    tmp_path: Path,
) -> None:
    for net in killed(tmp_path):
        c = net.nodes[C]
        net.lost = {B}

        async def run(net: Net, c: Node) -> dict[str, str]:
            c.keeper.go_on(JOB, (2, (B, A, C)))
            return await become_main(net, c)

        had = asyncio.run(run(net, c))
        assert c.texts() == {**had, "best": "a's", "log": had["log"] + "mine\n"}, net.folder.name


def test_who_was_killed_follows_main_as_before(tmp_path: Path) -> None:
    for net in killed(tmp_path):
        b, c = net.nodes[B], net.nodes[C]

        async def run(c: Node) -> None:
            c.keeper.go_on(JOB, (2, (B, A, C)))
            await c.follow()

        asyncio.run(run(c))
        assert c.texts() == {**b.texts(), "best": "a's"}, net.folder.name
        b.write(log="1\n2\n3\n", new="yy")
        asyncio.run(c.follow())
        assert c.texts() == {**b.texts(), "best": "a's"}, net.folder.name
        (b.output / "new").unlink()
        asyncio.run(c.follow())
        assert c.texts() == {"log": "1\n2\n3\n", "best": "a's"}, net.folder.name
        assert not [name for name in os.listdir(c.output) if name.startswith(PARTIAL_PREFIX)]


def test_a_trainer_that_is_started_finds_the_newest_copy(tmp_path: Path) -> None:
    for net in killed(tmp_path):
        c = net.nodes[C]
        net.lost, c.runs = {A, B}, False
        asyncio.run(c.keeper.prepare(JOB))
        assert c.texts() == {**c.copy(), "best": "a's"}, net.folder.name


def test_what_was_fetched_is_kept_though_there_is_no_time_to_place_it(tmp_path: Path) -> None:
    """As where the files beside take longer than a trainer may be held back."""
    net = copied_once(tmp_path)
    b, c = net.nodes[B], net.nodes[C]
    c.runs = False

    async def prepare() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(c.keeper.prepare(JOB))

        def stop() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with Points(c.output, 1, stop):
            await asyncio.wait([task])
        assert task.cancelled()

    before = c.copy()
    asyncio.run(prepare())
    assert c.copy() == b.texts() != before
    asyncio.run(c.keeper.prepare(JOB))
    assert c.texts() == {**b.texts(), "best": "a's"}


def test_what_mains_script_has_removed_stays_away(tmp_path: Path) -> None:
    """Its daemon is started again, and a copy of the main before is still here."""
    net = copied_once(tmp_path)
    c = net.nodes[C]
    (c.output / "gone").unlink()

    async def run() -> None:
        c.keeper.go_on(JOB, (3, (C, A)))
        await c.keeper._tasks.ended()
        await c.follow()

    asyncio.run(run())
    assert c.texts() == {"log": "1\n", "best": "a's"}


async def main_at(net: Net, number: int, syncs: bool = False) -> dict[str, str] | None:
    """C becomes main before the n-th change of its copy; ``syncs``: while its disk hangs in the
    n-th of them. Its newest copy by then; None: it was made with fewer."""
    c, loop, told = net.nodes[C], asyncio.get_running_loop(), threading.Event()
    works: list[asyncio.Task[dict[str, str]]] = []

    async def begin() -> None:
        works.append(asyncio.create_task(become_main(net, c)))
        if syncs:
            await asyncio.wait(works)
        for _ in range(20):  # it has written, or it waits for the copy
            await asyncio.sleep(0)
        told.set()

    def reached() -> None:
        Points.current = None
        if threading.current_thread() is threading.main_thread():
            works.append(loop.create_task(become_main(net, c)))
        else:
            asyncio.run_coroutine_threadsafe(begin(), loop)
            told.wait()

    with Points(net.folder / C, number, reached, syncs):
        await c.follow()
    return await works[0] if works else None


def test_who_becomes_main_meanwhile_goes_on_with_its_newest_copy(tmp_path: Path) -> None:
    """Its script writes as soon as it may, at each point of the copy."""
    for number in itertools.count(1):
        net = copied_once(tmp_path / str(number))
        had = asyncio.run(main_at(net, number))
        if had is None:
            break
        found = net.nodes[C].texts()
        assert found == {**had, "best": "a's", "log": had["log"] + "mine\n"}, number
    assert number > 10


def test_who_becomes_main_while_its_disk_hangs_goes_on_with_its_newest_copy(
    tmp_path: Path,
) -> None:
    """Its script writes as soon as it may, and only then does the disk go on."""
    for number in itertools.count(1):
        net = copied_once(tmp_path / str(number))
        had = asyncio.run(main_at(net, number, syncs=True))
        if had is None:
            break
        found = net.nodes[C].texts()
        assert found == {**had, "best": "a's", "log": had["log"] + "mine\n"}, number
    assert number > 2


if __name__ == "__main__":
    main(Path(sys.argv[1]))
