"""Whatever stands in a host file: hosts, or one error with its line."""

from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from elasticd.errors import ConfigError
from elasticd.settings.hostfile import MOST_NODES, MOST_SLOTS, HostList, parse
from tests.unit.core.words.drawn import ANYTHING

FILE = "hosts"
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}(\.[a-z]{1,3})?", fullmatch=True)
PIECES = st.sampled_from(
    ["mac-1", "10.0.0.1", "a@b", ":4", " slots=2", "slots=0", "#", " ", "\n", "\r", ":", "@", "-o",
     "[", "]", "{", "}", ",", '"ssh"', '"ips"', '"hosts"', ":1e9", '"10.0.0.1"', "\\ud800", "\x0b"]
)  # fmt: skip
ENTRIES = st.fixed_dictionaries(
    {}, optional={"ssh": st.just("a@b") | NAMES | ANYTHING, "ips": ANYTHING, "rdma": ANYTHING}
)
FILES = st.lists(ENTRIES | ANYTHING, max_size=4)


def _parsed(said: str) -> HostList | None:
    """None: it is refused, as it should be."""
    try:
        found = parse(said, FILE)
    except ConfigError as error:
        place = re.match(r"hosts:(\d+): ", str(error))
        assert place is not None and str(error).isprintable(), error
        assert 1 <= int(place[1]) <= said.count("\n") + 1
        return None
    assert found.hosts and sum(host.slots for host in found.hosts) <= MOST_NODES
    for host in found.hosts:
        # What ssh is given is a word that no shell and no ssh takes for anything else.
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._@-]*", host.ssh) and host.name
        assert 1 <= host.slots <= MOST_SLOTS and 1 <= host.line <= said.count("\n") + 1
    return found


@given(st.text() | st.lists(PIECES, max_size=12).map("".join))
@example("[" * 100_000)
@example('{"hosts": ' + "9" * 5000 + "}")
@example('[{"ssh": "a", "ssh": "b"}]')
@example('{"hosts": 1, "hosts": [{"ssh": "a"}]}')
@example("\u00a0[]")
def test_any_text(said: str) -> None:
    _parsed(said)


@given(FILES | st.fixed_dictionaries({"hosts": FILES | ANYTHING}), st.sampled_from([None, 1]))
def test_any_json(data: Any, indent: int | None) -> None:
    _parsed(json.dumps(data, indent=indent, default=repr))


@given(st.dictionaries(NAMES, st.integers(1, 4), min_size=1, max_size=8), st.data())
def test_hosts_that_are_right_are_all_found(slots: dict[str, int], data: st.DataObject) -> None:
    forms = st.sampled_from(["{}:{}", "{} slots={}  # so many", "  {}:{}\t\r", "\n{}:{}"])
    lines = [data.draw(forms).format(name, count) for name, count in slots.items()]
    found = _parsed("\n".join(lines))
    assert found is not None and {host.name: host.slots for host in found.hosts} == slots
