"""Prints what is no text, then raises."""

import sys

sys.stdout.buffer.write(bytes(range(256)) * 40 + b"\n")
sys.stdout.flush()
raise OSError("the disk \x00 is \ud800 strange")
