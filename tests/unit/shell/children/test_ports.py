"""Ports that several daemons of one machine choose."""

from __future__ import annotations

import socket
import sys

import pytest

from elasticd.errors import OperationError
from elasticd.shell.children.ports import claim, claim_port

HERE = "127.0.0.1"
ALSO_HERE = "127.0.0.2" if sys.platform == "linux" else HERE
GONE = "192.0.2.1"


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


def test_a_port_has_to_be_free_on_every_address_that_there_is() -> None:
    """That of a cable which was pulled is gone for the time, and the others go on."""
    with socket.socket() as other:
        other.bind((ALSO_HERE, 0))
        with pytest.raises(OSError, match="in use"):
            claim(other.getsockname()[1], HERE, ALSO_HERE)
    claim_port(GONE, HERE).close()
    with pytest.raises(OperationError, match=r"192\.0\.2\.1"):
        claim_port(GONE)
