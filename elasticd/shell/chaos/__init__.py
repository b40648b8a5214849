"""Real faults on purpose."""
