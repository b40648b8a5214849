"""What is given up while memory runs short, and what isn't."""

from __future__ import annotations

from elasticd.recovery.headroom import Headroom

GIB = 1 << 30


def test_cheapest_first_and_only_while_headroom_falls() -> None:
    headroom = Headroom()
    assert headroom.sign(10 * GIB, has_spare=True) == "spare"
    assert headroom.sign(10 * GIB, has_spare=False) is None, "it holds"
    assert headroom.sign(8 * GIB, has_spare=False) == "caches"
    assert headroom.sign(79 * GIB // 10, has_spare=False) is None
    assert headroom.sign(7 * GIB, has_spare=False) == "recompute"
    assert headroom.sign(1 * GIB, has_spare=False) is None, "grains are never halved for it"


def test_without_a_spare_caches_are_first() -> None:
    assert Headroom().sign(GIB, has_spare=False) == "caches"


def test_it_begins_again_once_memory_was_enough() -> None:
    headroom = Headroom()
    for left in (9, 5, 1):
        headroom.sign(left * GIB, has_spare=True)
    headroom.forget()
    assert headroom.sign(5 * GIB, has_spare=True) == "spare"
