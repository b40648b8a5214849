"""What members compare of their states: the model, and each thing that the script tracks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from elasticd.checkpoints.codec import Pace, model_check, unpaced
from elasticd.recovery.divergence import MODEL_PART
from elasticd.train.states.state import USER, Snapshot
from elasticd.train.states.tracked import RANKS, STATE, STREAM
from elasticd.train.states.trees import named_in

PART_DIGITS = 16
"""Of a part's digest: enough to find one that differs."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """Of one state. ``check`` is equal where all of it is; ``parts`` says where it isn't: names, as
    people know them, with digests. There are none where the script tracks nothing."""

    check: str
    parts: tuple[tuple[str, str], ...]


def told(
    snapshot: Snapshot,
    known: Mapping[str, str] = MappingProxyType({}),
    pace: Pace = unpaced,
) -> Comparable:
    """What there is to tell of ``snapshot``; ``known`` are digests of tensors by name."""
    model = snapshot.check(known, pace)
    parts = {MODEL_PART: model} | things(snapshot, known, pace)
    if len(parts) == 1:
        return Comparable(model, ())
    check = _hashed(json.dumps(sorted(parts.items())))
    return Comparable(check, tuple((name, parts[name][:PART_DIGITS]) for name in sorted(parts)))


def things(
    snapshot: Snapshot,
    known: Mapping[str, str] = MappingProxyType({}),
    pace: Pace = unpaced,
) -> dict[str, str]:
    """The digest of each thing that the script's own code keeps; else as :func:`told`."""
    found = {}
    for name, plain in _things(snapshot.plain):
        arrays = {path: snapshot.tensors[path] for path in named_in(plain)}
        content = json.dumps(plain, sort_keys=True)
        found[name] = _hashed(content + (model_check(arrays, known, pace) if arrays else ""))
    return found


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


def _things(plain: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What the script's own code keeps, by the names that people know."""
    for name, content in plain["tracked"].items():
        if name == STATE:
            for kind in ("values", "generators"):
                for each, value in _items(_items(content)[kind]).items():
                    yield f"run.state.{each}", value
        elif name == RANKS:
            yield "what run.track(…, per_rank=True) was given", content
        elif name == STREAM:
            yield "the data stream's state", content
        else:
            yield f"run.track({name!r}, …)", content
    for name, content in plain.get("attributes", {}).items():
        holder, _, attribute = name.partition(":")
        if holder.startswith(USER):
            holder = f"run.track({holder.removeprefix(USER)!r}, …)"
        yield f"{holder}.{attribute}", content


def _items(plain: Any) -> dict[str, Any]:
    return {str(key): value for key, value in plain["dict"]}
