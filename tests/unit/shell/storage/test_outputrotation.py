"""Main's script keeps its newest files only, and removes the older ones while they are copied."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.outputs import OutputSet
from elasticd.types import JobId
from tests.unit.shell.storage.outputnet import JOB, LIMIT, A, B, Net, Node
from tests.unit.shell.storage.test_outputwindow import Points


class Rotating:
    """A script on a node that writes one checkpoint after another, each of several files."""

    def __init__(self, node: Node, parts: int = 1, content: str = "") -> None:
        self._node, self._parts, self._content = node, parts, content
        self._steps = itertools.count(100, 10)
        self._last: list[str] = []

    def save(self) -> None:
        """Under another name first; then the older one goes."""
        step = next(self._steps)
        names = [f"{step}-{part}" for part in range(self._parts)]
        for name in names:
            self._node.write(**{f"{name}.tmp": f"{self._content}{step}"})
            (self._node.output / f"{name}.tmp").rename(self._node.output / name)
        for name in self._last:
            (self._node.output / name).unlink()
        self._last = names


@pytest.fixture
def net(tmp_path: Path) -> Net:
    return Net(tmp_path)


def follow_while(net: Net, happens: Callable[[str], object]) -> dict[str, str]:
    """What B has when that happens behind each file that A has opened for it."""
    net.served = happens
    asyncio.run(net.nodes[B].follow())
    net.served = lambda name: None
    assert net.nodes[B].texts().items() >= net.nodes[B].copy().items()
    return net.nodes[B].copy()


def listed(node: Node, then: Callable[[], object]) -> None:
    """Have that happen each time that the node has listed its files."""
    own_set = node.outputs.own_set

    async def lists(job: JobId, copy: bool, steps: bool = False) -> OutputSet:
        made = await own_set(job, copy, steps)
        then()
        return made

    node.outputs.own_set = lists  # type: ignore[method-assign]


def test_the_newer_ones_are_fetched_when_the_older_have_gone(net: Net) -> None:
    script = Rotating(net.nodes[A], parts=2)
    script.save()

    def once(name: str) -> None:
        if len(net.fetched) == 1:
            script.save()

    assert follow_while(net, once).items() >= {"110-0": "110", "110-1": "110"}.items()
    assert follow_while(net, once) == net.nodes[B].texts() == {"110-0": "110", "110-1": "110"}


def test_what_came_whole_counts_though_it_has_gone_since(net: Net) -> None:
    script = Rotating(net.nodes[A])
    script.save()
    copied = follow_while(net, lambda name: script.save())
    assert copied == {"100-0": "100", "110-0": "110", "120-0": "120"}


def test_none_of_an_older_one_goes_before_a_newer_one_is_whole(net: Net) -> None:
    """Each is removed before its second file has its turn."""
    script = Rotating(net.nodes[A], parts=2)
    script.save()
    whole = follow_while(net, lambda name: None)
    copied = follow_while(net, lambda name: None)
    assert copied == whole == {"100-0": "100", "100-1": "100"}
    script.save()
    copied = follow_while(net, lambda name: script.save())
    assert copied.items() >= whole.items()
    assert follow_while(net, lambda name: None) == net.nodes[A].texts() == net.nodes[B].texts()


def test_where_none_comes_the_copy_before_stays_and_that_is_told(net: Net) -> None:
    script = Rotating(net.nodes[A])
    script.save()
    asyncio.run(net.nodes[B].follow())
    listed(net.nodes[A], script.save)
    for _ in range(2):
        assert follow_while(net, lambda name: None) == {"100-0": "100"}
    ((kind, reason),) = net.told
    assert kind == "output_not_copied" and "no newer file of a came whole" in reason


def test_where_none_has_ever_come_there_is_no_copy(net: Net) -> None:
    script = Rotating(net.nodes[A])
    script.save()
    listed(net.nodes[A], script.save)
    assert follow_while(net, lambda name: None) == {}
    assert net.nodes[B].outputs.copies.newest(JOB) is None
    assert [kind for kind, _ in net.told] == ["output_not_copied"]


def test_a_log_goes_on_where_no_checkpoint_comes(net: Net) -> None:
    script = Rotating(net.nodes[A])
    script.save()
    net.nodes[A].write(log="1\n")
    asyncio.run(net.nodes[B].follow())
    net.nodes[A].write(log="1\n2\n")
    listed(net.nodes[A], script.save)
    assert follow_while(net, lambda name: None) == {"100-0": "100", "log": "1\n2\n"}
    assert net.told == []


def test_a_file_that_gets_its_name_while_it_comes_is_copied_under_that_alone(net: Net) -> None:
    a = net.nodes[A]
    a.write(**{"100.tmp": "100"})

    def named(name: str) -> None:
        if name == "100.tmp":
            (a.output / name).rename(a.output / "100")

    assert follow_while(net, named) == {"100": "100"}


def test_what_is_gone_takes_no_room_from_what_is_there(net: Net) -> None:
    script = Rotating(net.nodes[A], content="x" * (LIMIT // 2))
    script.save()
    copied = follow_while(net, lambda name: script.save())
    assert len(copied) == 1 and len(*copied.values()) <= LIMIT


def test_a_disk_that_has_no_such_name_keeps_nothing_that_main_has_removed(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = net.nodes[A], net.nodes[B]
    a.write(old="old", odd="odd", kept="kept")
    fetch = b.outputs.fetch

    async def refuses(node: str, wanted: object, file: object, target: Path) -> bool:
        if target.name == "odd":
            raise OSError(errno.ENAMETOOLONG, "File name too long")
        return await fetch(node, wanted, file, target)  # type: ignore[arg-type]

    monkeypatch.setattr(b.outputs, "fetch", refuses)
    assert follow_while(net, lambda name: None) == {"old": "old", "kept": "kept"}
    (a.output / "old").unlink()
    assert follow_while(net, lambda name: None) == {"kept": "kept"}


def test_the_newer_has_its_name_before_the_older_goes(net: Net) -> None:
    script, b = Rotating(net.nodes[A]), net.nodes[B]
    script.save()
    asyncio.run(b.follow())
    script.save()
    seen: list[set[str]] = []
    with Points(b.output, 1, lambda: seen.append({*b.texts()} & {"100-0", "110-0"})):
        asyncio.run(b.follow())
    assert len(seen) > 2 and all(seen) and b.texts() == {"110-0": "110"}
