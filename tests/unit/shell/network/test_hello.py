"""Which versions of daemons work together, what they then speak, and what the others are told."""

from __future__ import annotations

import pytest

from elasticd.core.words.versions import Spoken
from elasticd.shell.network.hello import Identity, Refused
from elasticd.types import NodeId


def daemon(node: str, oldest: int, newest: int, release: str = "1.0") -> Identity:
    spoken = Spoken(oldest, newest)
    return Identity(NodeId(node), "boot", "h:1", spoken=spoken, release=release)


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        ((3, 3), (3, 3), 3),
        ((3, 4), (3, 3), 3),
        ((3, 4), (4, 5), 4),
        ((3, 5), (4, 9), 5),
        ((3, 9), (5, 6), 6),
    ],
)
def test_two_use_the_newest_version_that_both_speak(
    ours: tuple[int, int], theirs: tuple[int, int], common: int
) -> None:
    a, b = daemon("a", *ours), daemon("b", *theirs)
    assert a.check(b.frame()).protocol == b.check(a.frame()).protocol == common


@pytest.mark.parametrize(("ours", "theirs"), [((4, 5), (3, 3)), ((4, 5), (2, 3))])
def test_one_line_names_both_versions_and_who_is_to_be_upgraded(
    ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    new, old = daemon("new", *ours, "2.0"), daemon("old", *theirs, "1.0")
    speaks = "protocol 3" if theirs == (3, 3) else "protocols 2 to 3"
    said = f"'old' runs elasticd 1.0 ({speaks}), and this node 'new' elasticd 2.0"
    with pytest.raises(Refused) as refused:
        new.check(old.frame())
    assert str(refused.value) == f"{said} (protocols 4 to 5): upgrade 'old'"
    with pytest.raises(Refused, match=r"upgrade 'old'$"):
        old.check(new.frame())


def test_a_daemon_that_knows_no_range_speaks_the_one_version_that_it_names() -> None:
    before = {k: v for k, v in daemon("b", 3, 3).frame().items() if k not in ("newest", "release")}
    assert daemon("a", 3, 4).check(before).protocol == 3
    with pytest.raises(Refused, match="'b' runs elasticd of a version that it doesn't say"):
        daemon("a", 4, 4).check(before)


def test_what_it_compares_is_the_oldest_version_of_a_range() -> None:
    """So a daemon that knows no range works with a later one that still speaks its version."""
    assert daemon("a", 3, 4).frame()["version"] == 3


def test_what_a_stranger_calls_its_version_breaks_no_line() -> None:
    with pytest.raises(Refused) as refused:
        daemon("a", 3, 3).check(daemon("b", 9, 9, "1\n\x1b" + "x" * 500).frame())
    assert "1\\n\\x1bxxx" in str(refused.value) and len(str(refused.value)) < 400
