"""Host files of other launchers: both forms, and what is said of those that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.errors import ConfigError
from elasticd.settings.hostfile import ListedHost, load, parse

OF_MLX = """{
    "backend": "jaccl",
    "envs": ["MLX_METAL_FAST_SYNCH=1"],
    "hosts": [
        {"ssh": "mac-1", "ips": ["10.0.0.1"], "rdma": [null, "rdma_en2"]},
        {"ssh": "me@mac-2", "ips": ["10.0.0.2", "10.0.1.2"],
         "rdma": ["rdma_en2", null]}
    ]
}
"""


def test_what_mlx_writes() -> None:
    found = parse(OF_MLX, "hosts.json")
    assert found.hosts == (
        ListedHost("mac-1", ("10.0.0.1",), line=5),
        ListedHost("me@mac-2", ("10.0.0.2", "10.0.1.2"), line=6),
    )
    assert found.hosts[1].name == "mac-2"
    assert [note.split("'")[1] for note in found.unused] == ["backend", "envs", "rdma", "ips"]


def test_a_bare_list() -> None:
    found = parse('[\n{"ssh": "a"},\n{"ssh": "b", "ips": [], "rdma": [null, null]}]', "hosts.json")
    assert found.hosts == (ListedHost("a", line=2), ListedHost("b", line=3))
    assert found.unused == ()


def test_text() -> None:
    said = "# Macs\nmac-1\n\nme@mac-2.local:4  # the big one\n10.0.0.3\tslots=2\r\n"
    assert parse(said, "hosts").hosts == (
        ListedHost("mac-1", line=2),
        ListedHost("me@mac-2.local", slots=4, line=4),
        ListedHost("10.0.0.3", slots=2, line=5),
    )


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("", "h:1: names no host"),
        ("# none\n", "h:1: names no host"),
        ("[]", "h:1: names no host"),
        ("a\nb c", 'h:2: "c" is not understood: write "host", "host:4" or "host slots=4"'),
        ("a max_slots=3", 'h:1: "max_slots=3" is not understood'),
        ("a:7070", 'h:1: slots: must be a whole number from 1 to 64, not "7070" (it says how many'),
        ("a slots=0", 'h:1: slots: must be a whole number from 1 to 64, not "0"'),
        ("a:", 'h:1: slots: must be a whole number from 1 to 64, not ""'),
        ("a:2 slots=2", "h:1: says more than once how many slots there are"),
        ("-oProxyCommand=x", "h:1: must be a host's name or IPv4 address, or USER@HOST"),
        ("a;b", "h:1: must be a host's name"),
        ("fe80::1", 'h:1: slots: must be a whole number from 1 to 64, not ":1"'),
        ("a\nb\nme@A", 'h:3: the host "a" stands in line 1, too'),
        ("\n".join(f"a{n}:64" for n in range(17)), "h:1: names more than 1024 nodes"),
        ('[{"ssh": "a"},\n', "h:2: is no JSON: "),
        ('{"hosts": "a"}', 'h:1: hosts: must be an array, not "a"'),
        ('{"backend": "ring"}', "h:1: hosts: is missing"),
        ('{"host": []}', 'h:1: "host" is no key of a host file; did you mean "hosts"?'),
        ('["a"]', 'h:1: [0]: must be an object with "ssh", not "a"'),
        ('[{"ssh": "a"},\n{}]', 'h:2: [1]: lacks "ssh", the host'),
        ('{"hosts": [{"ssh": "a",\n"ip": 3}]}', 'h:2: hosts[0]: "ip" is no key of a host file'),
        ('[{"ssh": 3}]', "h:1: [0].ssh: must be a string, not 3"),
        ('[{"ssh": "a",\n"ips": ["10.0.0.1", "::1"]}]', "h:2: [0].ips[1]: must be an IPv4 address"),
        ('[{"ssh": "a", "ips": ["0.0.0.0"]}]', "h:1: [0].ips[0]: others can't connect to 0.0.0.0"),
        (
            '[{"ssh": "a", "ips": ["10.0.0.1"]},\n{"ssh": "b", "ips": ["10.0.0.1"]}]',
            'h:2: the address "10.0.0.1" stands in line 1, too',
        ),
    ],
)
def test_what_is_wrong(said: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(said, "h")
    assert str(raised.value).startswith(error)


def test_files_that_are_none(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"a\n\xff")
    for path, error in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "is a folder, not a host file"),
        (bad, "is not UTF-8 text"),
    ):
        with pytest.raises(ConfigError, match=error):
            load(path)
