"""What a running daemon does with a changed elasticd.toml (settings/changing.py)."""

from __future__ import annotations

from pathlib import Path

from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly.talk import Talk
from elasticd.shell.control.settingswatch import SettingsWatch
from elasticd.shell.storage.outputkeeper import OutputKeeper
from elasticd.shell.storage.scrub import Scrubber
from elasticd.shell.storage.tidying import Tidying


def follow(
    file: Path,
    running: NodeConfig,
    tidying: Tidying,
    keeper: OutputKeeper,
    scrubber: Scrubber,
    talk: Talk,
) -> SettingsWatch:
    """To be started. ``running``: what ``file`` said when the daemon read it."""

    peers = frozenset(running.peers)

    def take(settings: NodeConfig) -> None:
        nonlocal peers
        tidying.rules = settings.keep
        keeper.limit_bytes = settings.copied_bytes
        scrubber.keep_within(settings.quota_bytes)
        talk.peers.dial(settings.peers)
        talk.peers.may_forget(peers.difference(settings.peers))
        peers = frozenset(settings.peers)

    return SettingsWatch(file, running, take, talk.happened)
