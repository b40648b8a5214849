"""Which versions of the protocol between daemons this one speaks, and which two agree on.

A version is raised when a daemon of the one before would refuse what is new: a message, or a value
of a closed set. Fields need none: who doesn't know one passes over it (codec.py).
"""

from __future__ import annotations

from dataclasses import dataclass

OLDEST, NEWEST = 3, 3
"""What this daemon speaks. A class of words that came later than the oldest says so: ``since``."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """From the oldest version that a daemon speaks to the newest."""

    oldest: int
    newest: int

    def common(self, other: Spoken) -> int | None:
        """The version that both use: the newest that both speak. None: there is none."""
        newest = min(self.newest, other.newest)
        return newest if newest >= max(self.oldest, other.oldest) else None

    def __str__(self) -> str:
        if self.oldest == self.newest:
            return f"protocol {self.newest}"
        return f"protocols {self.oldest} to {self.newest}"


SPOKEN = Spoken(OLDEST, NEWEST)


def since(word: object) -> int:
    """The version in which a message was added."""
    return int(getattr(word, "since", OLDEST))
