"""What a changed elasticd.toml does to a running daemon."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import tenacity

from elasticd.settings.config import NodeConfig
from elasticd.shell.assembly.following import follow
from elasticd.shell.network.dialling import FORGET_SECONDS
from tests.ports import free_address
from tests.unit.shell.network.daemons import Daemon


def test_an_address_that_is_a_peer_no_more_is_forgotten_as_one_that_was_heard_of(
    tmp_path: Path,
) -> None:
    kept, gone, back = sorted(free_address() for _ in range(3))

    async def main() -> None:
        a = Daemon("a", kept, gone, back)
        running = NodeConfig(node_id="a", peers=(kept, gone, back))
        part = cast(Any, SimpleNamespace(keep_within=lambda limit: None, beyond=frozenset))
        part.ended = SimpleNamespace()
        talk: Any = SimpleNamespace(
            peers=a.peers,
            happened=lambda *said: None,
            notifies=lambda told: None,
            refuses=lambda reason: None,
        )
        file = tmp_path / "elasticd.toml"
        watch = follow(tmp_path, file, running, part, part, part, talk, part)
        assert part.ended.beyond is part.beyond, "nobody is asked for what is removed soon"
        a.peers.dial(running.peers)
        watch._changed(replace(running, peers=(kept,)))
        watch._changed(replace(running, peers=(kept, back)))
        found = {each: may_end(a, each) for each in a.peers.dialled()}
        assert found == {kept: False, gone: True, back: False}
        assert not may_end(a, gone, advertised=True)
        await a.peers.close()

    asyncio.run(main())


def may_end(daemon: Daemon, address: str, *, advertised: bool = False) -> bool:
    """Whether it is dialled no more once it was silent for long."""
    attempts = daemon.peers._dialler.dials[address].attempts(lambda _: advertised)
    state = tenacity.RetryCallState(attempts, None, (), {})
    state.outcome_timestamp = state.start_time + FORGET_SECONDS + 1
    return bool(cast(Any, attempts.stop)(state))
