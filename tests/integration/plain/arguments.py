"""Says what it was given, and what ``init`` does in a world of one."""

import os
import sys

import mlx.core as mx

print(f"given {sys.argv[1:]}", flush=True)
print(f"home {os.environ.get('HOME')}", flush=True)
assert "MLX_HOSTFILE" not in os.environ
for options in ({}, {"backend": "ring"}, {"strict": True}, {"strict": True, "backend": "ring"}):
    try:
        print(f"init {options}: {mx.distributed.init(**options).size()}", flush=True)
    except RuntimeError as error:
        print(f"init {options}: {error}", flush=True)
