"""Signals at moments that leave nothing half done."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from elasticd.cli.interrupts import Interrupts

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    """Whatever ignores signals outside, as nohup does, here nobody does."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield Interrupts()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_that_was_ignored_stays_so(interrupts: Interrupts) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupts.in_force():
        strike(signal.SIGHUP)


def strike(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts(interrupts: Interrupts, number: int) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupts.in_force():
        strike(number)
    assert signal.getsignal(number) is before


def test_one_that_comes_within_a_held_block_waits_for_its_end(interrupts: Interrupts) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interrupts.in_force(), interrupts.held():
        strike()
        done.append(1)
    assert done == [1]


def test_another_one_keeps_nobody_from_clearing_up(interrupts: Interrupts) -> None:
    done = []
    with interrupts.in_force():
        try:
            strike()
        except KeyboardInterrupt:
            strike()  # before anything is held
            with interrupts.held():
                strike()
                done.append(1)
            done.append(2)
    assert done == [1, 2]
