"""The gallery's catalogue: what each script says of itself, in its first lines.

The docstring's first line says what habit of real training the script stands for. A block of TOML
behind it, in the notation of inline script metadata, says what must happen, where that isn't just
"the same bits, alone and on three nodes, whatever is killed"::

    # /// gallery
    # expect = "refused"
    # words = ["returns a pair"]
    # todo = "issue 15 item 13: (loss, accuracy) is taken for (mean, weight)"
    # settings = { "train.steps" = 12 }
    # ///
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

SCRIPTS = Path(__file__).parent / "scripts"

Expect = Literal["same", "refused", "named", "left out", "fails"]
"""``same``: the same final bits in every way to run it. ``refused``: it never makes a step, and
``words`` are in the reason. ``named``: the same bits, or else the job goes on without who computes
something else, is called not exact, or fails, for a reason with ``words`` in it. ``left out``: so
is whoever joins later, and the job has the same bits. ``fails``: the script itself ends in an
error, and ``words`` are in the reason."""

SETTINGS: dict[str, Any] = {
    "batch.global": 16,
    "batch.micro": 4,
    "train.steps": 24,
    "train.seed": 11,
    "checkpoint.every_steps": 5,
    "recovery.verify_every": 10,
}

_BLOCK = re.compile(r"^# /// gallery$\n(?P<lines>(?:^#(?:| .*)$\n)+?)^# ///$", re.MULTILINE)


@dataclass(frozen=True)
class Card:
    """One script and what must happen to it."""

    name: str
    habit: str
    """The docstring's first line."""
    expect: Expect = "same"
    words: tuple[str, ...] = ()
    todo: str = ""
    """What must be cured first; until then it must not hold."""
    spared: tuple[str, ...] = ()
    """What it isn't broken by, for nobody can see what that does to it: where ``everything`` begins
    again from a checkpoint, all lack alike what a script has kept outside of its state."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Of its job.toml, beside :data:`SETTINGS`."""

    @property
    def source(self) -> Path:
        return SCRIPTS / f"{self.name}.py"

    @property
    def all_settings(self) -> dict[str, Any]:
        name = {"job.name": self.name.replace("_", "-"), "job.entrypoint": "train.py"}
        return {**name, **SETTINGS, **self.settings}

    @property
    def steps(self) -> int:
        return int(self.all_settings["train.steps"])

    def lay_out(self, folder: Path) -> Path:
        """Make the job's folder, with what lies in the folder of the script's name; its job.toml.

        The script is called train.py there, as most are.
        """
        beside = SCRIPTS / self.name
        if beside.is_dir():
            shutil.copytree(beside, folder, ignore=shutil.ignore_patterns("__pycache__"))
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.source, folder / "train.py")
        job = folder / "job.toml"
        job.write_text(written(self.all_settings))
        return job

    def command(self, job: Path) -> list[str | Path]:
        """What runs it by itself, with that interpreter; ``job``: its job.toml."""
        return [job.parent / "train.py", *self.settings.get("job.args", ())]


def as_toml(value: Any) -> str:
    """A plain value on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {as_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def written(settings: dict[str, Any]) -> str:
    """As a job.toml has them; they are named as with ``--set``."""
    tables: dict[str, list[str]] = {}
    for name, value in settings.items():
        table, key = name.split(".")
        tables.setdefault(table, []).append(f"{key} = {as_toml(value)}")
    return "\n".join("\n".join([f"[{table}]", *lines, ""]) for table, lines in tables.items())


def read(path: Path) -> Card:
    """The card of one script.

    Raises:
        ValueError: the script has no docstring, or its block says something unknown.
    """
    text = path.read_text()
    habit = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    if not habit:
        raise ValueError(f"{path}: no docstring")
    block = _BLOCK.search(text)
    said: dict[str, Any] = {}
    if block is not None:
        lines = block["lines"].splitlines()
        said = tomllib.loads("\n".join(line.removeprefix("#").removeprefix(" ") for line in lines))
    if unknown := said.keys() - {"expect", "words", "todo", "spared", "settings"}:
        raise ValueError(f"{path}: unknown keys {sorted(unknown)}")
    if said.get("expect", "same") not in get_args(Expect):
        raise ValueError(f"{path}: expect = {said['expect']!r}")
    words = tuple(said.pop("words", ()))
    spared = tuple(said.pop("spared", ()))
    return Card(path.stem, habit, words=words, spared=spared, **said)


def cards() -> dict[str, Card]:
    """Every script's card, by name, in order."""
    found = (read(path) for path in sorted(SCRIPTS.glob("*.py")))
    return {card.name: card for card in found}
