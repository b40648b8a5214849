"""Scripts as people write them, while processes are killed.

Seven of them each time, and with ``make deep`` one more that loads much, and others that the
commit's hash draws, with blows that it draws, too; ``make soak SOAK=gallery`` runs all.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.commit import commit
from tests.gallery.alone import judge_alone, run_alone
from tests.gallery.blows import Kind, draw, draw_all
from tests.gallery.cards import cards
from tests.gallery.exhibit import NODES, judge, run_on
from tests.integration.cluster import Cluster

pytestmark = pytest.mark.process

KILLED: dict[str, Kind] = {
    "transformer_lm": "reducer",
    "resnet_batchnorm": "main",
    "decay_in_body": "everything",
    "rate_before_loop": "trainer",
    "tracked_objects": "trainer",
    "stream_with_state": "main",
    "json_lines_stream": "everything",
    "hub_stream": "everything",
}
SLOW_TO_LOAD = {"hub_stream": pytest.mark.deep}
DRAWN = 12
"""So many of the others in ``make deep``."""


CARDS = cards()
COMMIT = commit()
OTHERS = random.Random(COMMIT).sample(sorted(CARDS.keys() - KILLED.keys()), DRAWN)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(*pair, marks=SLOW_TO_LOAD.get(pair[0], ()), id=pair[0])
        for pair in KILLED.items()
    ],
)
def test_a_script_has_the_same_bits_after_a_kill(
    name: str, kind: Kind, cluster: Cluster, kernels: Path, tmp_path: Path
) -> None:
    card = CARDS[name]
    alone = run_alone(card, tmp_path / "alone", kernels)
    assert not judge_alone(card, alone)
    blows = draw(random.Random(name), card.steps, NODES, [kind])
    ended = run_on(cluster, card, tmp_path / "killed", blows, kernels)
    wrong = judge(card, alone, ended)
    assert not wrong, cluster.report("; ".join(wrong))
    assert ended.struck, cluster.report("nothing was there to be killed")


@pytest.mark.deep
@pytest.mark.parametrize("name", OTHERS)
def test_a_script_keeps_what_its_card_says(
    name: str, cluster: Cluster, kernels: Path, tmp_path: Path
) -> None:
    card = CARDS[name]
    alone = run_alone(card, tmp_path / "alone", kernels)
    wrong = judge_alone(card, alone)
    if card.todo and wrong:
        pytest.xfail(f"{card.todo}: {wrong}")
    blows = draw_all(random.Random(f"{COMMIT}/{name}"), card, NODES)
    for way, struck in (("undisturbed", []), ("killed", blows)):
        ended = run_on(cluster, card, tmp_path / way, struck, kernels)
        wrong += [f"{way}: {one}" for one in judge(card, alone, ended)]
    if card.todo and wrong:
        pytest.xfail(f"{card.todo}: {wrong}")
    assert not card.todo, f"it is cured: its todo ({card.todo}) must go"
    assert not wrong, cluster.report("; ".join(wrong))
