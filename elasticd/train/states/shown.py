"""A state as digests by name, for members of one world to compare: where it differs has a name."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from elasticd.checkpoints.codec import model_check
from elasticd.train.states.attributes import ATTRIBUTES
from elasticd.train.states.parts import things
from elasticd.train.states.state import OPTIMIZER, USER, Snapshot

_DIGITS = 16
_MOST = 1000
"""Names; of a state with more several go together."""


def digests_of(snapshot: Snapshot) -> dict[str, str]:
    """All that is stored of it: the arrays of model and optimizer, the optimizer's other values,
    and what the script tracks."""
    found = {
        name: model_check({name: array}, {})[:_DIGITS]
        for name, array in snapshot.tensors.items()
        if not name.startswith((USER, ATTRIBUTES))
    }
    for name, value in (snapshot.plain.get("optimizer") or {}).items():
        found[f"{OPTIMIZER}{name} (no array)"] = _of_plain(value)
    found["which parameters are trained"] = _of_plain(list(snapshot.trainable))
    kept = {name: digest[:_DIGITS] for name, digest in things(snapshot).items()}
    return together(found, _MOST) | together(kept, _MOST)


def together(found: dict[str, str], most: int) -> dict[str, str]:
    """The same in at most so many names."""
    if len(found) <= most:
        return found
    size = -(-len(found) // most)
    names = sorted(found)
    groups = [names[n : n + size] for n in range(0, len(names), size)]
    return {f"{g[0]} … {g[-1]}": _of_plain([found[name] for name in g]) for g in groups}


def _of_plain(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS // 2).hexdigest()
