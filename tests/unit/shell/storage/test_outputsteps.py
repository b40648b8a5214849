"""Files of run.open come from whoever has all of their steps, though main's may lack some."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from elasticd.outputs import OWN_FOLDER, Listing, OutputFile, index_of
from elasticd.shell.storage.outputsteps import may_lack, together, upto
from elasticd.stepindex import BASE, MAGIC, StepIndex
from elasticd.train.outputs.stepfile import StepFile
from elasticd.types import NodeId
from tests.unit.shell.storage.outputnet import JOB, A, B, C, Client, Net, Node

LOG = "body.csv"
STEPS = 30


@pytest.fixture
def net(tmp_path: Path) -> Net:
    return Net(tmp_path)


def log_of(node: Node, steps: Iterable[int], refused: Iterable[int] = (), whose: str = "") -> None:
    """Lines as a trainer there writes them; its disk refuses some, and those are written later."""
    node.output.mkdir(parents=True, exist_ok=True)
    file = StepFile(node.output / LOG, node.output / OWN_FOLDER / index_of(LOG), BASE)

    def refuse(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    held = ""
    for step in steps:
        held += f"{step} {whose}".rstrip() + "\n"
        file.pwrite = refuse if step in set(refused) else None
        try:
            file.append(step, held.encode())
            held = ""
        except OSError:
            pass
    file.pwrite = None
    file.append_behind(held.encode())


def lines(*steps: range) -> str:
    return "".join(f"{step}\n" for each in steps for step in each)


ALL = range(STEPS + 1)


def test_what_the_disk_of_main_refused_comes_from_a_rank_that_has_it(net: Net) -> None:
    a, b, c = (net.nodes[name] for name in (A, B, C))
    net.state, net.step = "finished", STEPS
    log_of(a, range(27, STEPS + 1), refused=range(27, STEPS + 1))
    log_of(b, range(20))
    log_of(c, ALL)
    a.write(note="main's")
    b.write(note="another rank's")
    for node in (a, b, c):
        client = Client(node)
        assert client.files == {LOG: lines(ALL), "note": "main's"}
        assert client.head["node"] == A and client.head["bytes"] == len(lines(ALL)) + 6
        assert f"{LOG} is c's own, since a's lacks steps" in client.head["note"]
    net.lost = {C}
    assert Client(a).files[LOG] == lines(range(20)), "the most that there is"
    net.lost = {B, C}
    client = Client(a)
    assert client.files[LOG] == lines(range(27, STEPS + 1)) and not client.head["note"]


def test_main_that_has_all_hands_out_its_own(net: Net) -> None:
    a, b = net.nodes[A], net.nodes[B]
    log_of(a, ALL)
    log_of(b, range(STEPS + 9))
    for net.state, net.step in (("running", 0), ("finished", STEPS), ("cancelled", STEPS + 1)):
        client = Client(b)
        assert client.files == {LOG: lines(ALL)} and not client.head["note"]


def test_of_a_node_that_does_not_say_which_steps_it_has_nothing_is_known(net: Net) -> None:
    """An earlier version, or an index that can't be read."""
    a, b = net.nodes[A], net.nodes[B]
    log_of(a, range(5))
    log_of(b, ALL)
    net.state, net.step = "finished", STEPS
    (b.output / OWN_FOLDER / index_of(LOG)).write_bytes(b"what is that")
    assert Client(a).files == {LOG: lines(range(5))}
    (a.output / OWN_FOLDER / index_of(LOG)).write_bytes(b"nor that")
    assert Client(a).files == {LOG: lines(range(5))}


def test_who_has_left_the_job_has_lines_that_nobody_else_has(net: Net) -> None:
    """As where the others joined without the last that had them: it was drained at once."""
    a, b, c = (net.nodes[name] for name in (A, B, C))
    net.state, net.step, net.world = "finished", STEPS, (5, (A, B))
    for node in (a, b):
        log_of(node, [*range(8), *range(16, STEPS + 1)], whose=node.outputs.me)
        file = StepFile(node.output / LOG, node.output / OWN_FOLDER / index_of(LOG), STEPS)
        file.append_behind(b"done\n")
    log_of(c, range(17), whose="c")
    for node in (a, b, c):
        client = Client(node)
        text = client.files[LOG] or ""
        said = dict(line.split() for line in text.splitlines()[:-1])
        assert [*map(int, said)] == [*ALL] and text.endswith("done\n")
        assert (said["8"], said["16"]) == ("c", "a")
        assert client.head["bytes"] == len(text)
        assert f"{LOG} is put together of a's and c's: none has all steps" in client.head["note"]
    net.lost = {C}
    assert len((Client(a).files[LOG] or "").splitlines()) == STEPS + 1 - 8 + 1, "as main has it"


def test_when_a_job_has_ended_main_has_the_lines_of_who_may_be_removed_then(net: Net) -> None:
    a, b, c = (net.nodes[name] for name in (A, B, C))
    net.state, net.step, net.ended, net.world = "finished", STEPS, True, (5, (A, B))
    for node in (a, b):
        log_of(node, [*range(8), *range(16, STEPS + 1)])
    log_of(c, range(17))
    a.write(note="main's")
    b.runs = c.runs = False
    running = iter([True, False])
    a.keeper.whole._runs = lambda job: next(running)

    async def scene() -> None:
        for node in (a, b, c):
            node.keeper._tasks.start(node.keeper.whole.make(JOB))
        for node in (a, b, c):
            await node.keeper._tasks.ended()

    asyncio.run(scene())
    assert a.texts() == {LOG: lines(ALL), "note": "main's"}
    assert StepFile(a.output / LOG, a.output / OWN_FOLDER / index_of(LOG), STEPS).runs() == [
        [BASE, STEPS]
    ]
    assert b.copy()[LOG] == lines(ALL) and not list(a.output.glob(f"{OWN_FOLDER}/whole-*"))
    assert (b.output / LOG).read_text() != lines(ALL), "it is its rank's own"
    net.lost = {C}
    assert Client(b).files[LOG] == lines(ALL)


def test_a_file_that_another_has_whole_is_brought_when_the_job_has_ended(net: Net) -> None:
    a, c = net.nodes[A], net.nodes[C]
    net.state, net.step, net.ended = "finished", STEPS, True
    log_of(a, range(9, STEPS + 1))
    log_of(c, ALL, whose="c")
    a.runs = False

    async def scene() -> None:
        a.keeper._tasks.start(a.keeper.whole.make(JOB))
        await a.keeper._tasks.ended()

    asyncio.run(scene())
    assert (a.output / LOG).read_text() == (c.output / LOG).read_text()


def test_lines_that_may_be_of_missing_steps_are_not_behind_the_others_too(net: Net) -> None:
    """What main could not write in time lies behind its last step."""
    a, b, c = (net.nodes[name] for name in (A, B, C))
    net.state, net.step = "finished", STEPS
    log_of(a, range(STEPS + 1), refused=range(28, STEPS + 1))
    log_of(b, range(20))
    log_of(c, range(20, STEPS + 1))
    assert Client(a).files[LOG] == lines(ALL)


def test_of_a_running_job_nothing_is_told_that_main_has_not_come_to(net: Net) -> None:
    """It may have gone back meanwhile."""
    a, b = net.nodes[A], net.nodes[B]
    log_of(a, [*range(4), *range(6, 12)])
    log_of(b, [*range(6), *range(8, 20)])
    assert Client(a).files[LOG] == lines(range(12))


def test_where_mains_copy_is_all_that_is_left_of_it_others_lines_are_there_too(net: Net) -> None:
    a, b, c = (net.nodes[name] for name in (A, B, C))
    net.state, net.step = "finished", STEPS
    log_of(a, range(20))
    a.write(note="main's")
    asyncio.run(b.follow())
    net.lost = {A}
    log_of(b, range(10))
    assert Client(c).files == {LOG: lines(range(20)), "note": "main's"}
    log_of(c, range(8, STEPS + 1))
    client = Client(c)
    assert client.files == {LOG: lines(ALL), "note": "main's"} and client.head["copy"]


@pytest.mark.parametrize("index", [b"what is that", MAGIC + b"\xff\xff\xff"])
def test_an_index_that_changes_meanwhile_counts_for_nothing(net: Net, index: bytes) -> None:
    a, c = net.nodes[A], net.nodes[C]
    net.state, net.step = "finished", STEPS
    log_of(a, range(8, STEPS + 1))
    log_of(c, range(10))
    net.served = lambda name: (c.output / OWN_FOLDER / index_of(LOG)).write_bytes(index)
    assert Client(a).files[LOG] == lines(range(8, STEPS + 1))


@pytest.mark.parametrize("seed", range(50))
def test_all_steps_that_anybody_has_are_chosen_and_of_as_few_as_come_first(seed: int) -> None:
    dice = random.Random(seed)
    last = dice.choice((None, 40))

    def drawn() -> tuple[OutputFile, set[int]]:
        often = dice.choice((0.1, 0.9, 1.0))
        have = {step for step in range(-1, 50) if dice.random() < often} | {0}
        index = StepIndex.of((step, 0) for step in sorted(have))
        runs = tuple((first, end) for first, end in index.runs())
        return OutputFile(LOG, 1, 0, 0, True, runs), have

    drawings = {NodeId(name): drawn() for name in "abcd"}
    main, own = drawings[A]
    ends = upto(main, last)
    assert ends == (max(own) if last is None else last)
    known = {node: {s for s in have if s <= ends} for node, (_, have) in drawings.items()}
    chosen = [node for node, _ in together([(n, f) for n, (f, _) in drawings.items()], ends)]
    assert {s for node in chosen for s in known[node]} == {s for k in known.values() for s in k}
    assert len(known[chosen[0]]) == max(map(len, known.values()))
    assert chosen[1:] == sorted(chosen[1:])
    for place in range(1, len(chosen)):
        assert known[chosen[place]] - {s for node in chosen[:place] for s in known[node]}
    everything = set(range(-1, ends + 1))
    assert may_lack(Listing((main,)), last) == (known[A] != everything)
