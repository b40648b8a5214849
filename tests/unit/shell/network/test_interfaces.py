"""By which of a machine's addresses others may reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticd.shell.network import interfaces
from elasticd.shell.network.interfaces import Kind, LinuxHardware, MacHardware, usable

# The form is what networksetup(8) prints; it was not seen on a Mac by us.
PORTS = """
Hardware Port: Ethernet
Device: en0
Ethernet Address: 1c:1d:d3:00:00:01

Hardware Port: Thunderbolt Ethernet Slot 1
Device: en7
Ethernet Address: 1c:1d:d3:00:00:07

Hardware Port: USB 10/100/1000 LAN
Device: en8
Ethernet Address: 1c:1d:d3:00:00:08

Hardware Port: AX88179A
Device: en10
Ethernet Address: 1c:1d:d3:00:00:10

Hardware Port: Wi-Fi
Device: en1
Ethernet Address: 1c:1d:d3:00:00:02

Hardware Port: Thunderbolt 1
Device: en2
Ethernet Address: 36:00:00:00:00:01

Hardware Port: Thunderbolt Bridge
Device: bridge0
Ethernet Address: 36:00:00:00:00:02

Hardware Port: iPhone USB
Device: en9
Ethernet Address: 36:00:00:00:00:09

Hardware Port: iPad USB
Device: en11
Ethernet Address: 36:00:00:00:00:11

Hardware Port: Bluetooth PAN
Device: en3
Ethernet Address: 36:00:00:00:00:03

Hardware Port: FT232R USB UART
Device: usbserial-A50285BI
Ethernet Address: N/A

VLAN Configurations
===================
"""
MAC = MacHardware(lambda command: PORTS)
NAMES = ["en0", "en7", "en8", "en10", "en1", "en2", "bridge0", "en9", "en11", "en3"]


def test_what_a_mac_says_of_its_ports() -> None:
    assert MAC.kinds([*NAMES, "usbserial-A50285BI", "en77"]) == {
        "en0": "ethernet",
        "en7": "ethernet",
        "en8": "ethernet",
        "en10": "ethernet",
        "en1": "wifi",
        "en2": "thunderbolt",
        "bridge0": "thunderbolt",
        "en9": "other",
        "en11": "other",
        "en3": "other",
        "usbserial-A50285BI": "other",
    }


@pytest.mark.parametrize(
    ("port", "kind"),
    [
        ("WLAN", "wifi"),
        ("Wi\u2011Fi", "wifi"),
        ("Thunderbolt-Bridge", "thunderbolt"),
        ("雷雳网桥", "thunderbolt"),
        ("雷雳以太网插槽 1", "ethernet"),
    ],
)
def test_a_mac_names_its_ports_in_its_own_language(port: str, kind: Kind) -> None:
    said = f"Hardware Port: {port}\nDevice: en5\n"
    assert MacHardware(lambda command: said).kinds(["en5"]) == {"en5": kind}


def test_that_a_mac_says_nothing_is_no_answer() -> None:
    assert MacHardware(lambda command: "").kinds(NAMES) is None
    assert MAC.kinds(["en77"]) == {}


def test_a_mac_that_says_nothing_has_addresses_nevertheless() -> None:
    found = {"lo0": ["127.0.0.1"], "en0": ["192.168.1.5"], "utun3": ["100.64.0.1"]}
    assert usable(found, MacHardware(lambda command: "")) == ("192.168.1.5",)


def test_the_fastest_comes_first_and_what_leads_nowhere_is_left_out() -> None:
    found = {
        "lo0": ["127.0.0.1"],
        "awdl0": ["169.254.9.9"],
        "bridge100": ["192.168.64.1"],
        "en0": ["10.0.0.5"],
        "en1": ["192.168.1.5", "192.168.1.6"],
        "en7": ["169.254.7.7"],
        "bridge0": ["169.254.20.1"],
        "utun0": ["100.64.0.1"],
        "en9": [],
    }
    given = ("10.0.0.5", "192.168.1.5", "192.168.1.6")
    assert usable(found, MAC) == (*given, "169.254.20.1", "169.254.7.7")
    assert usable({**found, "bridge0": ["10.1.0.1"]}, MAC)[0] == "10.1.0.1"


def test_an_adapter_comes_before_wi_fi_though_its_port_has_the_name_of_the_product() -> None:
    found = {"en1": ["192.168.1.5"], "en10": ["192.168.1.6"], "en9": ["172.20.10.2"]}
    assert usable(found, MAC) == ("192.168.1.6", "192.168.1.5", "172.20.10.2")


def test_where_there_is_no_other_address_one_of_its_own_will_do() -> None:
    assert usable({"lo0": ["127.0.0.1"], "en0": ["169.254.7.1"]}, MAC) == ("169.254.7.1",)
    assert usable({"lo0": ["127.0.0.1"]}, MAC) == ()
    assert usable({"lo0": ["127.0.0.1"], "en0": [], "docker0": ["172.17.0.1"]}, MAC) == ()


@pytest.mark.parametrize(
    ("name", "parts", "kind"),
    [
        ("eth0", [], "ethernet"),
        ("enp3s0", [], "ethernet"),
        ("wlp2s0", ["wireless"], "wifi"),
        ("wlan0", ["phy80211"], "wifi"),
        ("bond0", [], "ethernet"),
        ("xyz0", [], "other"),
    ],
)
def test_what_linux_shows(tmp_path: Path, name: str, parts: list[str], kind: Kind) -> None:
    for part in ("", *parts):
        (tmp_path / name / part).mkdir(exist_ok=True)
    assert LinuxHardware(tmp_path).kinds([name]) == {name: kind}


def test_a_thunderbolt_cable_on_linux(tmp_path: Path) -> None:
    (tmp_path / "drivers" / "thunderbolt-net").mkdir(parents=True)
    (tmp_path / "thunderbolt0" / "device").mkdir(parents=True)
    driver = tmp_path / "thunderbolt0" / "device" / "driver"
    driver.symlink_to(tmp_path / "drivers" / "thunderbolt-net")
    assert LinuxHardware(tmp_path).kinds(["thunderbolt0"]) == {"thunderbolt0": "thunderbolt"}


def test_this_machine() -> None:
    assert any("127.0.0.1" in hosts for hosts in interfaces.addresses().values())
    assert "127.0.0.1" not in interfaces.hosts()


def test_only_hosts_on_a_network_of_some_addresses_are_beside_this_machine() -> None:
    """Neither those of other machines' addresses are, nor those of its other networks."""
    own = [host for found in interfaces.addresses().values() for host in found]
    others = ("198.51.100.77", "127.3.4.5")
    assert interfaces.beside([*own, *others], own) == (*own, "127.3.4.5")
    assert interfaces.beside(["127.3.4.5"], ["127.0.0.1"]) == ("127.3.4.5",)
    assert interfaces.beside(others, [*interfaces.hosts(), "198.51.100.1"]) == ()
