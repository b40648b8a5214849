"""Addresses at which a stranger says that a daemon is."""

from __future__ import annotations

from typing import Any, cast

import pytest
import tenacity

from elasticd.shell.network.dialling import SLOWEST_HINT_SECONDS, SLOWEST_REDIAL_SECONDS, Dialler
from elasticd.shell.network.hello import Refused
from tests.ports import free_address
from tests.unit.shell.network.daemons import Daemon, Run, running

TRIES = 20


def pause(dialler: Dialler, address: str, error: Exception) -> float:
    """How long it is waited after so many attempts that ended so."""
    attempts = dialler.dials[address].attempts(lambda _: False)
    state = tenacity.RetryCallState(attempts, None, (), {})
    state.attempt_number = TRIES
    state.outcome = tenacity.Future.construct(TRIES, error, has_exception=True)
    return float(cast(Any, attempts.wait)(state))


@pytest.mark.parametrize("error", [OSError(), Refused("it is of another cluster")])
def test_a_stranger_has_no_door_knocked_at_often(run: Run, error: Exception) -> None:
    """However often it says that a daemon is there."""
    address = free_address()

    async def main() -> None:
        a = Daemon("a")
        dialler = a.peers._dialler
        a.peers.hint_at([address])
        a.peers.hint_at([address])
        dial = dialler.dials[address]
        assert not dial.wake.is_set()
        assert pause(dialler, address, error) >= SLOWEST_HINT_SECONDS
        a.peers.may_be_at([address])  # a member says so, too
        assert dial.wake.is_set() and dialler.dials == {address: dial}
        if isinstance(error, OSError):
            assert pause(dialler, address, error) < 2 * SLOWEST_REDIAL_SECONDS
        a.peers.hint_at([address])
        assert not dial.hinted
        await a.peers.close()

    run(main())


def test_who_answers_is_a_member_as_any_other(run: Run) -> None:
    async def main() -> None:
        a, b = Daemon("a"), Daemon("b")
        async with running(a, b):
            a.peers.hint_at([b.address, a.address])
            await a.until_seen("up", "b", "boot-1")
            dials = a.peers._dialler.dials
            assert list(dials) == [b.address] and not dials[b.address].hinted

    run(main())
