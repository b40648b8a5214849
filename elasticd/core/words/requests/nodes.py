"""Nodes: what is done to them, and what they are then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elasticd.types import NodeId


@dataclass(frozen=True, slots=True)
class DrainNode:
    kind: ClassVar = "drain"
    node: NodeId


@dataclass(frozen=True, slots=True)
class UndrainNode:
    kind: ClassVar = "undrain"
    node: NodeId


@dataclass(frozen=True, slots=True)
class ForgetNode:
    """One that is gone for good."""

    kind: ClassVar = "forget_node"
    node: NodeId


@dataclass(frozen=True, slots=True)
class PutOutNode:
    """Take its certificate no more, on any node."""

    kind: ClassVar = "put_out_node"
    node: NodeId


@dataclass(frozen=True, slots=True)
class RotateCertificates:
    """Have all members get new keys and certificates, and take the old ones no more; a rotation
    that is under way goes on. How far it is follows, as :class:`RotationTold`, until old ones are
    refused. It does not end with the client."""

    kind: ClassVar = "rotate"


@dataclass(frozen=True, slots=True)
class ShutDown:
    """End the daemon and its children, in order."""

    kind: ClassVar = "shutdown"


@dataclass(frozen=True, slots=True)
class Restart:
    """End the daemon and its children, in order, and have the same process begin anew: with the
    settings and papers that are there then."""

    kind: ClassVar = "restart"


@dataclass(frozen=True, slots=True)
class NodeChanged:
    id: NodeId
    state: str


@dataclass(frozen=True, slots=True)
class RotationTold:
    """How far a rotation is, by node: who has its new certificate, who is there and hasn't, who is
    away and gets it when it is back."""

    wanted_unix: float
    """Certificates that were made by then are old."""
    renewed: tuple[NodeId, ...]
    waiting: tuple[NodeId, ...]
    away: tuple[NodeId, ...]
    refused: bool
    """Old certificates are taken no more."""


ChangeOfNode = DrainNode | UndrainNode | ForgetNode | PutOutNode
