"""All probes, in the order in which they are run: the cheap ones first."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticd.cli.mac import disks, processes, serving, starting, system, whole
from elasticd.cli.mac.probe import MacProbe
from elasticd.preflight.finding import ProbeFinding

_SEND = "Send the bundle: the process of this probe ended without a word"
_SERVICE = "Take the service away by hand: sudo elasticctl service uninstall. And send the bundle"
_MLX = "Restart the Mac and try again; if it stays so send the bundle"


def _of_mlx(name: str) -> Callable[[Path], ProbeFinding]:
    """A probe that needs MLX: the table is read where MLX can't be loaded, too."""

    def run(folder: Path) -> ProbeFinding:
        metal: Any = importlib.import_module("elasticd.cli.mac.metal")
        found: ProbeFinding = getattr(metal, name)(folder)
        return found

    return run


PROBES: tuple[MacProbe, ...] = (
    MacProbe("system", "what this machine is", system.system, 60.0, _MLX),
    MacProbe("sleep", "whether it falls asleep by itself", system.sleep_settings, 30.0, _SEND),
    MacProbe("firewall", "whether it lets peers in", system.firewall, 30.0, _SEND),
    MacProbe("plist", "the service's property list", system.plist, 30.0, _SEND),
    MacProbe(
        "service",
        "a service whose daemon is killed",
        serving.service,
        serving.SECONDS,
        _SERVICE,
        root=True,
        grace=serving.REMOVE_SECONDS,
    ),
    MacProbe("assertions", "a power assertion for a rank", system.assertions, 60.0, _SEND),
    MacProbe("zombies", "leftovers of a dead process", processes.zombies, 30.0, _SEND),
    MacProbe("exits", "notices of exits", processes.exits, 30.0, _SEND),
    MacProbe(
        "starts", "children after the network was used", starting.starts, 120.0, starting.CURE
    ),
    MacProbe("descriptors", "shared memory through a socket", processes.descriptors, 120.0, _SEND),
    MacProbe("ring", "a ring with a stopped rank", processes.ring, 120.0, _SEND),
    MacProbe("flush", "full flushes, idle and beside a write", disks.flush, 180.0, _SEND),
    MacProbe("grain", "a gradient twice", _of_mlx("grain"), 60.0, _MLX),
    MacProbe("adamw", "the bits of AdamW's update", _of_mlx("adamw"), 60.0, _MLX),
    MacProbe("embedding", "the gradient of an embedding", _of_mlx("embedding"), 60.0, _MLX),
    MacProbe("shortage", "short memory, and MLX after it", _of_mlx("shortage"), 180.0, _MLX),
    MacProbe("demo", "make demo", whole.demo, 900.0, "Run 'make demo' and read what it says"),
)


def probe_named(name: str) -> MacProbe | None:
    return next((each for each in PROBES if each.name == name), None)
