"""Trying again what fails while others are not yet where they will be."""

from __future__ import annotations

import tenacity

from elasticd.errors import OperationError

_RETRY_SECONDS = 60.0


def attempts(seconds: float = _RETRY_SECONDS) -> tenacity.AsyncRetrying:
    """Each attempt, for so long at most, with growing pauses; the last error is raised."""
    return tenacity.AsyncRetrying(
        wait=tenacity.wait_exponential(multiplier=0.01, max=1.0),
        stop=tenacity.stop_after_delay(seconds),
        retry=tenacity.retry_if_exception_type((OperationError, OSError)),
        reraise=True,
    )
