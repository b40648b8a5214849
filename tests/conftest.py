"""Helpers are imported from the checkout's root, however pytest is started."""

import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

# On a busy machine an example takes as long as it takes.
settings.register_profile("elasticd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# make check looks at each once more, briefly; make test and make deep look at length.
settings.register_profile("quick", settings.get_profile("elasticd"), max_examples=15)
settings.load_profile("elasticd")

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

# A shell ignores SIGINT for what it starts in the background, and programs that tests start and
# interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
