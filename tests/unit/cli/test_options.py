"""Options whose value can be wrong in a way that no range refuses."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import typer

from tests import commandpages


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_time_is_without_an_end(value: float) -> None:
    seen = set[str]()
    for command, params in commandpages.parameters():
        for each in params:
            if "float" in type(each.type).__name__.lower():
                seen.add(f"{command} {each.opts[0]}")
                with pytest.raises(typer.BadParameter, match="is no length of time"):
                    cast(Any, each).callback(None, each, value)
                assert cast(Any, each).callback(None, each, 2.5) == 2.5
    assert len(seen) > 5, seen
