"""high.py, which comes to Run when there is a file ``begin`` beside the nodes' homes."""

import runpy
import time
from pathlib import Path

BEGIN = next(f for f in Path.cwd().parents if f.name.startswith("node-")).parent / "begin"
while not BEGIN.exists():
    time.sleep(0.05)
runpy.run_path("high.py")
