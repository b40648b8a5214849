"""How what is asked stands on the wire."""

from __future__ import annotations

from typing import Any

from elasticd.core.words.codec import Wording

KEY = "do"
ASKED: Wording[Any] = Wording(key=KEY, terse=True)
"""Encodes any request."""
