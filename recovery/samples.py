"""What trainers tell of the samples of their data: compared only where they tell it in one form.

Pure. Builds make these digests in other ways, and trainers of two builds train together while a
cluster is upgraded. So they are told apart from the rest of a fingerprint, in a field that earlier
builds pass over, with the form's number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.types import NodeId

_NAME = re.compile(r"data/samples? \d+( to \d+)?")
_BEGIN = "data/sample"


@dataclass(frozen=True, slots=True)
class Samples:
    """Those of one trainer."""

    form: int = 0
    """How the digests are made. 0: the trainer tells nothing here, as it is of an earlier build."""
    digests: dict[str, str] = field(default_factory=dict)
    """By name in a fingerprint. Empty: the data are of a kind that isn't read through."""


NO_SAMPLES = Samples()
"""Of an earlier build's trainer."""

Told = tuple[Mapping[str, str], Samples]
"""A fingerprint, and what is told of samples beside it."""


def apart(fingerprint: Mapping[str, str], form: int) -> tuple[dict[str, str], Samples]:
    """A fingerprint without its samples, and these in a form."""
    digests = {name: text for name, text in fingerprint.items() if _is_of_samples(name)}
    return without(fingerprint), Samples(form, digests)


def without(fingerprint: Mapping[str, str]) -> dict[str, str]:
    """A fingerprint but for its samples. One of an earlier build has them within, in a form that
    nobody knows."""
    return {name: text for name, text in fingerprint.items() if not _is_of_samples(name)}


def comparable(told: Mapping[NodeId, Told]) -> dict[NodeId, Mapping[str, str]]:
    """What can be compared of what these trainers tell: samples only if all have the same form."""
    same = len({samples.form for _, samples in told.values()}) == 1
    return {
        node: without(prints) | (samples.digests if same else {})
        for node, (prints, samples) in told.items()
    }


def _is_of_samples(name: str) -> bool:
    """A file's name may begin alike."""
    return name.startswith(_BEGIN) and _NAME.fullmatch(name) is not None
