"""Which keys of a changed elasticd.toml a running daemon takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.settings.changing import change, is_live
from elasticd.settings.config import TABLES, NodeConfig, described, values_of

OTHER: dict[str, Any] = {
    "node_id": "other", "cluster": "other", "listen": "h:9", "advertise": ("h:8",),
    "peers": ("h:7",), "dashboard_port": 1, "dashboard_host": "h",
    "discovery": False, "partition": "strict", "failure_domain": "x", "roles": ("store",),
    "quota_bytes": 7, "output_bytes": 7, "return_seconds": 7, "grace_seconds": 7,
    "keep.days": 7, "keep.jobs": 7, "keep.bytes": 7, "keep.log_bytes": 7, "keep.results": False,
    "notify.job_finished": "https://h/s", "notify.job_failed": ("/bin/x",),
    "notify.parked": "desktop", "notify.node_lost": "http://h",
}  # fmt: skip


def having(keys: set[str]) -> NodeConfig:
    own = {key: OTHER[key] for key in keys if "." not in key}
    tables = {
        name: replace(
            cast(Any, rules()),
            **{key.partition(".")[2]: OTHER[key] for key in keys if key.startswith(f"{name}.")},
        )
        for name, rules in TABLES.items()
    }
    return replace(NodeConfig(), **tables, **own)


def test_every_key_is_tried() -> None:
    assert OTHER.keys() == described().keys() == values_of(NodeConfig()).keys()


some = st.sets(st.sampled_from(sorted(OTHER)))


@given(some, some)
def test_some_at_once_and_the_others_later(before: set[str], after: set[str]) -> None:
    running, found = having(before), having(after)
    made = change(running, found)
    held, was, now = values_of(made.config), values_of(running), values_of(found)
    for key in OTHER:
        assert held[key] == (now[key] if is_live(key) else was[key])
    assert set(made.taken) | set(made.later) == before ^ after
    assert all(map(is_live, made.taken)) and not any(map(is_live, made.later))
    again = change(made.config, found)
    assert again.config == made.config and not again.taken and again.later == made.later


@pytest.mark.parametrize("key", ["node_id", "listen", "partition", "grace_seconds", "roles"])
def test_what_the_others_know_it_by_waits(key: str) -> None:
    assert not is_live(key)
