"""``[recipe]`` of a job.toml: a job without a script of its own.

``kind = "mlx-lm"`` fine-tunes a model folder with mlx-lm's own keys, in a table ``[recipe.config]``
or in the YAML file that ``config`` names. What these say of things that job.toml has a place for
(how many steps, samples in a step, the seed) is taken into that place.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NoReturn

from elasticd.settings import yaml_file
from elasticd.settings.hfdataset import HUB as HUB
from elasticd.settings.hfdataset import HubRows, hub_rows, path_or_name
from elasticd.settings.needed import NeededFile
from elasticd.settings.optimizers import optimizer_config
from elasticd.settings.othernames import PROJECT, refuse_other_names, report_to
from elasticd.settings.rules import (
    Rule,
    Wrong,
    boolean,
    choice,
    file_or_folder,
    integer,
    list_of,
    number,
    one_of,
    positive_number,
    rule,
    show,
    text,
)
from elasticd.settings.toml import Document
from elasticd.settings.toml_lines import KeyPath

TABLE = ("recipe",)
CONFIG = ("recipe", "config")
OPTIMIZER = (*CONFIG, "optimizer_config")
Kind = Literal["mlx-lm", "dpo"]
FineTuning = Literal["lora", "dora", "full"]
OptimizerName = Literal["adam", "adamw", "muon", "sgd", "adafactor"]
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
MODEL_CONFIG = "config.json"
_MODEL_FILES = (MODEL_CONFIG, "model*.safetensors*", "tokenizer*")
DATA_FILES = ("train", "valid", "test")
DAY_VARIABLE = "ELASTICD_DAY"
"""Tells a trainer which day chat templates write: that on which the job was submitted, in UTC."""
_MOST = 2**31 - 1
_SCHEDULES = {
    "cosine_decay": (2, ("learning rate", "number of steps", "last learning rate")),
    "exponential_decay": (2, ("learning rate", "factor")),
    "linear_schedule": (3, ("learning rate", "last learning rate", "number of steps")),
    "step_decay": (3, ("learning rate", "factor", "number of steps")),
}
"""mlx's schedules by name: how many arguments they take at least, and what each is."""


_named = path_or_name(_HUB_NAME)
"""The rule of a folder, or a name of the hub's."""


def _output(value: object) -> str:
    name = text()(value)
    assert isinstance(name, str)
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise Wrong(
            f"must be a folder below run.output_dir, not {show(name)}; fetch what it holds with"
            " `elasticctl outputs JOB --out DIR`"
        )
    return name


def _only(wanted: object, reason: str) -> Rule:
    """A key of mlx-lm's that has to be as it is there unless it is said."""

    def check(value: object) -> object:
        if value != wanted or type(value) is not type(wanted):
            raise Wrong(f"{show(value)} is not supported: {reason}")
        return value

    return check


def _nothing(reason: str) -> Rule:
    def check(value: object) -> object:
        raise Wrong(f"is not supported: {reason}")

    return check


@dataclass(frozen=True)
class LoraParameters:
    """What mlx-lm replaces as a whole; here each key that is missing has mlx-lm's value."""

    rank: int = field(default=8, metadata=rule(integer(1, 65_536)))
    scale: float = field(default=20.0, metadata=rule(number(-1e6, 1e6)))
    dropout: float = field(default=0.0, metadata=rule(number(0.0, 0.999)))
    keys: tuple[str, ...] | None = field(default=None, metadata=rule(list_of(text(), 10_000)))
    """Modules of a layer; none: all that can have an adapter."""


@dataclass(frozen=True)
class Schedule:
    name: str = field(metadata=rule(choice(*_SCHEDULES)))
    arguments: tuple[float, ...] = field(metadata=rule(list_of(number(-1e12, 1e12), 10)))
    warmup: int = field(default=0, metadata=rule(integer(0, _MOST)))
    warmup_init: float = field(default=0.0, metadata=rule(number(0.0, 1e6)))


@dataclass(frozen=True)
class MlxLm:
    """mlx-lm's keys, without those that job.toml has a place for (:data:`_MOVED`), and ours."""

    model: str = field(metadata=rule(_named))
    data: str = field(default="data", metadata=rule(_named))
    fine_tune_type: FineTuning = field(default="lora", metadata=rule(one_of(FineTuning)))
    num_layers: int = field(default=16, metadata=rule(integer(-1, 100_000)))
    """From the last one; 0 and -1: all of them."""
    optimizer: OptimizerName = field(default="adam", metadata=rule(one_of(OptimizerName)))
    optimizer_config: Mapping[str, Any] = field(
        default_factory=dict, hash=False, metadata=rule(optimizer_config)
    )
    learning_rate: float = field(default=1e-5, metadata=rule(positive_number(1e6)))
    max_seq_length: int = field(default=2048, metadata=rule(integer(2, 2**24)))
    mask_prompt: bool = field(default=False, metadata=rule(boolean))
    val_batches: int = field(default=25, metadata=rule(integer(-1, _MOST)))
    test_batches: int = field(default=500, metadata=rule(integer(-1, _MOST)))
    steps_per_report: int = field(default=10, metadata=rule(integer(1, _MOST)))
    steps_per_eval: int = field(default=200, metadata=rule(integer(1, _MOST)))
    save_every: int = field(default=100, metadata=rule(integer(1, _MOST)))
    adapter_path: str = field(default="", metadata=rule(_output))
    """A folder below run.output_dir; "": that itself."""
    resume_adapter_file: str | None = field(default=None, metadata=rule(file_or_folder()))
    grad_checkpoint: bool = field(default=False, metadata=rule(boolean))
    test: bool = field(default=False, metadata=rule(boolean))
    packing: bool = field(default=False, metadata=rule(boolean))
    """Ours: several short rows in one sequence."""
    clip_norm: float | None = field(default=None, metadata=rule(positive_number(1e9)))
    """Ours: limits the norm of a step's gradient."""
    compile: bool = field(default=False, metadata=rule(boolean))
    """Ours: the loss and its gradient as one compiled function, as mlx-lm has them."""
    prompt_feature: str = field(default="prompt", metadata=rule(text()))
    completion_feature: str = field(default="completion", metadata=rule(text()))
    chat_feature: str = field(default="messages", metadata=rule(text()))
    text_feature: str = field(default="text", metadata=rule(text()))
    train: bool = field(default=True, metadata=rule(_only(True, "this kind of job trains")))
    trust_remote_code: bool = field(
        default=False, metadata=rule(_only(False, "no code of a model's folder is run"))
    )
    clear_cache_threshold: int = field(
        default=0, metadata=rule(_only(0, "elasticd bounds MLX's cache where memory is short"))
    )
    hf_dataset: tuple[HubRows, ...] | None = field(default=None, metadata=rule(hub_rows))
    """In place of ``data``."""
    report_to: None = field(default=None, metadata=rule(report_to))
    project_name: None = field(
        default=None, metadata=rule(_nothing(f"the project is the value there: {PROJECT}"))
    )
    lora_parameters: LoraParameters = field(default_factory=LoraParameters)
    lr_schedule: Schedule | None = field(default=None)


@dataclass(frozen=True)
class Dpo(MlxLm):
    """Those of preferences: each row has a prompt, a chosen and a rejected answer."""

    beta: float = field(default=0.1, metadata=rule(positive_number(1e6)))
    """How far the model may go from what it was: the less, the further."""
    chosen_feature: str = field(default="chosen", metadata=rule(text()))
    rejected_feature: str = field(default="rejected", metadata=rule(text()))
    mask_prompt: bool = field(
        default=True, metadata=rule(_only(True, "of preferences only the answers are trained"))
    )
    packing: bool = field(
        default=False, metadata=rule(_only(False, "pairs of answers are not packed"))
    )
    hf_dataset: None = field(
        default=None, metadata=rule(_nothing("name a folder, or a name of the hub's, as data"))
    )


_KINDS: dict[str, type[MlxLm]] = {"mlx-lm": MlxLm, "dpo": Dpo}
_MOVED: dict[str, tuple[KeyPath, object]] = {
    "iters": (("train", "steps"), 1000),
    "batch_size": (("batch", "global"), 4),
    "seed": (("train", "seed"), 0),
}
"""Keys of mlx-lm's for which job.toml has a place, and their value if nobody says one."""
_NAMES = frozenset(item.name for cls in _KINDS.values() for item in dataclasses.fields(cls))
_ACCUMULATION = "grad_accumulation_steps"
_COUNTED = ("steps_per_report", "steps_per_eval", "save_every")
"""Numbers of mlx-lm's iterations, of which each makes a part of a step where it accumulates."""
_LATER = ("compile",)
_PARTS: dict[str, type[Any]] = {"lora_parameters": LoraParameters, "lr_schedule": Schedule}


@dataclass(frozen=True)
class RecipeSettings:
    kind: Kind = field(metadata=rule(one_of(Kind)))
    config: MlxLm = field(metadata=rule(lambda value: value))

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the keys that have been moved are not among them, and later ones only where
        somebody says them: daemons of the version before know none."""
        config = {
            name: value
            for name, value in _plain(dataclasses.asdict(self.config)).items()
            if value is not None and (value or name not in _LATER)
        }
        return {"kind": self.kind, "config": config}

    @property
    def inside(self) -> tuple[str, ...]:
        """Files and folders of the job's folder that it names."""
        config = self.config
        rows = [each.path for each in config.hf_dataset or ()] or [config.data]
        return _in_folder(config.model, *rows, config.resume_adapter_file)

    @property
    def needed(self) -> tuple[NeededFile, ...]:
        """Files of the job's folder that it can't do without."""
        config, rows = self.config, tuple(f"{each}.jsonl" for each in DATA_FILES)
        named = [
            ("model", config.model, _MODEL_FILES),
            *(("hf_dataset.path", each.path, ()) for each in config.hf_dataset or ()),
            *(() if config.hf_dataset else (("data", config.data, rows),)),
            ("resume_adapter_file", config.resume_adapter_file or "", ()),
        ]
        return tuple(
            NeededFile(f"recipe.config.{key}", name, parts)
            for key, name, parts in named
            if _in_folder(name)
        )


def _in_folder(*names: str | None) -> tuple[str, ...]:
    return tuple(
        name
        for name in names
        if name and not PurePosixPath(name).is_absolute() and not name.startswith(HUB)
    )


def without_config(path: Path, name: str) -> str:
    """What to say of a folder that is no model's; ``name``: what the user calls it."""
    if (path / "adapter_config.json").is_file():
        return (
            f"there is no {MODEL_CONFIG} in {name}: these are adapters. Say the folder of their"
            f" model as model, and resume_adapter_file = {name}/adapters.safetensors"
        )
    return f"there is no {MODEL_CONFIG} in {name}: fetch or copy the model's whole folder"


def folder_of_adapters(name: str) -> str:
    """What to say where a file of adapters is wanted, and ``name`` is a folder."""
    return f"{show(name)} is a folder: name the file in it, {name.rstrip('/')}/adapters.safetensors"


def is_config(path: Path) -> bool:
    """Whether it is a file of mlx-lm's, to be submitted without a job.toml."""
    return path.suffix in (".yaml", ".yml")


def job_of(path: Path) -> Document:
    """A job.toml that says no more than that this file of mlx-lm's is trained.

    Raises:
        ConfigError: it can't be read, or is no table of keys.
    """
    data, places = yaml_file.read(path)
    name = re.sub("[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:41] or "mlx-lm"
    found = {(*CONFIG, *below): place for below, place in places.items()}
    recipe = {"kind": "mlx-lm", "config": data}
    return Document(str(path), {"job": {"name": name}, "recipe": recipe}, found)


def read_config_file(document: Document, folder: Path) -> None:
    """Put the keys of the YAML file that ``recipe.config`` names in place of its name.

    Raises:
        ConfigError: it can't be read, or is no table of keys.
    """
    recipe = document.data.get("recipe")
    if not isinstance(recipe, dict) or not isinstance(recipe.get("config"), str):
        return
    try:
        name = file_or_folder()(recipe["config"])
    except Wrong as wrong:
        raise document.error(CONFIG, str(wrong)) from None
    if not (folder / name).is_file():
        raise document.error(CONFIG, f"there is no {show(name)}")
    recipe["config"], places = yaml_file.read(folder / name)
    document.places |= {(*CONFIG, *path): place for path, place in places.items()}


def build(document: Document) -> RecipeSettings | None:
    """What ``[recipe]`` says, if it is there; its counts are moved to [batch] and [train].

    Raises:
        ConfigError: a key is unknown or missing, a value wrong, or said twice and differently.
    """
    if "recipe" not in document.data:
        return None
    document.refuse_unknown(TABLE, ("kind", "config"))
    table = document.table(TABLE)
    if "kind" not in table:
        raise document.error((*TABLE, "kind"), "is missing")
    try:
        kind = str(one_of(Kind)(table["kind"]))
    except Wrong as wrong:
        raise document.error((*TABLE, "kind"), str(wrong)) from None
    if isinstance(table.get("config"), str):
        raise document.error(CONFIG, "must be a table here")
    data: dict[str, Any] = dict(document.table(CONFIG))
    keys = _KINDS[kind]
    names = [item.name for item in dataclasses.fields(keys)]
    refuse_other_names(document, CONFIG)
    document.refuse_unknown(CONFIG, (*names, *_MOVED, _ACCUMULATION))
    # What is null in YAML has mlx-lm's own value.
    data = {key: value for key, value in data.items() if value is not None}
    _move(document, data)
    parts = {name: data.pop(name) for name in _PARTS if name in data}
    config = dataclasses.replace(document, data={"recipe": {"config": data}}).build(keys, CONFIG)
    for name, value in parts.items():
        whole = dataclasses.replace(document, data={"recipe": {"config": {name: _said(value)}}})
        config = dataclasses.replace(config, **{name: whole.build(_PARTS[name], (*CONFIG, name))})
    _check(document, config)
    return RecipeSettings("dpo" if kind == "dpo" else "mlx-lm", config)


def refuse_loose(document: Document, tables: Sequence[str]) -> None:
    """Keys of the recipe's may not stand beside the job's ``tables``.

    Raises:
        ConfigError: one does; says where it belongs.
    """
    for key in document.data if "recipe" in document.data else ():
        if key not in tables and (key in _MOVED or key in _NAMES):
            path = _MOVED[key][0] if key in _MOVED else (*CONFIG, key)
            raise document.error((key,), f'unknown key; did you mean "{".".join(path)}"?')


def check_files(document: Document, folder: Path, recipe: RecipeSettings) -> RecipeSettings:
    """What it names in the job's folder must be there. What is a name of the hub's, and no folder
    there, is marked as that in what is returned.

    Raises:
        ConfigError: naming what is not.
    """
    config = recipe.config
    if _HUB_NAME.fullmatch(config.model) and not (folder / config.model).exists():
        config = dataclasses.replace(config, model=HUB + config.model)
    if config.hf_dataset:
        try:
            rows = tuple(each.marked(folder) for each in config.hf_dataset)
        except Wrong as wrong:
            raise document.error((*CONFIG, "hf_dataset", "path"), str(wrong)) from None
        config = dataclasses.replace(config, hf_dataset=rows)
    elif _HUB_NAME.fullmatch(config.data) and not (folder / config.data).exists():
        config = dataclasses.replace(config, data=HUB + config.data)
    model = _inside(folder, config.model)
    if model is not None and model.is_dir() and not (model / MODEL_CONFIG).is_file():
        raise document.error((*CONFIG, "model"), without_config(model, config.model))
    if model is not None and not model.is_dir():
        raise document.error(
            (*CONFIG, "model"),
            f"there is no model folder {show(config.model)} in the job's folder: give that, the"
            " absolute path of one that every node has, or a name of the hub's (OWNER/NAME)",
        )
    data = None if config.hf_dataset else _inside(folder, config.data)
    if data is not None and not (data / "train.jsonl").is_file():
        raise document.error(
            (*CONFIG, "data"),
            f"there is no {show(f'{config.data}/train.jsonl')} in the job's folder. Data are a"
            " folder of train.jsonl, valid.jsonl and test.jsonl, or a name of the hub's"
            " (OWNER/NAME)",
        )
    if config.test and data is not None and not (data / "test.jsonl").is_file():
        raise document.error((*CONFIG, "test"), f"there is no {show(f'{config.data}/test.jsonl')}")
    start = _inside(folder, config.resume_adapter_file) if config.resume_adapter_file else None
    if start is not None and not start.is_file():
        name = config.resume_adapter_file or ""
        why = folder_of_adapters(name) if start.is_dir() else f"there is no {show(name)}"
        raise document.error((*CONFIG, "resume_adapter_file"), why)
    return dataclasses.replace(recipe, config=config)


def _inside(folder: Path, name: str) -> Path | None:
    return folder / name if _in_folder(name) else None


def _said(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if item is not None}


def _move(document: Document, data: dict[str, Any]) -> None:
    """Take counts out of ``data`` and put them where job.toml has them."""
    most = integer(1, _MOST)
    rules = {"iters": most, "batch_size": most, "seed": integer(0, 2**63 - 1), _ACCUMULATION: most}
    said: dict[str, int] = {}
    for key, check in rules.items():
        if key in data:
            try:
                said[key] = int(str(check(data.pop(key))))
            except Wrong as wrong:
                raise document.error((*CONFIG, key), str(wrong)) from None
    parts = said.get(_ACCUMULATION, 1)
    for key, (path, usual) in _MOVED.items():
        value = said.get(key)
        if parts > 1 and key != "seed":
            value = int(str(usual)) if value is None else value
            value = value * parts if key == "batch_size" else value // parts
            if not value:
                _refuse_parts(document, key, said.get(key), usual, parts)
        _put(document, key, path, value, usual)
    if parts > 1:
        for key in _COUNTED:
            usual = next(f.default for f in dataclasses.fields(MlxLm) if f.name == key)
            count = data.get(key, usual)
            data[key] = -(-count // parts) if type(count) is int else count
    _put(document, "", ("batch", "micro"), None, 1)


def _refuse_parts(
    document: Document, key: str, said: int | None, usual: object, parts: int
) -> NoReturn:
    """There are more parts of a step than iterations."""
    if said is not None:
        message = f"must be at least {_ACCUMULATION} ({parts}), not {said}"
        raise document.error((*CONFIG, key), message)
    message = f"must be at most {key}, which is {usual} unless it is said, not {parts}"
    raise document.error((*CONFIG, _ACCUMULATION), message)


def _put(document: Document, key: str, path: KeyPath, value: int | None, usual: object) -> None:
    table = dict(document.table(path[:1]))
    there = table.get(path[1])
    assigned = value is not None and _assigned(document, (*CONFIG, key))
    if there is None or (assigned and not _assigned(document, path)):
        table[path[1]] = usual if value is None else value
        if value is not None and (written := document.places.get((*CONFIG, key))):
            document.places[path] = written
        document.data[path[0]] = table
    elif value is not None and there != value and (assigned or not _assigned(document, path)):
        raise document.error(
            (*CONFIG, key),
            f"comes to {'.'.join(path)} = {value}, and {'--set' if assigned else 'job.toml'}"
            f" says {show(there)}: say it in one place",
        )


def _assigned(document: Document, path: KeyPath) -> bool:
    """Whether ``--set`` says it, or the table that it is in."""
    written = (document.places.get(path[:length]) for length in range(len(path), 0, -1))
    place = next(filter(None, written), None)
    return place is not None and place.file.startswith("--set ")


def _check(document: Document, config: MlxLm) -> None:
    if config.test and config.hf_dataset and not any(e.test_split for e in config.hf_dataset):
        raise document.error((*CONFIG, "test"), "true needs a test_split in hf_dataset")
    if config.compile and config.grad_checkpoint:
        raise document.error(
            (*CONFIG, "compile"),
            "true and grad_checkpoint: true exclude each other: what is compiled can't draw the"
            " same random numbers again",
        )
    schedule = config.lr_schedule
    if schedule is not None:
        place = (*CONFIG, "lr_schedule", "arguments")
        least, names = _SCHEDULES[schedule.name]
        most = len(names)
        if not least <= len(schedule.arguments) <= most:
            wanted = str(least) if least == most else f"{least} or {most}"
            message = f"{schedule.name} takes {wanted} numbers, not {len(schedule.arguments)}"
            raise document.error(place, message)
        for name, value in zip(names, schedule.arguments, strict=False):
            low = 1 if name == "number of steps" else 0
            if value < low:
                message = f"the {name} of {schedule.name} must be at least {low}, not {value:g}"
                raise document.error(place, message)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value
