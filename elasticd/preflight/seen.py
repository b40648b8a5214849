"""What nodes say of themselves, and where what was found of that is kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from elasticd.types import NodeId

REPORT_NAME, LINKS_NAME, SPEEDS_NAME = "preflight.json", "network.json", "calibrate.json"
"""In the home of the node that was asked."""
SPEED_NAME = "speed.json"
"""How fast this node computes."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node's, as it travels. What it doesn't know is empty, 0 or None."""

    elasticd: str = ""
    python: str = ""
    mlx: str = ""
    system: str = ""
    release: str = ""
    machine: str = ""
    chip: str = ""
    memory_bytes: int = 0
    memory_low: str = ""
    """Why memory runs short there now."""
    memory_warned: str = ""
    """What macOS warns of, which may go on for hours."""
    free_bytes: int = 0
    """Of the disk that its home is on."""
    free_files: int | None = None
    """How many more files that disk takes; None: it doesn't say, or has no such limit."""
    home: str = ""
    unix: float = 0.0
    """Its clock, just before it answered."""
    battery: float | None = None
    """Per cent; None: it has none."""
    plugged: bool = True
    power: dict[str, str] = field(default_factory=dict)
    """Of macOS's ``pmset -g``."""
    locked: str = ""
    """What FileVault asks for the password after a restart: "ssh", or "screen" alone; empty:
    nothing, or it doesn't say."""
    firewall: str = ""
    """As macOS tells it."""
    program: str = ""
    """The interpreter."""
    walled: tuple[str, ...] = ()
    """Addresses to which its own machine lets nothing out, each with the cure."""
    thermal: str = ""
    """How far macOS slows the machine down since it is hot: "nominal" is not at all."""
    addresses: tuple[str, ...] = ()
    """By which others reach it, each with the bits of its network's mask: "10.0.0.5/24"."""
    gflops: float = 0.0
    """How fast it computes, as it was measured within the last day."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """``skew_seconds``: by how much its clock is ahead of that of whoever asked."""

    node: NodeId
    facts: NodeFacts
    skew_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeUnseen:
    """A node that tells nothing: since its version knows no such question, or for a reason."""

    node: NodeId
    older: bool = False
    away: bool = False
    reason: str = ""
