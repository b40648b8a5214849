"""Where other members may be, as a home says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elasticd.build import build
from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly import identity
from tests.members import credentials_of, member


def test_a_node_with_several_addresses_is_one(tmp_path: Path) -> None:
    """So many others are configured, of which a first view needs most (recovery/quorum.py)."""
    own = replace(member("a"), peers=("10.0.0.2:1", "10.0.0.3:1"), more=("10.1.0.2:1",))
    settings = NodeConfig(node_id="a", listen="10.0.0.1:1", peers=("10.0.0.2:1",))
    found = identity.of_others(tmp_path, settings, credentials_of(own))
    assert found == ("10.0.0.2:1", "10.0.0.3:1")


def test_a_daemon_says_which_build_it_runs() -> None:
    """To its peers, and in the list of nodes."""
    settings = NodeConfig(node_id="a", listen="10.0.0.1:1")
    assert identity.in_lists(settings).version == build()
    assert identity.to_peers(settings, "boot").release == build()
