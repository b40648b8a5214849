"""Host files of other launchers: which machines are to be nodes, and how many on each. Pure, but
for :func:`load`.

Two forms, told apart by the first character:

- JSON, as ``mlx.launch --hostfile`` takes it: ``[{"ssh": HOST, "ips": [IP], "rdma": […]}]``, or
  that as "hosts" of an object beside "backend" and "envs".
- Text, a host a line: ``host``, ``host:4``, ``host slots=4``, ``user@host``. ``#`` begins a
  comment.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.errors import ConfigError
from elasticd.settings.rules import Rule, Wrong, list_of, meant, show, text
from elasticd.settings.toml import read_text

MOST_NODES = 1024
MOST_SLOTS = 64
_MOST_IPS = 16
_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,252}"
_USER = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
_host: Rule = text(f"(?:{_USER}@)?{_NAME}", "a host's name or IPv4 address, or USER@HOST")
_TOP, _ENTRY = ("backend", "envs", "hosts"), ("ssh", "ips", "rdma")
_BLANKS = re.compile(r"[ \t\n\r]*")
_decoded = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class ListedHost:
    """One machine of the file.

    Attributes:
        ssh: what ssh is told, with the user if there is one.
        ips: the addresses by which others reach it, as far as the file says.
        slots: so many nodes are to be there.
        line: where it stands.
    """

    ssh: str
    ips: tuple[str, ...] = ()
    slots: int = 1
    line: int = 1

    @property
    def name(self) -> str:
        """Without the user."""
        return self.ssh.rpartition("@")[2]


@dataclass(frozen=True, slots=True)
class HostList:
    """What a file says; ``unused``: what stands in it and changes nothing here, a sentence each."""

    hosts: tuple[ListedHost, ...]
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where something stands, for errors."""

    file: str
    line: int = 1
    key: str = ""

    def wrong(self, message: str) -> ConfigError:
        return ConfigError(message, file=self.file, line=self.line, key=self.key)

    def checked(self, rule: Rule, value: object) -> Any:
        try:
            return rule(value)
        except Wrong as wrong:
            key = self.key + "".join(wrong.below)
            raise ConfigError(str(wrong), file=self.file, line=self.line, key=key) from None


def load(path: Path) -> HostList:
    """Read a host file.

    Raises:
        ConfigError: it is missing or wrong; says file, line and key.
    """
    return parse(read_text(path, "host"), str(path))


def parse(said: str, file: str) -> HostList:
    """What the text says; ``file`` is what errors call it.

    Raises:
        ConfigError: it is wrong.
    """
    found = _of_json(said, file) if said.lstrip()[:1] in ("[", "{") else _of_text(said, file)
    place = _Spot(file)
    if not found.hosts:
        raise place.wrong("names no host")
    if sum(host.slots for host in found.hosts) > MOST_NODES:
        raise place.wrong(f"names more than {MOST_NODES} nodes")
    _check_once(found.hosts, file, "the host", lambda host: (host.name.lower(),))
    _check_once(found.hosts, file, "the address", lambda host: host.ips)
    return found


def _check_once(
    hosts: tuple[ListedHost, ...],
    file: str,
    what: str,
    names: Callable[[ListedHost], tuple[str, ...]],
) -> None:
    """Raises ConfigError: two machines have a name in common."""
    lines: dict[str, int] = {}
    for host in hosts:
        for name in names(host):
            if name in lines:
                raise _Spot(file, host.line).wrong(
                    f"{what} {show(name)} stands in line {lines[name]}, too"
                )
            lines[name] = host.line


# --- text -----------------------------------------------------------------------------------------


def _of_text(said: str, file: str) -> HostList:
    hosts = []
    for at, line in enumerate(said.split("\n"), 1):
        if words := line.partition("#")[0].split():
            hosts.append(_of_line(words, _Spot(file, at)))
    return HostList(tuple(hosts))


def _of_line(words: list[str], place: _Spot) -> ListedHost:
    first, colon, behind = words[0].partition(":")
    counts = [behind] if colon else []
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key != "slots":
            raise place.wrong(
                f'{show(word)} is not understood: write "host", "host:4" or "host slots=4"'
            )
        counts.append(value)
    if len(counts) > 1:
        raise place.wrong("says more than once how many slots there are")
    ssh = place.checked(_host, first)
    return ListedHost(ssh, slots=_slots(counts[0], place) if counts else 1, line=place.line)


def _slots(said: str, place: _Spot) -> int:
    if not re.fullmatch("[1-9][0-9]{0,8}", said) or int(said) > MOST_SLOTS:
        raise ConfigError(
            f"must be a whole number from 1 to {MOST_SLOTS}, not {show(said)} (it says how many"
            " nodes are to be there, and is no port)",
            file=place.file, line=place.line, key="slots",
        )  # fmt: skip
    return int(said)


# --- JSON -----------------------------------------------------------------------------------------


def _of_json(said: str, file: str) -> HostList:
    try:
        data = json.loads(said)
    except RecursionError:
        raise _Spot(file).wrong("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _Spot(file, error.lineno).wrong(f"is no JSON: {error.msg}") from None
    except ValueError:
        raise _Spot(file).wrong("is no JSON: a number in it is too long") from None
    at, key, unused = len(said) - len(said.lstrip()), "", []
    if isinstance(data, dict):
        starts = dict(_starts(said, at))
        _check_keys(data, starts, _TOP, said, _Spot(file))
        if "hosts" not in data:
            raise _Spot(file, key="hosts").wrong("is missing")
        unused = [
            f"{name!r} is not used: say it in job.toml"
            for name in ("backend", "envs")
            if data.get(name)
        ]
        data, at, key = data["hosts"], starts["hosts"], "hosts"
    place = _Spot(file, _line(said, at), key)
    if not isinstance(data, list):
        raise place.wrong(f"must be an array, not {show(data)}")
    hosts = tuple(
        _of_entry(entry, said, start, _Spot(file, _line(said, start), f"{key}[{number}]"))
        for number, (entry, (_, start)) in enumerate(zip(data, _starts(said, at), strict=True))
    )
    if any(isinstance(entry.get("rdma"), list) and any(entry["rdma"]) for entry in data):
        unused.append("'rdma' is not used: the backend jaccl is not supported yet")
    if any(len(host.ips) > 1 for host in hosts):
        unused.append(
            "of 'ips' only the first is used: 'advertise' in elasticd.toml there names others"
        )
    return HostList(hosts, tuple(unused))


def _of_entry(entry: object, said: str, start: int, place: _Spot) -> ListedHost:
    if not isinstance(entry, dict):
        raise place.wrong(f'must be an object with "ssh", not {show(entry)}')
    starts = dict(_starts(said, start))
    _check_keys(entry, starts, _ENTRY, said, place)
    if "ssh" not in entry:
        raise place.wrong('lacks "ssh", the host')

    def checked(key: str, rule: Rule) -> Any:
        at = _Spot(place.file, _line(said, starts[key]), f"{place.key}.{key}")
        return at.checked(rule, entry[key])

    ssh = checked("ssh", _host)
    ips = checked("ips", list_of(_ip, _MOST_IPS)) if "ips" in entry else ()
    return ListedHost(ssh, ips, line=place.line)


def _ip(value: object) -> str:
    given = text()(value)
    assert isinstance(given, str)
    try:
        found = ipaddress.IPv4Address(given)
    except ValueError:
        raise Wrong(f"must be an IPv4 address, not {show(given)}") from None
    if found.is_unspecified or found.is_multicast:
        raise Wrong(f"others can't connect to {given}")
    return given


def _check_keys(
    data: dict[str, Any], starts: dict[str, int], known: tuple[str, ...], said: str, place: _Spot
) -> None:
    """Raises ConfigError: a key is none of those."""
    for key in data:
        if key not in known:
            at = _Spot(place.file, _line(said, starts[key]), place.key)
            raise at.wrong(f"{show(key)} is no key of a host file{meant(key, known)}")


def _starts(said: str, at: int) -> Iterator[tuple[str, int]]:
    """Of the array or object that begins there, in what is known to be JSON: where each value
    begins, and its key."""
    keyed = said[at] == "{"
    at = _after_blanks(said, at + 1)
    while said[at] not in "]}":
        key = ""
        if keyed:
            key, at = _decoded(said, at)
            at = _after_blanks(said, _after_blanks(said, at) + 1)
        yield key, at
        _, at = _decoded(said, at)
        at = _after_blanks(said, at)
        if said[at] == ",":
            at = _after_blanks(said, at + 1)


def _after_blanks(said: str, at: int) -> int:
    found = _BLANKS.match(said, at)
    assert found is not None
    return found.end()


def _line(said: str, at: int) -> int:
    return said.count("\n", 0, at) + 1
