"""A reducer that dies where it would send its nth message along the ring: ``dying.py N``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import mlx.core as mx

from elasticd.reducer.__main__ import main

left = int(sys.argv[1])
distributed: Any = mx.distributed
send = distributed.send


def send_or_die(array: mx.array, *args: Any, **kwargs: Any) -> Any:
    """What is short is the greeting's."""
    global left
    if array.size > 1000:
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
    return send(array, *args, **kwargs)


distributed.send = send_or_die
os._exit(main())
