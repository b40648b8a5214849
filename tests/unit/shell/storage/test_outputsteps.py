"""Files of run.open come from whoever has all of their steps, though main's may lack some."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from elasticd.outputs import OWN_FOLDER, Listing, OutputFile, index_of
from elasticd.shell.storage.outputsteps import may_lack, whole_elsewhere
from elasticd.stepindex import BASE, StepIndex
from elasticd.train.outputs.stepfile import StepFile
from elasticd.types import NodeId
from tests.unit.shell.storage.outputnet import A, B, C, Client, Net, Node

LOG = "body.csv"
STEPS = 30


@pytest.fixture
def net(tmp_path: Path) -> Net:
    return Net(tmp_path)


def log_of(node: Node, steps: Iterable[int], refused: Iterable[int] = ()) -> None:
    """Lines as a trainer there writes them; its disk refuses some, and those are written later."""
    node.output.mkdir(parents=True, exist_ok=True)
    file = StepFile(node.output / LOG, node.output / OWN_FOLDER / index_of(LOG), BASE)

    def refuse(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    held = ""
    for step in steps:
        held += f"{step}\n"
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


@pytest.mark.parametrize("seed", range(50))
def test_who_has_most_of_the_jobs_steps_is_chosen_and_main_if_nobody_has_more(
    seed: int,
) -> None:
    dice = random.Random(seed)
    last = dice.choice((None, 40))

    def drawn(name: str) -> tuple[OutputFile, set[int]]:
        often = dice.choice((0.1, 0.9, 1.0))
        have = {step for step in range(-1, 50) if dice.random() < often}
        index = StepIndex.of((step, 0) for step in sorted(have))
        runs = tuple((first, end) for first, end in index.runs())
        return OutputFile(name, 1, 0, 0, True, runs), have

    main, own = drawn(LOG)
    others = {NodeId(name): drawn(LOG) for name in "bcd"}
    upto = last if last is not None else max(own, default=-2)
    listings = {node: Listing((file,)) for node, (file, _) in others.items()}
    found = whole_elsewhere(Listing((main,)), listings, last)
    assert may_lack(Listing((main,)), last) or not found, "who is not asked has nothing to give"
    mine = {step for step in own if step <= upto}
    known = {node: {s for s in have if s <= upto} for node, (_, have) in others.items()}
    counts = {node: len(have) for node, have in known.items() if have >= mine}
    if not own or max(counts.values(), default=0) <= len(mine):
        assert found == {}
    else:
        assert counts[found[LOG][0]] == max(counts.values())
