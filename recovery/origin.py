"""What a job was built of when it began: the same bits come only of the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from elasticd.recovery.fitness import is_of_samples

Origin = tuple[tuple[str, str], ...]
"""Of what the processes of one job have alike, by name: MLX in words, all else as digests."""

_MLX = "mlx"
_OF = {"optimizer": "optimizer", "clip_norm": "optimizer", "model": "model", "base": "model",
       "trainable": "model", "dataset": "data", "data": "data", "data of other files": "data",
       "grain0": "data"}  # fmt: skip
"""Which part of a job an entry of a fingerprint is about, by its name up to a slash."""
_SAMPLES = "samples"
"""A part of its own: a release that tells none has the same digest of all else."""
_SAID = {_SAMPLES: "its samples are others"}
_DIGITS = 16
_LONGEST = 80


def origin_of(fingerprint: Mapping[str, str]) -> Origin:
    """What is kept of it in the job's record: a few short texts, however much there is."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for name, text in sorted(fingerprint.items()):
        part = _SAMPLES if is_of_samples(name) else _OF.get(name.split("/")[0])
        if part is not None:
            parts.setdefault(part, []).append((name, text))
    found = {part: _digest(entries) for part, entries in parts.items()}
    if _MLX in fingerprint:
        found[_MLX] = fingerprint[_MLX][:_LONGEST]
    return tuple(sorted(found.items()))


def changed(began: Origin, now: Origin) -> str:
    """What is other than it was; nothing, if nothing is. What only one of the two tells of, since
    versions of the library look at other things, says nothing."""
    before, after = dict(began), dict(now)
    other = (n for n in sorted(before.keys() & after.keys()) if before[n] != after[n])
    return "; ".join(
        f"MLX is {after[n]}, and was {before[n]}"
        if n == _MLX
        else _SAID.get(n, f"its {n} is another")
        for n in other
    )


def _digest(entries: list[tuple[str, str]]) -> str:
    whole = hashlib.blake2b(digest_size=_DIGITS // 2)
    for text in (text for entry in entries for text in entry):
        whole.update(f"{len(text)}:{text}".encode(errors="surrogateescape"))
    return whole.hexdigest()
