"""Which events of others a node has, by their numbers."""

from __future__ import annotations


class SeenNumbers:
    """Which numbers of each origin were seen. A floor stands for all numbers up to it."""

    def __init__(self) -> None:
        self._complete: dict[str, int] = {}
        self._beyond: dict[str, set[int]] = {}

    def seen(self, origin: str, number: int) -> bool:
        return number <= self.upto(origin) or number in self._beyond.get(origin, ())

    def upto(self, origin: str) -> int:
        """The number up to which nothing is missing."""
        return self._complete.get(origin, 0)

    def highest(self, origin: str) -> int:
        """The highest number that was seen."""
        return max(self.upto(origin), *self._beyond.get(origin, ()), 0)

    def knows(self, origin: str) -> bool:
        """Whether anything of it was seen."""
        return origin in self._complete or origin in self._beyond

    def origins(self) -> list[str]:
        """Those of which anything was seen."""
        return sorted({*self._complete, *self._beyond})

    def note(self, origin: str, number: int) -> None:
        upto = self.upto(origin)
        if number == upto + 1:
            self._advance(origin, number)
        elif number > upto:
            self._beyond.setdefault(origin, set()).add(number)
            self._complete.setdefault(origin, 0)

    def note_range(self, origin: str, first: int, last: int) -> None:
        """All of these, both ends too."""
        if first <= self.upto(origin) + 1:
            self.raise_floor(origin, last)
        else:
            self._beyond.setdefault(origin, set()).update(range(first, last + 1))

    def raise_floor(self, origin: str, number: int) -> None:
        if number > self.upto(origin):
            if origin in self._beyond:
                self._beyond[origin] = {n for n in self._beyond[origin] if n > number}
            self._advance(origin, number)

    def _advance(self, origin: str, complete: int) -> None:
        if (beyond := self._beyond.get(origin)) is not None:
            while complete + 1 in beyond:
                complete += 1
                beyond.remove(complete)
            if not beyond:  # of some ten thousand origins sets of nothing are megabytes
                del self._beyond[origin]
        self._complete[origin] = complete

    def vector(self) -> dict[str, int]:
        return dict(self._complete)
