"""What a leader reads from its members' statuses."""

from __future__ import annotations

from dataclasses import replace

from elasticd.core.leading.roster import Roster
from elasticd.core.words.records import View
from elasticd.recovery.samples import Samples
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


def test_the_first_line_that_differs_is_told() -> None:
    roster = Roster(View(EPOCH, (A, B)))
    for node in (A, B):
        told = status_of("ready")
        assert told.trainer is not None
        lines = {
            f"data/a.jsonl:{line}": f"{node if line in (9, 10) else 0}" for line in range(1, 12)
        }
        trainer = replace(told.trainer, fingerprint={"grain0": node, "data/a.jsonl": "11", **lines})
        roster.statuses[node] = replace(told, trainer=trainer)
    assert roster.mismatch((A, B)).startswith("data/a.jsonl:9 is a on a and b on b: ")


def test_samples_are_compared_where_they_are_told_in_one_form() -> None:
    """While a cluster is upgraded they aren't."""
    roster = Roster(View(EPOCH, (A, B)))

    def mismatch(*forms: int) -> str:
        for node, form in zip((A, B), forms, strict=True):
            told = status_of("ready")
            assert told.trainer is not None
            samples = Samples(form, {"data/sample 0": node})
            trainer = replace(told.trainer, fingerprint={"grain0": "x"}, samples=samples)
            roster.statuses[node] = replace(told, trainer=trainer)
        return roster.mismatch((A, B))

    assert mismatch(1, 1).startswith("data/sample 0 is a on a and b on b: ")
    assert mismatch(1, 2) == ""


def test_what_a_node_computes_with_outlives_a_view() -> None:
    """In a new one it may say what it has stored before it says how it is."""
    roster = Roster(View(EPOCH, (A, B)))
    assert roster.may_differ_in_chips((A, B)), "nobody has spoken: we have just begun to lead"
    for node, chip in ((A, "M1"), (B, "M3")):
        roster.hear(node, replace(status_of("ready"), chip=chip))
    roster.follow(View(EPOCH, (A, B)))
    assert roster.chips((A, B)) == {A: "M1", B: "M3"} and roster.may_differ_in_chips((A, B))
    roster.hear(B, replace(status_of("ready"), chip="M1"))
    assert not roster.may_differ_in_chips((A, B))
    roster.hear(B, status_of("ready"))
    assert roster.chips((B,)) == {B: "M1"}, "it isn't known while it begins"
