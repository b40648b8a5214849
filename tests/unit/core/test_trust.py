"""Whose state a leader finds to be another's."""

from __future__ import annotations

from elasticd.core.context import Context
from elasticd.core.messages import Digest
from elasticd.core.trust import Trust
from elasticd.types import NodeId, Stamp
from tests.unit.core.test_checkpointing import GENERATION, JOB, A, B, C, world_of


def test_late_words_of_old_states_do_not_hide_what_is_wrong_with_the_newest() -> None:
    trust, world = Trust(Context(A, "a1", lambda: "0000"), JOB), world_of(A, B, C)

    def tell(node: NodeId, step: int, digest: str) -> bool:
        told = Digest(JOB, GENERATION, step, Stamp(f"{step:032x}"), digest)
        return trust.compare(node, told, world) is not None

    assert not tell(A, 40, "odd")
    assert not tell(B, 40, "even")
    for step in (20, 25, 30, 35):
        assert not tell(C, step, "even")
    assert tell(C, 40, "even")
    assert set(trust.tainted) == {A}
