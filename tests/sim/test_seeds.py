"""The control plane under faults that a seed draws, and under those that it failed once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.commit import commit

from .plans import read_plan
from .run import simulate
from .seeds import setup_of
from .test_sim import passes

CORPUS = 100
DRAWN = 60
KEPT = sorted(Path(__file__).with_name("kept").glob("*.txt"))
_GROUP = 10
ROLES = [seed for seed in range(CORPUS, 4 * CORPUS) if setup_of(seed).roles]


@pytest.mark.parametrize("first", range(0, CORPUS, _GROUP))
def test_corpus(first: int) -> None:
    for seed in range(first, first + _GROUP):
        passes(simulate(setup_of(seed)))


@pytest.mark.parametrize("seed", ROLES)
def test_clusters_of_which_some_nodes_do_not_train(seed: int) -> None:
    passes(simulate(setup_of(seed)))


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_what_failed_once(kept: Path) -> None:
    """Shrunk by tests/sim/shrink.py; the second line of each says what was wrong."""
    passes(simulate(read_plan(kept.read_text())))


@pytest.mark.parametrize("offset", range(0, DRAWN, _GROUP))
def test_seeds_of_the_commit(offset: int) -> None:
    """Others for each commit; one that fails is told, and replay.py shrinks it."""
    first = random.Random(commit()).randrange(CORPUS, 10**12) + offset
    print(f"seeds from {first} on")
    for seed in range(first, first + _GROUP):
        passes(simulate(setup_of(seed)))
