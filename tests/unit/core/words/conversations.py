"""Every conversation that there is, found by looking: a new one is tested like the others."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

from elasticd.core import words
from elasticd.core.words.codec import Words


def _found() -> dict[str, Words[Any]]:
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.walk_packages(words.__path__, f"{words.__name__}.")
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, Words)
    }


CONVERSATIONS = _found()
"""By the name of the object that encodes and decodes them."""
WORDS = [
    pytest.param(conversation, kind, id=f"{name} {kind.__name__}")
    for name, conversation in CONVERSATIONS.items()
    for kind in conversation.kinds
]
