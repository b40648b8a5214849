"""Ports that several daemons of one machine choose."""

from __future__ import annotations

import socket

import pytest

from elasticd.errors import OperationError
from elasticd.shell.children.ports import claim, claim_port

HERE = "127.0.0.1"


def test_what_one_has_chosen_no_other_chooses_though_nobody_listens_yet() -> None:
    claimed = claim_port(HERE)
    with pytest.raises(OSError, match="in use"):
        claim(claimed.port, HERE)
    with socket.socket() as ring:
        ring.bind((HERE, claimed.port))
    claimed.close()
    claim(claimed.port, HERE).close()


def test_a_port_on_which_somebody_listens_is_not_chosen_and_stays_unclaimed() -> None:
    claimed = claim_port(HERE)
    claimed.close()
    with socket.socket() as other:
        other.bind((HERE, claimed.port))
        with pytest.raises(OSError, match="in use"):
            claim(claimed.port, HERE)
    claim(claimed.port, HERE).close()


def test_a_port_has_to_be_free_on_every_address() -> None:
    with pytest.raises(OperationError, match=r"192\.0\.2\.1"):
        claim_port(HERE, "192.0.2.1")
