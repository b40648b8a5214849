"""One trainer process as its daemon sees it, and what to make of what it says and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticd.core.words.records import TrainerStatus, World
from elasticd.core.words.shards import ShardsFailed, ShardsWritten
from elasticd.core.words.worlds import Progress
from elasticd.recovery import signatures
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag


@dataclass(slots=True)
class Trainer:
    child: int
    pid: int = 0
    phase: str = "starting"
    fingerprint: dict[str, str] = field(default_factory=dict)
    probe: dict[str, Any] | None = None
    judged: bool = False
    hung: str = ""
    """Why we killed it, if it hung."""
    hung_since: float = 0.0

    def status(self) -> TrainerStatus:
        return TrainerStatus(self.phase, self.pid, self.fingerprint, self.probe, self.judged)


@dataclass(frozen=True, slots=True)
class Ending:
    """What the end of a trainer means."""

    fault: str
    evidence: str
    fatal: str = ""
    """Why it is the script's own doing, so that no other node would fare better."""
    confidence: str = "certain"


def ending(
    trainer: Trainer, status: int | None, tail: str, memory: signatures.Memory | None
) -> Ending:
    if status is None and not trainer.hung:
        text = f"trainer ended while {trainer.phase}, how is not known: its daemon was restarted"
        return Ending("worker_exit", text, confidence="likely")
    status = status or 0
    finding = signatures.classify(status, tail, memory)
    evidence = f"trainer ended with {finding.text} while {trainer.phase}"
    if trainer.hung:
        return Ending("hang", trainer.hung + _stack(tail), confidence="likely")
    if finding.fault == "worker_exit":
        return Ending("worker_exit", evidence, _fatal(trainer.phase, status, tail))
    fault = "oom" if finding.fault == "oom" else "worker_exit"
    return Ending(fault, evidence, confidence=finding.confidence)


def tag_of(plain: list[Any] | None) -> Tag | None:
    """A generation as children say it."""
    return Tag(plain[0], NodeId(plain[1]), plain[2]) if plain else None


def progress_of(job: JobId, world: World, message: dict[str, Any]) -> Progress:
    """The ``progress`` of docs/protocols.md §1."""
    return Progress(
        job=job,
        generation=world.generation,
        step=message["step"],
        stamp=Stamp(message["stamp"]),
        committed=message["committed"] or 0,
        loss=message["loss"],
        phase=message["phase"],
        steps_per_second=message["steps_per_second"] or 0.0,
        memory_bytes=message["memory_bytes"],
        metrics=message["metrics"],
        grain_seconds=float(message.get("grain_seconds", 0.0)),
        update_seconds=float(message.get("update_seconds", 0.0)),
    )


def shards_of(job: JobId, message: dict[str, Any]) -> ShardsWritten:
    """The ``shards`` of docs/protocols.md §1."""
    counter, leader, nonce = message["generation"]
    shards = tuple((s["index"], s["bytes"], s["digest"]) for s in message["shards"])
    return ShardsWritten(
        job=job,
        generation=Tag(counter, NodeId(leader), nonce),
        lineage=Lineage(message["lineage"]),
        step=message["step"],
        stamp=Stamp(message["stamp"]),
        count=message["count"],
        shards=shards,
        digest=message["digest"],
        stall_seconds=message["stall_seconds"],
        write_seconds=message["write_seconds"],
        mode=message.get("mode", ""),
        cost_seconds=message.get("cost_seconds", 0.0),
        step_seconds=message.get("step_seconds", 0.0),
        metric=message.get("metric"),
        tensors=tuple(tuple(s.get("tensors", {}).items()) for s in message["shards"]),
        check=message["check"],
    )


def failed_of(job: JobId, message: dict[str, Any]) -> ShardsFailed:
    """The ``checkpoint_skipped`` of docs/protocols.md §1."""
    counter, leader, nonce = message["generation"]
    return ShardsFailed(
        job=job,
        generation=Tag(counter, NodeId(leader), nonce),
        lineage=Lineage(message["lineage"]),
        step=message["step"],
        stamp=Stamp(message["stamp"]),
        count=message["count"],
        reason=message["reason"],
        refused=message["refused"],
    )


def plain_tag(generation: Tag) -> list[Any]:
    """A generation as children get and say it."""
    return [generation.counter, generation.leader, generation.nonce]


def _stack(tail: str) -> str:
    """What faulthandler printed of the main thread, if that is in the last lines."""
    _, found, rest = tail.rpartition("Current thread")
    if not found:
        return ""
    lines = [line.strip() for line in rest.splitlines()[1:]]
    return "; stack, innermost first: " + " < ".join(line for line in lines[:12] if line)


def _fatal(phase: str, status: int, tail: str) -> str:
    """Why a trainer's end is the script's own doing, so that no other node would fare better."""
    last_lines = "\n".join(tail.strip().splitlines()[-12:])
    if status > 0:
        return f"the script ended with exit status {status}:\n{last_lines}".strip()
    if status == 0 and phase in ("starting", "waiting"):
        return "the script ended without calling elasticd.Run"
    if status == 0 and phase in ("ready", "active", "finished"):
        return "the script ended before its last step"
    return ""
