"""What a trainer or reducer may say, field by field (docs/protocols.md §1).

A child runs the user's script, so what it sends is checked before it meets the state machine: a
frame of a known kind that lacks a field, or has one of another type, is a ProtocolError, for which
the child is killed. Keys that no table names are passed on.
"""

from __future__ import annotations

from typing import Any

from elasticd.core.words.codec import from_plain
from elasticd.errors import ProtocolError

_Generation = tuple[int, str, str]
_Point = tuple[str, int, str]
_Number = float | None

_SHARD: dict[str, Any] = {"index": int, "bytes": int, "digest": str}
_OPTIONAL_SHARD: dict[str, Any] = {"tensors": dict[str, str]}

_FIELDS: dict[str, dict[str, Any]] = {
    "at_run": {"fingerprint": dict[str, str]},
    "holding": {"serial": int, "point": _Point | None, "committed": int | None},
    "loaded": {"generation": _Generation},
    "refused": {"reason": str},
    "exported": {"serial": int},
    "not_exported": {"serial": int, "reason": str},
    "progress": {
        "generation": _Generation,
        "step": int,
        "stamp": str,
        "committed": int | None,
        "loss": _Number,
        "phase": str,
        "steps_per_second": _Number,
        "memory_bytes": int,
        "metrics": dict[str, Any],
    },
    "probe": {"repeats": bool, "gradient": str, "update": str, "layout": str, "state": str},
    "reducer_lost": {"generation": _Generation, "evidence": str},
    "shards": {
        "generation": _Generation,
        "lineage": str,
        "step": int,
        "stamp": str,
        "count": int,
        "shards": tuple[dict[str, Any], ...],
        "digest": str,
        "check": str,
        "stall_seconds": float,
        "write_seconds": float,
    },
    "checkpoint_skipped": {
        "generation": _Generation,
        "lineage": str,
        "step": int,
        "stamp": str,
        "count": int,
        "reason": str,
        "refused": bool,
    },
    "spoilt": {"generation": _Generation, "reason": str},
    "oom": {"generation": _Generation, "evidence": str},
    "not_finite": {"generation": _Generation, "step": int, "loss": str, "policy": str},
    "digest": {"generation": _Generation, "step": int, "stamp": str, "digest": str},
    "rechecked": {"generation": _Generation, "step": int, "grain": int, "digest": str},
    "finished": {"generation": _Generation},
    "formed": {"generation": _Generation},
    "broken": {"generation": _Generation, "evidence": str},
}
_HERE: dict[str, dict[str, Any]] = {
    "trainer": {
        "fingerprint": dict[str, str] | None,
        "waiting": bool,
        "generation": _Generation | None,
        "entered": _Generation | None,
        "used": bool,
        "serial": int,
        "judged": bool,
        "released": bool,
    },
    "reducer": {"generation": _Generation | None, "formed": bool},
}
_OPTIONAL: dict[str, dict[str, Any]] = {
    "shards": {
        "mode": str,
        "metric": _Number,
        "cost_seconds": float,
        "step_seconds": float,
    },
}


def check(message: dict[str, Any]) -> None:
    """Check one frame of a child.

    Raises:
        ProtocolError: a field of a known kind is missing or has another type.
    """
    kind = message.get("t")
    if not isinstance(kind, str):
        raise ProtocolError("a frame has no kind")
    if kind == "here":
        _check(kind, _HERE["reducer" if "formed" in message else "trainer"], {}, message)
    _check(kind, _FIELDS.get(kind, {}), _OPTIONAL.get(kind, {}), message)
    if kind == "shards":
        for shard in message["shards"]:
            _check("shard", _SHARD, _OPTIONAL_SHARD, shard)


def _check(
    kind: str, fields: dict[str, Any], optional: dict[str, Any], message: dict[str, Any]
) -> None:
    for name, hint in (*fields.items(), *optional.items()):
        if name not in message:
            if name in optional:
                continue
            raise ProtocolError(f"{kind}: field {name} is missing")
        try:
            from_plain(hint, message[name])
        except ProtocolError as error:
            raise ProtocolError(f"{kind}.{name}: {error}") from None
