"""What a setting may be: each rule returns the value to keep or raises :class:`Wrong`."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, get_args

Rule = Callable[[object], object]
MAX_TEXT_LENGTH = 4096
_HALVES = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes on a command line that are not UTF-8. No file or frame takes it."""
Value = str | int | bool | tuple[str, ...]
"""Of a key of elasticd.toml."""


class Wrong(ValueError):
    """A rule's refusal; ``below`` leads from the value to its wrong part."""

    def __init__(self, message: str, *below: str) -> None:
        super().__init__(message)
        self.below = below


def rule(check: Rule, about: str = "") -> dict[str, Any]:
    """Metadata of a field whose value ``check`` accepts; ``about``: what it is, in a sentence."""
    return {"rule": check, "about": about}


def integer(low: int, high: int) -> Rule:
    """A whole number from ``low`` to ``high``."""

    def check(value: object) -> int:
        if type(value) is not int:
            raise Wrong(f"must be a whole number, not {show(value)}")
        if not low <= value <= high:
            bound = f"at least {low}" if value < low else f"at most {high}"
            raise Wrong(f"must be {bound}, not {show(value)}")
        return value

    return check


def positive_number(high: float) -> Rule:
    """A finite number, above 0 and at most ``high``."""

    def check(value: object) -> float:
        if type(value) not in (int, float):
            raise Wrong(f"must be a number, not {show(value)}")
        assert isinstance(value, int | float)
        if (
            not (math.isfinite(value) if isinstance(value, float) else True)
            or not 0 < value <= high
        ):
            raise Wrong(f"must be more than 0 and at most {high:g}, not {show(value)}")
        return float(value)

    return check


def number(low: float, high: float) -> Rule:
    """A number from ``low`` to ``high``."""

    def check(value: object) -> float:
        if type(value) not in (int, float):
            raise Wrong(f"must be a number, not {show(value)}")
        assert isinstance(value, int | float)
        if not low <= value <= high:
            raise Wrong(f"must be from {low:g} to {high:g}, not {show(value)}")
        return float(value)

    return check


def boolean(value: object) -> bool:
    """true or false."""
    if type(value) is not bool:
        raise Wrong(f"must be true or false, not {show(value)}")
    return value


def text(pattern: str = "", hint: str = "") -> Rule:
    """A string; if given, one that ``pattern`` matches in full, described by ``hint``."""

    def check(value: object) -> str:
        if not isinstance(value, str):
            quoted = f'; write "{value}"' if type(value) in (int, float) else ""
            raise Wrong(f"must be a string, not {show(value)}{quoted}")
        if "\0" in value or len(value) > MAX_TEXT_LENGTH:
            raise Wrong(f"must have at most {MAX_TEXT_LENGTH} characters, none of them NUL")
        if _HALVES.search(value):
            raise Wrong("must be UTF-8")
        if pattern and not re.fullmatch(pattern, value):
            raise Wrong(f"must be {hint}, not {show(value)}")
        return value

    return check


def file_or_folder(what: str = "a path") -> Callable[[object], str]:
    """Its path, absolute or inside of the job's folder; ``what`` the value must name."""

    def check(value: object) -> str:
        name = str(text()(value))
        if not name:
            raise Wrong(f"must name {what}")
        if not PurePosixPath(name).is_absolute() and ".." in PurePosixPath(name).parts:
            raise Wrong(f"must be absolute or inside the job's folder, not {show(name)}")
        return name

    return check


def secret(check: Rule, hint: str) -> Rule:
    """As ``check``, but what is refused may be a secret: only ``hint`` is said, no value."""

    def hiding(value: object) -> object:
        try:
            return check(value)
        except Wrong as wrong:
            raise Wrong(f"must be {hint}", *wrong.below) from None

    return hiding


def choice(*names: str, later: Sequence[str] = ()) -> Rule:
    """One of ``names``; of those of ``later`` is said that they are not yet supported, and nobody
    is sent to them."""

    def check(value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        if isinstance(value, str) and value in later:
            raise Wrong(f"{show(value)} is not supported by this version; use {_either(names)}")
        near = meant(value, names) if isinstance(value, str) else ""
        raise Wrong(f"must be {_either(names)}, not {show(value)}{near}")

    return check


def one_of(names: Any, later: Sequence[str] = ()) -> Rule:
    """One of those that a Literal names, as :func:`choice`."""
    return choice(*get_args(names), later=later)


def list_of(check_item: Rule, most: int) -> Rule:
    """An array of at most ``most`` items that ``check_item`` accepts; kept as a tuple."""

    def check(value: object) -> tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise Wrong(f"must be an array, not {show(value)}")
        if len(value) > most:
            raise Wrong(f"must have at most {most} items, not {len(value)}")
        return tuple(_below(f"[{at}]", check_item, item) for at, item in enumerate(value))

    return check


def table_of(check_name: Rule, check_item: Rule, most: int) -> Rule:
    """A table of at most ``most`` keys with free names."""

    def check(value: object) -> dict[str, object]:
        if not isinstance(value, Mapping):
            raise Wrong(f"must be a table, not {show(value)}")
        if len(value) > most:
            raise Wrong(f"must have at most {most} keys, not {len(value)}")
        for name in value:
            _below(str(name), check_name, name)
        return {str(name): _below(str(name), check_item, item) for name, item in value.items()}

    return check


def meant(name: str, here: Iterable[str], elsewhere: Iterable[str] = ()) -> str:
    """``; did you mean …?`` if something known resembles ``name``, else nothing.

    ``elsewhere`` holds dotted names, of which the last part is compared.
    """
    near = difflib.get_close_matches(name.lower(), list(here), n=1, cutoff=0.6)
    if not near:
        last = {dotted.rpartition(".")[2]: dotted for dotted in elsewhere}
        near = [
            last[match] for match in difflib.get_close_matches(name, list(last), n=1, cutoff=0.8)
        ]
    return f'; did you mean "{near[0]}"?' if near else ""


def show(value: object) -> str:
    """A value as a user would have written it, on one line and short."""
    if isinstance(value, str):
        shown = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, bool):
        shown = "true" if value else "false"
    elif isinstance(value, Mapping):
        return "a table"
    elif isinstance(value, list | tuple):
        return "an array"
    elif isinstance(value, int) and value.bit_length() > 256:
        return "a huge number"
    else:
        shown = str(value)
    shown = one_line(shown)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def shown(value: Value) -> str:
    """A value of elasticd.toml, whole lists too, as :func:`show`."""
    return f"[{', '.join(map(show, value))}]" if isinstance(value, tuple) else show(value)


def one_line(text: str) -> str:
    """``text`` with everything that isn't printable escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def encodable(text: str) -> str:
    """``text`` as it can be written in any frame: half a character, as a file's name may have in
    Python, is escaped."""
    return text.encode(errors="backslashreplace").decode()


def _below(part: str, check: Rule, value: object) -> object:
    try:
        return check(value)
    except Wrong as wrong:
        raise Wrong(str(wrong), part, *wrong.below) from None


def _either(names: Sequence[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
