"""What trainers tell of samples, and which of it is compared while a cluster is upgraded."""

from __future__ import annotations

from elasticd.recovery.samples import NO_SAMPLES, Samples, Told, apart, comparable
from elasticd.types import NodeId

A, B, C = (NodeId(name) for name in "abc")
REST = {"dataset": "list of 2"}


def told(digest: str, form: int = 1) -> Told:
    return REST, Samples(form, {"data/sample 0": digest})


def test_samples_are_compared_among_trainers_that_tell_them_in_one_form() -> None:
    x, y = ({**REST, "data/sample 0": digest} for digest in "xy")
    assert comparable({A: told("x"), B: told("y")}) == {A: x, B: y}
    assert comparable({A: told("x"), B: told("x"), C: told("y", 2)}) == {A: REST, B: REST, C: REST}
    assert comparable({A: told("x"), B: (REST, NO_SAMPLES)}) == {A: REST, B: REST}
    nothing = (REST, Samples(1))
    assert comparable({A: told("x"), B: nothing}) == {A: x, B: REST}, "its data are of another kind"
    assert comparable({}) == {}


def test_samples_of_an_earlier_build_are_within_its_fingerprint_and_count_nowhere() -> None:
    """It has none of a form, or one that nobody knows."""
    old = ({**REST, "data/sample 0": "x", "data/samples 1 to 2": "y"}, NO_SAMPLES)
    other = ({**REST, "data/sample 0": "z"}, NO_SAMPLES)
    assert comparable({A: old, B: other}) == {A: REST, B: REST}
    assert comparable({A: old, B: told("x")}) == {A: REST, B: REST}


def test_a_file_may_be_called_as_samples_are() -> None:
    files = {f"data/{n}": "x" for n in ("samples.jsonl:17", "sample 1.txt", "samples 2/a.txt")}
    samples = {"data/sample 0": "x", "data/samples 999 to 1001": "x"}
    assert apart({**files, **samples}, 3) == (files, Samples(3, samples))
    assert comparable({A: (files, NO_SAMPLES)}) == {A: files}
