"""Something may have to be started or ended: seen to once an event is taken in whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SecondLook:
    """Of one job. Before an event is taken in it isn't known who is there."""

    due: bool = False

    def again(self) -> None:
        """Something may be started now, or somebody be answered by it."""
        self.due = True

    def take(self) -> bool:
        """Whether it is time to look; asked once."""
        due, self.due = self.due, False
        return due
