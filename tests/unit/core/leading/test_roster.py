"""What a leader reads from its members' statuses."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.leading.roster import Roster
from elasticd.core.words.records import View
from tests.unit.core.leading.bench import EPOCH, A, B, status_of


def test_first_samples_that_differ_are_told_with_the_cure() -> None:
    roster = Roster(View(EPOCH, (A, B)))
    for node, digest in ((A, "12"), (B, "34")):
        told = status_of("ready")
        assert told.trainer is not None
        trainer = replace(told.trainer, fingerprint={"grain0": digest, "seed": "0"})
        roster.statuses[node] = replace(told, trainer=trainer)
    found = roster.mismatch((A, B))
    assert found.startswith("grain0 is 12 on a and 34 on b: ") and "sort what is listed" in found
