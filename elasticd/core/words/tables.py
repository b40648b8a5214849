"""What daemons say of jobs and of nodes, whoever leads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticd.core.words.records import JobRecord, NodeRecord
from elasticd.types import JobId, NodeId


@dataclass(frozen=True, slots=True)
class Jobs:
    """Records of jobs, some or all.

    Of many ended ones only digests are told, one for each of the groups that they fall into
    (core/jobs/ended.py); who has others asks for those groups.
    """

    records: tuple[JobRecord, ...]
    digests: tuple[int, ...] | None = None
    """Of every group; empty: nothing is said of that. None: a daemon of before, which knows none
    and is told all records."""
    wanted: tuple[int, ...] = ()
    """Groups whose records the sender asks for."""
    asked: bool = False
    """Part of the answer to that: others needn't be told."""


@dataclass(frozen=True, slots=True)
class JobsKept:
    """The records of a :class:`Jobs` message are on this node's disk."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Nodes:
    records: tuple[NodeRecord, ...]


@dataclass(frozen=True, slots=True)
class NodesKept:
    """The records of a :class:`Nodes` message are on this node's disk."""

    nodes: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Departing:
    """The sender is about to be stopped: its ranks are to leave at the next step boundary."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The leader's account of a running job, for every daemon that is asked."""

    job: JobId
    fields: dict[str, Any]


OfTables = Jobs | JobsKept | Nodes | NodesKept | Departing | Summary
