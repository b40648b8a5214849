"""Where updates are made: where everything is computed, which is the GPU where there is one, or on
the CPU, as a world may say."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx


class Streams:
    """Of this process."""

    @property
    def apart(self) -> bool:
        """Whether the two are different."""
        return bool(mx.default_device() != mx.Device(mx.cpu, 0))

    def cpu(self) -> AbstractContextManager[Any]:
        """While it lasts what is computed is computed on the CPU."""
        return mx.stream(mx.cpu)

    def at(self, *, on_cpu: bool) -> AbstractContextManager[Any]:
        """While it lasts what is computed is computed where a world says."""
        return self.cpu() if on_cpu else nullcontext()


HERE = Streams()
"""Tests put others here: the library for Linux has the CPU alone."""
