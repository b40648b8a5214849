"""What a job was built of when it began: the same bits come only of the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from elasticd.recovery.samples import NO_SAMPLES, Samples, without

Origin = tuple[tuple[str, str], ...]
"""Of what the processes of one job have alike, by name: MLX in words, all else as digests."""

_MLX = "mlx"
_OF = {"optimizer": "optimizer", "clip_norm": "optimizer", "model": "model", "base": "model",
       "trainable": "model", "dataset": "data", "data": "data", "data of other files": "data",
       "grain0": "data"}  # fmt: skip
"""Which part of a job an entry of a fingerprint is about, by its name up to a slash."""
_SAMPLES = "samples"
"""A part of its own, by the form of its digests (``samples/1``): builds make them in other ways.
Before there were forms it had the bare name, which nobody compares any more, or lay within data."""
_DIGITS = 16
_LONGEST = 80


def origin_of(fingerprint: Mapping[str, str], samples: Samples = NO_SAMPLES) -> Origin:
    """What is kept of it in the job's record: a few short texts, however much there is."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for name, text in sorted(without(fingerprint).items()):
        part = _OF.get(name.split("/")[0])
        if part is not None:
            parts.setdefault(part, []).append((name, text))
    if samples.form:
        parts[f"{_SAMPLES}/{samples.form}"] = sorted(samples.digests.items())
    found = {part: _digest(entries) for part, entries in parts.items()}
    if _MLX in fingerprint:
        found[_MLX] = fingerprint[_MLX][:_LONGEST]
    return tuple(sorted(found.items()))


def changed(began: Origin, now: Origin) -> str:
    """What is other than it was; nothing, if nothing is. What only one of the two tells of, since
    versions of the library look at other things, says nothing."""
    before, after = dict(began), dict(now)
    same = before.keys() & after.keys() - {_SAMPLES}
    if not any(map(_is_of_samples, before)) and _tells_samples(after):
        same -= {"data"}  # they may lie within it
    return "; ".join(_said(n, before[n], after[n]) for n in sorted(same) if before[n] != after[n])


def _tells_samples(parts: Mapping[str, str]) -> bool:
    return any(_is_of_samples(part) and text != _NONE for part, text in parts.items())


def _said(name: str, before: str, after: str) -> str:
    if name == _MLX:
        return f"MLX is {after}, and was {before}"
    return "its samples are others" if _is_of_samples(name) else f"its {name} is another"


def _is_of_samples(part: str) -> bool:
    return part.split("/")[0] == _SAMPLES


def _digest(entries: list[tuple[str, str]]) -> str:
    whole = hashlib.blake2b(digest_size=_DIGITS // 2)
    for text in (text for entry in entries for text in entry):
        whole.update(f"{len(text)}:{text}".encode(errors="surrogateescape"))
    return whole.hexdigest()


_NONE = _digest([])
"""Of the samples of data that tell none."""
