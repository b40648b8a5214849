"""What may be said more than once is asked again, of another daemon if there is one, where the one
that was asked has died or gives no answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from elasticd.client.connection import Connection, HungUp
from elasticd.core.words.requests.every import Request
from elasticd.errors import NoDaemonError

if TYPE_CHECKING:
    import tenacity

ASK_SECONDS = 15.0
"""So long daemons are asked again, each once at least: one may be started again meanwhile."""
FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


class Opens(Protocol):
    """What is needed of a client."""

    def open(self, request: Request, last: Path | None = None) -> Connection: ...


def attempts(
    seconds: float, pause_seconds: float, again: Callable[[str], None]
) -> tenacity.Retrying:
    """Tries until one finds a daemon that answers, or all that there may be. ``again`` is told why
    there is another, once for each reason in turn."""
    import tenacity  # who gets an answer at once should not wait for this

    told = [""]

    def tell(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if (why := str(error)) != told[0]:
            told[0] = why
            again(why)

    # A daemon that hangs may take all of the time; another one is asked all the same.
    enough = tenacity.stop_after_delay(seconds) & tenacity.stop_after_attempt(2)
    return tenacity.Retrying(
        wait=tenacity.wait_exponential(pause_seconds, _LONGEST_PAUSE_SECONDS),
        stop=enough,
        retry=tenacity.retry_if_exception_type(NoDaemonError),
        before_sleep=tell,
        reraise=True,
    )


class SureChange:
    """One change, which stays the same however often it is asked for, and of whom.

    Attributes:
        asked: who was asked last: another one is asked before it. None: nobody has been.
        repeated: whether it was asked for more than once.
    """

    def __init__(
        self,
        client: Opens,
        request: Request,
        answer_seconds: float,
    ) -> None:
        self._client, self._request, self._answer_seconds = client, request, answer_seconds
        self.asked: Path | None = None
        self.repeated = False

    def once(self, unknown: str) -> dict[str, Any]:
        """Of one daemon alone. ``unknown``: where it is found whether the change was made.

        Raises:
            NoDaemonError: none answers; it says whether one may have made it.
            OperationError, UsageError: the daemon refuses.
            ProtocolError: what answers is no daemon.
        """
        try:
            return self._ask()
        except NoDaemonError as error:
            raise self._gone(error, unknown) from None

    def sure(self, unknown: str, again: Callable[[str], None]) -> dict[str, Any]:
        """Of one daemon after the other until one answers; ``again`` is told why another is asked.
        Nobody is waited for where none was there. Raises as :meth:`once`."""
        try:
            return self._ask()
        except NoDaemonError as error:
            if self.asked is None and not isinstance(error, HungUp):
                raise
            again(str(error))
        try:
            for attempt in attempts(ASK_SECONDS, FIRST_PAUSE_SECONDS, again):
                with attempt:
                    answer = self._ask()
        except NoDaemonError as error:
            raise self._gone(error, unknown) from None
        return answer

    def _ask(self) -> dict[str, Any]:
        with self._client.open(self._request, self.asked) as connection:
            self.repeated = self.asked is not None
            self.asked = connection.path
            return connection.answer(self._answer_seconds)

    def _gone(self, error: NoDaemonError, unknown: str) -> NoDaemonError:
        if self.asked is None:
            return error
        text = f"a daemon has been told and may have done it: once one answers, {unknown} says"
        return NoDaemonError(f"{error}; {text}")
