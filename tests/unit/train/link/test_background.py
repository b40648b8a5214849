"""What a trainer says of its state has no failure of its GPU behind it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticd.train.link.background import Background

WORLD = cast(Any, SimpleNamespace(generation=1))


def shards(background: Background) -> None:
    background.checkpoint(WORLD, cast(Any, None), 0.0, 0, None)


@pytest.mark.parametrize(
    "shows",
    [
        shards,
        lambda background: background.verify(WORLD, cast(Any, None)),
        lambda background: background.rechecked(WORLD, 1, 0, []),
        lambda background: background.prove(WORLD, "grain", dict),
    ],
    ids=["shards", "digest", "recheck", "proof"],
)
def test_a_gpu_that_fails_late_shows_nothing(shows: Any) -> None:
    """Wrong bits would look like a node that computes wrong, which is quarantined."""
    said: list[Any] = []

    def fails() -> None:
        raise RuntimeError("[METAL] Command buffer execution failed: Internal Error")

    spec = SimpleNamespace(checkpoint=SimpleNamespace(keep_best=""))
    background = Background(
        cast(Any, spec), said.append, lambda *told: said.append(told), said.append, fails
    )
    with pytest.raises(RuntimeError, match="METAL"):
        shows(background)
    assert said == []
