"""``run.on_main`` of one process: which call it is, who runs its function, what of it is kept."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeVar, assert_never

from elasticd.counting import counted
from elasticd.errors import OperationError, UsageError
from elasticd.train.states.state import TrainingState
from elasticd.train.steps import randomness
from elasticd.train.steps.results import MOST_BYTES, packed, unpacked
from elasticd.train.steps.seat import Seat
from elasticd.train.steps.standing import Standing

T = TypeVar("T")
CALLS = "elasticd.calls"
ABOVE = 0
"""The body of calls above the loop."""
EARLY = "belongs below elasticd.Run(…)"
IN_GRAINS = (
    "can't be called where gradients are computed: ranks come there a different number of times"
)
BEHIND = "can't be called behind the loop: the ranks go their own ways there"


class KeptResults:
    """What calls above the loop have returned, as tracked state: whoever joins later gets it."""

    def __init__(self) -> None:
        self._results: list[bytes] = []

    def __len__(self) -> int:
        return len(self._results)

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(map(len, self._results))

    def add(self, data: bytes) -> None:
        self._results.append(data)

    def get(self, index: int) -> bytes:
        return self._results[index]

    def state_dict(self) -> dict[str, Any]:
        return {"results": [base64.b64encode(data).decode() for data in self._results]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self._results = [base64.b64decode(text) for text in saved["results"]]


class MainCalls:
    """Calls are named by the step whose body makes them and by their number there."""

    def __init__(self, seat: Seat, standing: Standing, state: TrainingState) -> None:
        self._seat, self._standing, self._state = seat, standing, state
        self._body = self._made = 0
        self._shut, self._inside, self._raised = EARLY, False, ""
        self._kept: KeptResults | None = None
        self._repeats = False
        """The calls above the loop were made before this process came."""
        self.void = False
        """What the body under way makes of the state is nobody's."""
        self.alone = False
        """Functions run here in this body: nobody else is in it."""

    @property
    def uncounted(self) -> bool:
        """Whether what the body under way leaves is nobody's."""
        return self.void or self.alone

    # --- bodies -----------------------------------------------------------------------------------

    def begin(self, body: int) -> None:
        """The body of a step begins, or what stands above the loop."""
        self._body, self._made, self._shut, self._raised = body, 0, "", ""
        self.void = self.alone = False
        self._repeats = body == ABOVE and self._standing.set_up
        self._seat.body_begins(body)

    def end(self) -> None:
        """It has ended. The job fails if it made fewer calls than main's.

        Raises:
            UsageError: what a function has raised was caught by the script.
        """
        self._refuse_caught()
        if not (self.uncounted or self._repeats or self._shut):
            self._seat.body_ends(self._body, self._made)

    def shut(self, why: str = "") -> None:
        """From now on nothing may be called, and why; empty: it may."""
        self._shut = why

    # --- a call -----------------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """What ``function`` returns on the rank on which it runs.

        Raises:
            UsageError: it can't be called here, or what it returns can't be told.
        """
        if self._inside:
            raise UsageError("run.on_main() can't be called inside of what run.on_main() calls")
        if self._shut:
            raise UsageError(f"run.on_main() {self._shut}")
        self._refuse_caught()
        index, self._made = self._made, self._made + 1
        data = self._repeated(index) if self._repeats else self._result(function, index)
        result: T = unpacked(data)
        return result

    def _refuse_caught(self) -> None:
        if self._raised:
            raise UsageError(
                f"run.on_main(): its function has raised {self._raised}, which the script caught. "
                "Only one rank can catch it, and the others wait for what it returns: catch it "
                "inside of the function, and return what tells of it"
            )

    def _repeated(self, index: int) -> bytes:
        kept = self._keeps()
        if index >= len(kept):
            raise UsageError(
                f"run.on_main() was called {counted(len(kept), 'time')} above the loop when "
                f"the job began, this is call {index + 1}: call it on every rank alike, under no "
                "condition"
            )
        return kept.get(index)

    def _result(self, function: Callable[[], Any], index: int) -> bytes:
        found = self._shared(function, index)
        if self._body == ABOVE:
            kept = self._keeps()
            kept.add(found)
            if kept.size > MOST_BYTES:
                raise UsageError(
                    f"run.on_main(): what is returned above the loop is part of the state, and has "
                    f"{kept.size} bytes in all, {MOST_BYTES} are the most"
                )
        return found

    def _keeps(self) -> KeptResults:
        if self._kept is None:
            self._kept = KeptResults()
            self._state.track(CALLS, self._kept)
        return self._kept

    def _shared(self, function: Callable[[], Any], index: int) -> bytes:
        """What all ranks that are in this body get."""
        own: bytes | None = None
        while not self.uncounted:
            point = self._standing.point
            assert point is not None
            answer = self._seat.call(self._body, index, point.step)
            match answer:
                case bytes():
                    return answer
                case "over":
                    raise OperationError("the job has ended")
                case "void":
                    self._give_up(point.step)
                case "run":
                    own = self._run(function, index) if own is None else own
                    self._seat.returned(self._body, index, own)
                case _:
                    assert_never(answer)
        return self._run(function, index) if own is None else own

    def _give_up(self, step: int) -> None:
        """Another state is to replace what this body makes."""
        self.alone = True
        if step < self._body:
            self.void = True  # before its update: the state from before is there still
        else:
            self._seat.disown()

    def _run(self, function: Callable[[], Any], index: int) -> bytes:
        self._inside = True
        try:
            with randomness.undisturbed():
                randomness.seed_call(self._standing.seed, self._body, index)
                return packed(function())
        except BaseException as error:
            self._raised = type(error).__name__
            raise
        finally:
            self._inside = False
