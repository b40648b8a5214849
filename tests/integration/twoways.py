"""Local clusters whose nodes have two addresses each, of which one can be made to go dead."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from elasticd.settings.config import dump, load, split_address
from elasticd.settings.localhomes import node_homes
from elasticd.settings.places import FILE_NAME


def why_not() -> str:
    """Why no address can go dead here; empty if it can."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("iptables") is None:
        return "the packet filter needs Linux, root and iptables"
    return ""


def hosts() -> tuple[str, str]:
    """Two loopback addresses that nobody else on this machine uses."""
    own = os.getpid()
    first, second = (f"127.{64 + own % 128}.{own // 128 % 256}.{n}" for n in (1, 2))
    return first, second


def furnish(home: Path) -> None:
    """Give every node of a cluster that is down two addresses; the first is used while it lives."""
    folders = node_homes(home)
    ports = [split_address(load(folder).listen)[1] for folder in folders]
    first, second = hosts()
    for folder, port in zip(folders, ports, strict=True):
        settings = replace(
            load(folder),
            listen=f"{first}:{port}",
            advertise=(f"{first}:{port}", f"{second}:{port}"),
            peers=tuple(f"{first}:{other}" for other in ports if other != port),
        )
        (folder / FILE_NAME).write_text(dump(settings))


class Cut:
    """Everything to and from an address is dropped, without a word to anybody."""

    def __init__(self, address: str) -> None:
        self._rules = [("-d", address), ("-s", address)]

    def __enter__(self) -> None:
        for rule in self._rules:
            subprocess.run(["iptables", "-w", "-I", "INPUT", *rule, "-j", "DROP"], check=True)

    def __exit__(self, *_: object) -> None:
        for rule in self._rules:
            subprocess.run(["iptables", "-w", "-D", "INPUT", *rule, "-j", "DROP"], check=True)
