"""Names that can't be in one folder on every disk."""

from __future__ import annotations

import pytest

from elasticd.disknames import DiskNames


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("a", "a"), ("A", "a"), ("\u00e9", "e\u0301"), ("stra\u00dfe", "STRASSE"), ("a", "A/x"),
        ("A/x", "a"), ("a/b/c", "A/B"), ("a/B", "a/b/c/d"),
    ],
)  # fmt: skip
def test_they_are_told_by_the_first_and_not_taken_in(first: str, then: str) -> None:
    names = DiskNames()
    assert names.add(first) is None and names.add(then) == first
    assert names.add(f"other/{then}") is None


def test_all_others_stand_beside_each_other() -> None:
    names = DiskNames()
    assert [names.add(name) for name in ("a/b", "A/c", "ab", "a.b/c", "b")] == [None] * 5


def test_a_folder_may_be_one_with_a_folder_but_no_file() -> None:
    names = DiskNames()
    assert names.add("a/b") is None and names.add("A", folder=True) is None
    assert names.add("a/B", folder=True) == "a/b" and names.add("a/b/c", folder=True) == "a/b"
    assert names.add("d/e", folder=True) is None and names.add("D", folder=True) is None
    assert names.add("D/E") == "d/e" and names.add("D") == "d/e"
    assert names.add("d/e/f") is None
