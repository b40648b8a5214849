"""What a job needs of a node, and what a node has of that, both as they travel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from elasticd.preflight.trials import TrialAsked
from elasticd.types import NodeId, NodeRole

TunedAs = Literal["", "lora", "dora", "full"]
PathKind = Literal["", "file", "folder", "other"]


@dataclass(frozen=True, slots=True)
class NamedPath:
    """An absolute path that the job names. ``key``: where it does."""

    key: str
    path: str
    read: bool = False
    """elasticd itself reads it; else only the script knows what it is for."""
    secret: bool = False
    """It is not shown: job.env may hold anything."""


@dataclass(frozen=True, slots=True)
class JobNeeds:
    """What a job.toml comes to.

    Attributes:
        python: the interpreter; "": the daemon's own.
        archive: the digest of its files; "" of an earlier version.
        plain: the script runs without elasticd.
        modules: what its script imports wherever it runs, and isn't shipped.
        env: of what the job sets, what decides where modules and models are found.
        passed: variables that the daemon has to have.
        model: a folder or a name of the hub's, of a recipe; "": of none.
        model_bytes: of a model that is shipped.
        layers: how many of its layers are trained; 0 or less: all.
        moments: so many values an optimizer keeps for each weight.
        state_bytes: of a checkpoint of the job ``state_of``, an earlier one of this name.
    """

    name: str
    least: int = 1
    replicas: int = 1
    keep: int = 1
    archive_bytes: int = 0
    python: str = ""
    plain: bool = False
    modules: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict, hash=False)
    passed: tuple[str, ...] = ()
    paths: tuple[NamedPath, ...] = ()
    model: str = ""
    model_bytes: int = 0
    tuned: TunedAs = ""
    layers: int = 0
    moments: int = 0
    state_bytes: int = 0
    state_of: str = ""
    archive: str = ""


@dataclass(frozen=True, slots=True)
class ScriptOffer:
    """A job whose first step may be made: ``spec`` as JobSpec.to_dict(), and the archive of its
    files. ``trial``: it is tried with another setting in place of all else. An earlier version
    knows no such thing."""

    spec: dict[str, Any] = field(hash=False)
    archive_bytes: int
    archive_digest: str
    trial: TrialAsked | None = None


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What lies at a path. ``digest``: of names, sizes, and the ends of each file. ``by_file``: of
    a folder, such a digest of each of its first files. ``cure``: where the node knows more than
    that nothing is there, or that its account can't read it."""

    kind: PathKind = ""
    files: int = 0
    bytes: int = 0
    digest: str = ""
    error: str = ""
    by_file: dict[str, str] = field(default_factory=dict, hash=False)
    cure: str = ""


@dataclass(frozen=True, slots=True)
class NeedsMet:
    """What one node has of a job's needs.

    Attributes:
        python: the version of its interpreter; "": it can't be started, as ``error`` says.
        missing: modules that it doesn't find.
        lacks: why it has not all variables.
        paths: in the order of the needs.
        model_bytes: of the model's weights; 0: not known.
        model_layers: 0: not known.
        model_cure: of its error, if that isn't that it isn't there.
    """

    python: str = ""
    mlx: str = ""
    error: str = ""
    missing: tuple[str, ...] = ()
    lacks: str = ""
    paths: tuple[PathFacts, ...] = ()
    model_error: str = ""
    model_bytes: int = 0
    model_layers: int = 0
    memory_bytes: int = 0
    available_bytes: int = 0
    free_bytes: int = 0
    model_cure: str = ""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """One node."""

    node: NodeId
    facts: NeedsMet
    role: NodeRole = "train"
    draining: bool = False

    @property
    def trains(self) -> bool:
        return self.role == "train" and not self.draining
