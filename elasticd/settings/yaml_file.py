"""YAML files as mlx-lm's users have them, with the line of every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from elasticd.errors import ConfigError
from elasticd.settings.rules import one_line
from elasticd.settings.toml import KeyPlace, read_text
from elasticd.settings.toml_lines import KeyPath

MOST_VALUES = 10_000
"""In a file: one whose aliases name each other would grow without end."""
DEEPEST = 100
"""So many tables and lists in each other."""
_FLOAT = re.compile(r"[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+")
"""What YAML 1.1 takes for a word, and people mean as a number: 1e-5."""


def read(path: Path) -> tuple[dict[str, Any], dict[KeyPath, KeyPlace]]:
    """The keys of a file, and where each of them is.

    Raises:
        ConfigError: it can't be read, is no YAML, or not a table of keys.
    """
    file = str(path)
    said = read_text(path, "YAML")
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            "reading YAML needs mlx-lm's packages: pip install 'elasticd[lm]'", file=file
        ) from None
    try:
        root = yaml.compose(said, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ConfigError(one_line(error.problem or "is no YAML"), file=file, line=line) from None
    except RecursionError:
        said = f"has more than {DEEPEST} tables and lists in each other"
        raise ConfigError(said, file=file) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"is no YAML: {one_line(str(error))}", file=file) from None
    reader = _Reader(yaml, file)
    value = {} if root is None else reader.value(root, ())
    if not isinstance(value, dict):
        raise ConfigError("must be a table of keys", file=file, line=1)
    return value, reader.places


class _Reader:
    def __init__(self, yaml: Any, file: str) -> None:
        self._yaml, self._file = yaml, file
        self._count = 0
        self._open: list[Any] = []
        self.places: dict[KeyPath, KeyPlace] = {(): KeyPlace(file, 1)}

    def value(self, node: Any, path: KeyPath) -> Any:
        """What a node says; the places of keys below it are noted."""
        yaml, self._count = self._yaml, self._count + 1
        if self._count > MOST_VALUES:
            raise self._error(node, f"holds more than {MOST_VALUES} values")
        if isinstance(node, yaml.CollectionNode):
            return self._inside(node, path)
        if node.tag.endswith(":str") and node.style is None and _FLOAT.fullmatch(node.value):
            return float(node.value)
        try:
            return yaml.SafeLoader("").construct_object(node)
        except (yaml.YAMLError, ValueError, ArithmeticError) as error:
            said = str(error).partition("\n")[0] or repr(node.value)
            raise self._error(node, one_line(said)) from None
        except (LookupError, AttributeError, TypeError):  # of its constructors, for !!bool x, say
            kind = node.tag.rpartition(":")[2]
            raise self._error(node, one_line(f"{node.value!r} is no {kind}")) from None

    def _inside(self, node: Any, path: KeyPath) -> Any:
        """The table or the list that a node is."""
        if any(node is each for each in self._open):
            raise self._error(node, "holds itself")
        if len(self._open) >= DEEPEST:
            raise self._error(node, f"lies in more than {DEEPEST} others")
        self._open.append(node)
        try:
            if isinstance(node, self._yaml.MappingNode):
                return self._table(node, path)
            items = []
            for number, item in enumerate(node.value):
                self._note(item, (*path, f"[{number}]"))
                items.append(self.value(item, (*path, f"[{number}]")))
            return items
        finally:
            self._open.pop()

    def _table(self, node: Any, path: KeyPath) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, self._yaml.ScalarNode):
                raise self._error(key_node, "a key must be a word")
            key = str(key_node.value)
            if key in table:
                raise self._error(key_node, f"{key} is there twice")
            self._note(key_node, (*path, key))
            table[key] = self.value(value_node, (*path, key))
        return table

    def _note(self, node: Any, path: KeyPath) -> None:
        self.places[path] = KeyPlace(self._file, node.start_mark.line + 1)

    def _error(self, node: Any, message: str) -> ConfigError:
        return ConfigError(message, file=self._file, line=node.start_mark.line + 1)
