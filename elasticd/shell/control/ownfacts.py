"""What this machine is and how it fares, as other nodes ask for it before a job runs."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from elasticd import systemtools
from elasticd.build import build
from elasticd.machinememory import total_bytes
from elasticd.preflight.power import (
    FILEVAULT,
    FIREWALL,
    SERVICES,
    THERMAL,
    heat_of,
    locked_by,
    settings_of,
)
from elasticd.preflight.seen import NodeFacts
from elasticd.settings.diskroom import room_of
from elasticd.shell.children.room import pressure
from elasticd.shell.clock import unix_seconds
from elasticd.shell.control.speeddesk import FRESH_SECONDS, kept_speed
from elasticd.shell.network.interfaces import with_masks
from elasticd.supervision.program import own_program
from elasticd.systemtools import Ask

PMSET = ("/usr/bin/pmset", "-g")


def battery_now(battery: Callable[[], Any] = psutil.sensors_battery) -> Any:
    """What psutil says of it; None: there is none."""
    try:
        return battery()
    except (OSError, RuntimeError):  # of a system that tells of none
        return None


@dataclass(frozen=True, slots=True)
class OwnFacts:
    """Of the node with this home.

    Attributes:
        chip: what it computes with.
        walled: addresses to which this machine lets nothing out.
        ask: has one of macOS's tools say something.
        told: the addresses that others are told, with their ports.
        battery: what psutil says of it; None: there is none.
    """

    home: Path
    chip: Callable[[], str]
    walled: Callable[[], Sequence[str]]
    system: str = sys.platform
    ask: Ask = systemtools.printed
    told: Callable[[], Sequence[str]] = tuple
    battery: Callable[[], Any] = psutil.sensors_battery

    def begun(self) -> Callable[[], NodeFacts]:
        """What is to be called in a thread, since it asks the system's tools. What the event loop
        knows is read now."""
        chip, walled = self.chip(), tuple(self.walled())
        hosts = [address.rpartition(":")[0] for address in self.told()]
        return lambda: self._read(chip, walled, hosts)

    def _read(self, chip: str, walled: tuple[str, ...], hosts: Sequence[str]) -> NodeFacts:
        mac = self.system == "darwin"
        low, battery, disk = pressure(()), battery_now(self.battery), room_of(self.home)
        firewall = self.ask((FIREWALL, "--getglobalstate")) if mac else ""
        release = systemtools.release(self.system, self.ask)
        return NodeFacts(
            elasticd=build(),
            python=platform.python_version(),
            mlx=_mlx(),
            chip=chip,
            system="macOS" if mac else platform.system(),
            release=release,
            machine=platform.machine(),
            memory_bytes=total_bytes(),
            memory_low="" if low is None or low.mild else low.reason,
            memory_warned=low.reason if low is not None and low.mild else "",
            free_bytes=disk.free_bytes,
            free_files=disk.free_files,
            home=str(self.home.absolute()),
            battery=None if battery is None else float(battery.percent),
            # None: the system doesn't know.
            plugged=battery is None or battery.power_plugged is not False,
            power=dict(settings_of(self.ask(PMSET))) if mac else {},
            locked=locked_by(self.ask(FILEVAULT), self.ask(SERVICES), release) if mac else "",
            firewall=firewall.partition("\n")[0],
            thermal=heat_of(self.ask(THERMAL)) if mac else "",
            program=own_program(),
            walled=walled,
            addresses=with_masks(hosts),
            gflops=self._speed(),
            unix=unix_seconds(),
        )

    def _speed(self) -> float:
        known = kept_speed(self.home)
        fresh = known is not None and 0 <= unix_seconds() - known.unix < FRESH_SECONDS
        return known.gflops if known is not None and fresh else 0.0


def _mlx() -> str:
    try:
        return metadata.version("mlx")
    except metadata.PackageNotFoundError:
        return ""
