"""This machine's network interfaces, and by which of their addresses others may reach it.

What an interface is made of the two systems tell in ways of their own (:class:`Hardware`). Its name
alone says little on a Mac: en0 is the Wi-Fi of a laptop, and the Ethernet of a Mac Studio.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import psutil

from elasticd import systemtools
from elasticd.systemtools import Ask

Kind = Literal["thunderbolt", "ethernet", "wifi", "other"]

_ORDER: tuple[Kind, ...] = ("thunderbolt", "ethernet", "wifi", "other")
"""The fastest first."""
_NOBODY_THERE = re.compile(
    # Loopback; what macOS has for itself (AirDrop, its own VPNs, the chips inside), bridges of
    # virtual machines; tunnels and what containers and virtual machines have on Linux.
    r"lo\d*|awdl\d+|llw\d+|utun\d+|ipsec\d+|ap\d+|anpi\d+|gif\d+|stf\d+|p2p\d+|vmenet\d+|vmnet\d+"
    r"|bridge1\d\d|feth\d+|vnic\d+|vboxnet\d+|ppp\d+|tun\d+|tap\d+|wg\d+|zt.+|tailscale\d+"
    r"|docker\d+|podman\d+|br-.+|veth.+|virbr\d+|vnet\d+|lx[cd]br\d+|cni\d+|flannel.*|cali.+"
    r"|cilium_.+|kube-.+"
)
_LIKE_ETHERNET = ("en", "eth", "bond", "br", "ib")
_CALLED: Mapping[Kind, Sequence[str]] = {
    "wifi": ("wi-fi", "airport", "wlan"),
    "ethernet": ("ethernet", "以太网", "乙太網路", "이더넷"),
    "thunderbolt": ("thunderbolt", "雷雳", "雷靂"),
}
"""By what is in the names of their ports, which macOS tells in the language of the account."""
_PLUGGED = ("en", "bond", "vlan")
"""What devices are called of which a port may be Ethernet whatever its name: that of an adapter is
the product's (AX88179A)."""
_PHONES = ("iphone", "ipad", "bluetooth")
"""In the names of ports that lead to a phone's network."""
_PORTS = ("/usr/sbin/networksetup", "-listallhardwareports")


class Hardware(Protocol):
    """What interfaces are made of."""

    def kinds(self, names: Sequence[str]) -> Mapping[str, Kind] | None:
        """Of each interface of which that is known; None: the system doesn't say now. Blocks for
        some milliseconds, or for seconds where a tool hangs."""
        ...


@dataclass(frozen=True, slots=True)
class LinuxHardware:
    """As the kernel shows it below ``/sys/class/net``."""

    root: Path = Path("/sys/class/net")

    def kinds(self, names: Iterable[str]) -> dict[str, Kind]:
        return {name: self._kind(name) for name in names}

    def _kind(self, name: str) -> Kind:
        folder = self.root / name
        if (folder / "wireless").exists() or (folder / "phy80211").exists():
            return "wifi"
        driver = folder / "device" / "driver"
        if driver.exists() and driver.resolve().name == "thunderbolt-net":
            return "thunderbolt"
        return "ethernet" if name.startswith(_LIKE_ETHERNET) else "other"


@dataclass(frozen=True, slots=True)
class MacHardware:
    """As ``networksetup -listallhardwareports`` tells: blocks of lines "Hardware Port: Wi-Fi" and
    "Device: en0"."""

    ask: Ask = systemtools.printed

    def kinds(self, names: Iterable[str]) -> dict[str, Kind] | None:
        found: dict[str, Kind] = {}
        port = ""
        for line in self.ask(_PORTS).splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "Hardware Port":
                port = value.strip()
            elif key.strip() == "Device" and port:
                found[value.strip()] = _kind_of_port(port, value.strip())
                port = ""
        return {name: found[name] for name in names if name in found} if found else None


def _kind_of_port(port: str, device: str) -> Kind:
    text = port.lower().replace("\u2011", "-")  # a hyphen at which no line is broken
    # Behind Thunderbolt there may be an adapter or a display with Ethernet, and its port says so.
    for kind, names in _CALLED.items():
        if any(name in text for name in names):
            return kind
    if any(name in text for name in _PHONES):
        return "other"
    return "ethernet" if device.startswith(_PLUGGED) else "other"


def this_hardware() -> Hardware:
    return MacHardware() if sys.platform == "darwin" else LinuxHardware()


Addresses = Mapping[str, Sequence[str]]
"""The IPv4 addresses of each interface, by name."""


def addresses() -> dict[str, tuple[str, ...]]:
    """Those that are up."""
    up = psutil.net_if_stats()
    return {
        name: tuple(each.address for each in found if each.family == socket.AF_INET)
        for name, found in psutil.net_if_addrs().items()
        if name not in up or up[name].isup
    }


def here(hosts: Iterable[str]) -> tuple[str, ...]:
    """Those of ``hosts`` that this machine has now."""
    own = {host for found in addresses().values() for host in found}
    return tuple(host for host in hosts if host in own)


def usable(found: Addresses, hardware: Hardware) -> tuple[str, ...]:
    """The addresses by which other machines may reach this one, best first: those that somebody has
    given it before those that it has given itself (169.254.…), and of each the fastest
    interface's."""
    return tuple(dict.fromkeys(each.host for each in _ranked(found, hardware)))


def reachable(found: Addresses, hardware: Hardware) -> tuple[str, ...]:
    """As :func:`usable`, for a daemon that tells several: the fastest interface's first. Of those
    that it has given itself only a Thunderbolt cable's, which often has no other; all of them where
    nobody has given it one."""
    ranked = _ranked(found, hardware)
    kept = [each for each in ranked if each.kind == "thunderbolt" or not each.given_itself]
    kept = kept if any(not each.given_itself for each in kept) else ranked
    return tuple(dict.fromkeys(each.host for each in sorted(kept, key=lambda each: each.rank)))


@dataclass(frozen=True, slots=True, order=True)
class _Ranked:
    """An address, the better the smaller."""

    given_itself: bool
    rank: int
    name: str
    host: str

    @property
    def kind(self) -> Kind:
        return _ORDER[self.rank]


def _ranked(found: Addresses, hardware: Hardware) -> list[_Ranked]:
    able = {name: hosts for name, hosts in found.items() if not _NOBODY_THERE.fullmatch(name)}
    kinds = hardware.kinds([name for name, hosts in able.items() if hosts]) or {}
    return sorted(
        _Ranked(
            ipaddress.ip_address(host).is_link_local,
            _ORDER.index(kinds.get(name, "other")),
            name,
            host,
        )
        for name, hosts in able.items()
        for host in hosts
        if not ipaddress.ip_address(host).is_loopback
    )


def hosts() -> tuple[str, ...]:
    """Those of this machine."""
    return usable(addresses(), this_hardware())


def beside(hosts: Iterable[str], addresses: Collection[str]) -> tuple[str, ...]:
    """Those of ``hosts`` that are on the network of one of these addresses of this machine, which
    it reaches without a router. They are IPv4 addresses. Other networks of it, such as those of
    containers and tunnels, don't count."""
    own = [
        ipaddress.IPv4Network(f"{each.address}/{each.netmask}", strict=False)
        for found in psutil.net_if_addrs().values()
        for each in found
        if each.family == socket.AF_INET and each.netmask and each.address in addresses
    ]
    return tuple(
        host for host in hosts if any(ipaddress.IPv4Address(host) in network for network in own)
    )


def with_masks(hosts: Sequence[str]) -> tuple[str, ...]:
    """Those of ``hosts`` that are this machine's own, with the bits of their networks' masks."""
    own = {
        each.address: each.netmask
        for found in psutil.net_if_addrs().values()
        for each in found
        if each.family == socket.AF_INET and each.netmask
    }
    return tuple(
        str(ipaddress.ip_interface(f"{host}/{own[host]}")) for host in hosts if host in own
    )
