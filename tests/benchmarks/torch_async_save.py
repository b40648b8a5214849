"""For an interpreter that has torch: ``dcp.async_save`` of a state of float32 tensors, on request.

Started by bench_checkpoint.py with a folder and the tensors' sizes. For each line on stdin one line
on stdout: the seconds for which the caller stood still, then those until all was written.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import Any


def main() -> None:
    """Serve until stdin ends."""
    torch: Any = importlib.import_module("torch")
    dcp: Any = importlib.import_module("torch.distributed.checkpoint")
    folder = Path(sys.argv[1])
    state = {str(i): torch.ones(int(size)) for i, size in enumerate(sys.argv[2:])}
    store = f"file://{folder / 'torch-store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    print("torch", torch.__version__, flush=True)
    for _ in sys.stdin:
        began = perf_counter()
        future = dcp.async_save(state, checkpoint_id=str(folder / "torch"))
        stalled = perf_counter() - began
        future.result()
        print(stalled, perf_counter() - began, flush=True)
        shutil.rmtree(folder / "torch")


if __name__ == "__main__":
    main()
