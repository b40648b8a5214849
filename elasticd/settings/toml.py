"""Settings read from TOML into frozen dataclasses, with errors that say file, line and key.

A settings class is a frozen dataclass whose fields carry a rule as metadata
(:func:`elasticd.settings.rules.rule`). The key of a field is its name, less a trailing underscore.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from elasticd.errors import ConfigError
from elasticd.settings.rules import Wrong, meant, one_line, show
from elasticd.settings.toml_lines import KeyPath, key_lines

T = TypeVar("T")
MAX_FILE_BYTES = 1 << 20
_PART = re.compile(r"'([^']*)'")
_KEY_PARTS = re.compile(r"\((?:'[^']*'(?:, |,)?)+\)")
"""As tomllib's errors show a key: ``('job', 'env')``."""


def read_text(path: Path, kind: str) -> str:
    """What a file of the user's says. ``kind``: what it should be, as ``TOML``.

    Raises:
        ConfigError: it is missing, unreadable, too big or not UTF-8.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("no such file", file=file) from None
    except IsADirectoryError:
        raise ConfigError(f"is a folder, not a {kind} file", file=file) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"can't be read: {reason}", file=file) from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"is larger than {MAX_FILE_BYTES} bytes", file=file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=file, line=line) from None


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a key was written."""

    file: str
    line: int | None = None


@dataclass
class Document:
    """A parsed file, with the place of every key in it."""

    file: str
    data: dict[str, Any]
    places: dict[KeyPath, KeyPlace] = field(default_factory=dict)
    secrets: tuple[KeyPath, ...] = ()
    """Keys of which no error shows a value that was assigned to them."""

    @classmethod
    def read(cls, path: Path) -> Document:
        """Read and parse a file.

        Raises:
            ConfigError: it is missing, unreadable, too big, not UTF-8 or not TOML.
        """
        return cls.parse(read_text(path, "TOML"), str(path))

    @classmethod
    def parse(cls, text: str, file: str) -> Document:
        """Parse TOML text; ``file`` is what errors call it.

        Raises:
            ConfigError: it is not TOML.
        """
        try:
            data = tomllib.loads(text)
            lines = key_lines(text)
        except RecursionError:
            raise ConfigError("is nested too deeply", file=file) from None
        except ValueError as error:
            message, line = _syntax_error(str(error), text)
            raise ConfigError(message, file=file, line=line) from None
        places = {path: KeyPlace(file, line) for path, line in lines.items()}
        return cls(file, data, {(): KeyPlace(file, 1), **places})

    def override(self, assignment: str) -> None:
        """Apply ``table.key=value``, the value in TOML or a bare word.

        Raises:
            ConfigError: it is no assignment, or leads through something that is no table.
        """
        shown = self._showable(assignment)
        file = f"--set {one_line(shown)}"
        path, value = _assignment(assignment, file, hidden=shown != assignment)
        table: Any = self.data
        for depth, name in enumerate(path[:-1], start=1):
            table = table.setdefault(name, {})
            self.places.setdefault(path[:depth], KeyPlace(file))
            if not isinstance(table, dict):
                key = key_name(path)
                raise ConfigError(f"{key_name(path[:depth])} is not a table", file=file, key=key)
        table[path[-1]] = value
        self.places = {at: place for at, place in self.places.items() if at[: len(path)] != path}
        self.places[path] = KeyPlace(file)

    def _showable(self, assignment: str) -> str:
        """Without what may be a secret."""
        key, equals, _ = assignment.partition("=")
        path = _dotted(key)
        for secret in self.secrets:
            depth = min(len(secret), len(path or secret))
            if equals and (path is None or path[:depth] == secret[:depth]):
                return f"{key}=…"
        return assignment

    def error(self, path: KeyPath, message: str) -> ConfigError:
        """The error to raise about ``path``, placed at the nearest key that is written."""
        for length in range(len(path), -1, -1):
            if place := self.places.get(path[:length]):
                break
        else:
            place = KeyPlace(self.file)
        return ConfigError(message, file=place.file, line=place.line, key=key_name(path))

    def build(self, cls: type[T], path: KeyPath = (), known: Iterable[str] = ()) -> T:
        """Make a settings object from the table at ``path``.

        ``known`` are the dotted names of keys in other tables, which an unknown key may have meant.

        Raises:
            ConfigError: a key is unknown or missing, or a value wrong.
        """
        table = self.table(path)
        fields = {item.name.rstrip("_"): item for item in dataclasses.fields(cls)}  # type: ignore[arg-type]
        self.refuse_unknown(path, fields, known)
        values: dict[str, object] = {}
        for key, item in fields.items():
            if key not in table:
                if _is_required(item):
                    raise self.error((*path, key), "is missing")
                continue
            try:
                values[item.name] = item.metadata["rule"](table[key])
            except Wrong as wrong:
                raise self.error((*path, key, *wrong.below), str(wrong)) from None
        return cls(**values)

    def table(self, path: KeyPath) -> Mapping[str, Any]:
        """The table at ``path``; empty if it isn't written."""
        table: Any = self.data
        for name in path:
            table = table.get(name, {})
        if not isinstance(table, Mapping):
            raise self.error(path, f"must be a table, not {show(table)}")
        return table

    def refuse_unknown(self, path: KeyPath, here: Iterable[str], known: Iterable[str] = ()) -> None:
        """Raise about the first key of the table at ``path`` that isn't one of ``here``."""
        allowed = list(here)
        for key in self.table(path):
            if key not in allowed:
                what = "key" if path or not isinstance(self.data.get(key), Mapping) else "table"
                raise self.error(
                    (*path, str(key)), f"unknown {what}{meant(str(key), allowed, known)}"
                )


def key_name(path: KeyPath) -> str:
    """``("job", "args", "[1]")`` as ``job.args[1]``."""
    name = ""
    for part in path:
        shown = part if re.fullmatch(r"[\w-]+|\[\d+\]", part) else show(part)
        name += shown if not name or shown.startswith("[") else f".{shown}"
    return name


def _is_required(item: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return item.default is missing and item.default_factory is missing


def _syntax_error(message: str, text: str) -> tuple[str, int | None]:
    message = _KEY_PARTS.sub(lambda key: ".".join(_PART.findall(key[0])), message)
    found = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if found:
        start = message[: found.start()]
        return f"column {found[2]}: {_lower(start)}", int(found[1])
    if message.endswith(" (at end of document)"):
        return _lower(message), text.rstrip("\n").count("\n") + 1
    return _lower(message), None


def _lower(message: str) -> str:
    return one_line(message[:1].lower() + message[1:])


def _assignment(assignment: str, file: str, hidden: bool) -> tuple[KeyPath, object]:
    key, equals, value = assignment.partition("=")
    if not equals or not key.strip():
        raise ConfigError("must be table.key=value", file=file)
    path = _dotted(key)
    if path is None:
        raise ConfigError(f"{show(key)} is not a key", file=file)
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        parsed = {}
    if list(parsed) == ["value"]:
        return path, parsed["value"]
    word = value.strip()
    if not word.isprintable() or word[:1] in ("", "[", "{", '"', "'"):
        what = "what is assigned" if hidden else show(value)
        raise ConfigError(f"{what} is not a TOML value", file=file, key=key_name(path))
    return path, word


def _dotted(key: str) -> KeyPath | None:
    try:
        parsed: Any = tomllib.loads(f"{key} = 0")
    except (ValueError, RecursionError):
        return None
    path: list[str] = []
    while isinstance(parsed, dict) and len(parsed) == 1:
        ((name, parsed),) = parsed.items()
        path.append(name)
    return tuple(path) if parsed == 0 else None
