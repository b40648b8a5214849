"""Exits before it calls Run."""

import sys

print("giving up")
sys.exit(3)
