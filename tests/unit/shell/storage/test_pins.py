"""What is in use is not removed, and what is being removed is not taken into use."""

from __future__ import annotations

import pytest

from elasticd.errors import StateError
from elasticd.shell.storage.pins import Pins
from elasticd.types import JobId, Stamp

KEY = JobId("job"), 10, Stamp("ab")


def test_in_use_or_removed_but_never_both() -> None:
    pins = Pins()
    with pins.held(*KEY), pins.held(*KEY):
        with pins.removal(*KEY) as free:
            assert not free
        assert pins.all() == (KEY,)
    with pins.removal(*KEY) as free, pins.removal(*KEY) as also:
        assert free and also, "who removes what is gone does no harm"
        with pytest.raises(StateError, match="being removed"), pins.held(*KEY):
            pass
    with pins.held(*KEY):
        assert pins.all() == (KEY,)
    assert pins.all() == ()
