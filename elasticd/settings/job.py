"""job.toml: what a job is and how it wants to be run.

Attribute names are the file's keys (``global`` is a keyword, hence ``global_``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from elasticd.errors import ConfigError
from elasticd.pasting import pasted
from elasticd.settings import optimizers
from elasticd.settings import plain as plains
from elasticd.settings import recipe as recipes
from elasticd.settings.needed import NeededFile
from elasticd.settings.plain import PLAIN, PlainSettings
from elasticd.settings.recipe import RecipeSettings
from elasticd.settings.rules import (
    MAX_TEXT_LENGTH,
    Wrong,
    boolean,
    integer,
    list_of,
    meant,
    number,
    one_of,
    positive_number,
    rule,
    secret,
    show,
    table_of,
    text,
)
from elasticd.settings.toml import Document
from elasticd.settings.track import TRACK, TrackSettings
from elasticd.types import (
    Backend,
    DivergencePolicy,
    JobMode,
    NanPolicy,
    Reduction,
    SnapshotWish,
    SpareKind,
)

UNMEASURED_INTERVAL_STEPS = 10
"""Steps between checkpoints for ``every_steps = "auto"`` until their cost has been measured."""
MAX_GRAINS = 65_536
MAX_STEPS = 2**53
MAX_NODES = 1024

_RESERVED_VARIABLES = ("ELASTICD_CHILD", "MLX_HOSTFILE", "MLX_RANK", "PYTHONHASHSEED", "TMPDIR")
_SECRETS = (("job", "env"),)
"""Tables of which no error shows what is in them."""
NOTEBOOK = ".ipynb"
_SCRIPTS = (".py", NOTEBOOK)
_VALUE = f"a string of UTF-8, in quotes, of at most {MAX_TEXT_LENGTH} characters, none of them NUL"
Best = Literal["lowest", "highest"]
_count = integer(1, 2**31 - 1)


def _entrypoint(value: object) -> str:
    name = text()(value)
    assert isinstance(name, str)
    if not name:
        raise Wrong("must name a file")
    if PurePosixPath(name).is_absolute():
        raise Wrong(f"must be relative to the job's folder, not {show(name)}")
    if ".." in PurePosixPath(name).parts:
        raise Wrong(f"must be inside the job's folder, not {show(name)}")
    return name


def _variable(value: object) -> str:
    name = text("[^=]+", "the name of an environment variable")(value)
    if name in _RESERVED_VARIABLES:
        raise Wrong("is set by elasticd itself")
    return str(name)


def _environment(value: object) -> object:
    """Variables by name. What they hold may be a secret, so no error shows it."""
    if not isinstance(value, Mapping):
        raise Wrong('must be a table of names and texts, as in { NAME = "text" }')
    return table_of(_variable, secret(text(), _VALUE), 1000)(value)


def _hours(value: object) -> float:
    hours = number(0, 1e6)(value)
    assert isinstance(hours, float)
    return hours


def _every_steps(value: object) -> int | str:
    if value == "auto":
        return "auto"
    if isinstance(value, str):
        raise Wrong(f'must be a whole number or "auto", not {show(value)}{meant(value, ["auto"])}')
    steps = integer(1, MAX_STEPS)(value)
    assert isinstance(steps, int)
    return steps


@dataclass(frozen=True)
class JobSettings:
    name: str = field(
        metadata=rule(
            text(
                "[a-z0-9][a-z0-9-]{0,40}",
                "1 to 41 of a-z, 0-9 and -, beginning with a letter or digit",
            )
        )
    )
    entrypoint: str = field(default="", metadata=rule(_entrypoint))
    """The script; "" where there is a [recipe] instead."""
    mode: JobMode = field(default="elastic", metadata=rule(one_of(JobMode)))
    priority: int = field(default=0, metadata=rule(integer(-1000, 1000)))
    """Of the queue: higher first, then in the order of submission. Nobody is interrupted for it."""
    files: tuple[str, ...] = field(default=(), metadata=rule(list_of(text(), 1000)))
    """What is shipped beside the script, files and folders; none: the whole folder."""
    args: tuple[str, ...] = field(default=(), metadata=rule(list_of(text(), 1000)))
    python: str = field(default="", metadata=rule(text()))
    env: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=rule(_environment))
    pass_env: tuple[str, ...] = field(default=(), metadata=rule(list_of(_variable, 1000)))
    """Variables that the ranks have of the daemon's own environment. So a secret of a Mac is in no
    file that is sent to all of them."""


@dataclass(frozen=True)
class WorldSettings:
    min: int = field(default=1, metadata=rule(integer(1, MAX_NODES)))
    max: int = field(default=0, metadata=rule(integer(0, MAX_NODES)))
    backend: Backend = field(default="ring", metadata=rule(one_of(Backend, later=("jaccl", "mpi"))))
    reduction: Reduction = field(default="exact", metadata=rule(one_of(Reduction)))
    require_exact: bool = field(default=False, metadata=rule(boolean))
    """The job fails, with the reason, where its bits can't be promised."""


@dataclass(frozen=True)
class BatchSettings:
    global_: int = field(metadata=rule(_count))
    micro: int = field(metadata=rule(_count))


@dataclass(frozen=True)
class TrainSettings:
    steps: int = field(metadata=rule(integer(1, MAX_STEPS)))
    seed: int = field(default=0, metadata=rule(integer(0, 2**63 - 1)))
    init_from: str = field(default="", metadata=rule(text()))
    """Safetensors with the model's parameters at the start: a file, or a folder with an index."""


@dataclass(frozen=True)
class CheckpointSettings:
    every_steps: int | str = field(default=10, metadata=rule(_every_steps))
    replicas: int = field(default=2, metadata=rule(integer(1, MAX_NODES)))
    keep: int = field(default=3, metadata=rule(_count))
    keep_every_steps: int = field(default=0, metadata=rule(integer(0, MAX_STEPS)))
    """Besides, those of steps that are multiples of this; 0: none."""
    keep_hours: float = field(default=0.0, metadata=rule(_hours))
    """Besides, one of each so many hours; 0: none."""
    keep_best: str = field(default="", metadata=rule(text()))
    """Besides, the best one by this figure of ``run.log``, or by "loss"; "": none."""
    best: Best = field(default="lowest", metadata=rule(one_of(Best)))
    snapshot: SnapshotWish = field(default="auto", metadata=rule(one_of(SnapshotWish)))
    """reference: training goes on while a state is written; slices: an update waits for it, which
    takes no memory; auto: slices where memory is short."""

    @property
    def interval_steps(self) -> int:
        """Steps between two checkpoints; "auto" is a fixed number until costs are measured."""
        if isinstance(self.every_steps, int):
            return self.every_steps
        return UNMEASURED_INTERVAL_STEPS


@dataclass(frozen=True)
class RecoverySettings:
    spare: SpareKind = field(default="script", metadata=rule(one_of(SpareKind)))
    verify_every: int = field(default=50, metadata=rule(integer(0, MAX_STEPS)))
    recheck_every: int = field(default=0, metadata=rule(integer(0, MAX_STEPS)))
    on_nan: NanPolicy = field(default="stop", metadata=rule(one_of(NanPolicy)))
    on_divergence: DivergencePolicy = field(
        default="restore", metadata=rule(one_of(DivergencePolicy))
    )
    """restore: back to the newest checkpoint on which all members agreed; continue: on with the
    majority's state, into which the odd one's sums have gone."""
    user_code_seconds: float = field(default=600.0, metadata=rule(positive_number(1e9)))
    drop_slow: bool = field(default=False, metadata=rule(boolean))


_TABLES: dict[str, type[Any]] = {
    "job": JobSettings,
    "world": WorldSettings,
    "batch": BatchSettings,
    "train": TrainSettings,
    "checkpoint": CheckpointSettings,
    "recovery": RecoverySettings,
}
_LATER = ("pass_env", "entrypoint")
"""Keys that are said only where they say something: builds are there which refuse them."""
_RECIPE = "recipe"
_KEYS = tuple(
    f"{table}.{item.name.rstrip('_')}"
    for table, cls in {
        **_TABLES,
        _RECIPE: RecipeSettings,
        PLAIN: PlainSettings,
        TRACK: TrackSettings,
    }.items()
    for item in dataclasses.fields(cls)
)


@dataclass(frozen=True)
class JobSpec:
    """A validated job.toml."""

    job: JobSettings
    world: WorldSettings
    batch: BatchSettings
    train: TrainSettings
    checkpoint: CheckpointSettings
    recovery: RecoverySettings
    recipe: RecipeSettings | None = None
    """What runs in place of a script; None: ``job.entrypoint`` does."""
    plain: PlainSettings | None = None
    """Of a job whose script makes its own group; None: it is elastic."""
    track: TrackSettings | None = None
    """None: its figures go nowhere else."""

    @property
    def inside(self) -> tuple[str, ...]:
        """What is sent of the job's folder where not all of it is."""
        return (self.job.entrypoint,) if self.recipe is None else self.recipe.inside

    @property
    def needed(self) -> tuple[NeededFile, ...]:
        """Files of the job's folder that it can't do without."""
        script = NeededFile("job.entrypoint", self.job.entrypoint)
        named = (script,) if self.recipe is None else self.recipe.needed
        start = NeededFile("train.init_from", self.train.init_from, ("model*.safetensors*",))
        return (*named, start) if self.train.init_from else named

    @property
    def grains(self) -> int:
        """Grains in a global batch; the last may be smaller."""
        return -(-self.batch.global_ // self.batch.micro)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Plain tables, lists, strings and numbers under the file's names."""
        tables = {
            name: {
                item.name.rstrip("_"): _plain(getattr(getattr(self, name), item.name))
                for item in dataclasses.fields(cls)
                if item.name not in _LATER or getattr(getattr(self, name), item.name)
            }
            for name, cls in _TABLES.items()
        }
        if self.plain is not None:
            return {**tables, PLAIN: self.plain.to_dict()}
        if self.track is not None:
            tables[TRACK] = dataclasses.asdict(self.track)
        return tables if self.recipe is None else {**tables, _RECIPE: self.recipe.to_dict()}

    def read_in(self, folder: Path) -> JobSpec:
        """Whose files are found, wherever the process works. ``folder``: the job's."""
        if not self.train.init_from:
            return self
        start = str(folder / self.train.init_from)
        return replace(self, train=replace(self.train, init_from=start))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> JobSpec:
        """The inverse of :meth:`to_dict`.

        Raises:
            ConfigError: what :func:`load` raises it for, without file and line.
        """
        return _build(Document("", dict(data)))


def load(path: Path, overrides: Sequence[str] = ()) -> JobSpec:
    """Read a job.toml, or a file of mlx-lm's that is a job of its own, with ``table.key=value``
    assignments that win over it.

    Raises:
        ConfigError: the file or an assignment is wrong; says file, line and key, and for a near
            miss what was probably meant.
    """
    _refuse_script(path)
    read = recipes.job_of if recipes.is_config(path) else Document.read
    document = replace(read(path), secrets=_SECRETS)
    recipes.read_config_file(document, path.parent)
    for assignment in overrides:
        document.override(assignment)
    recipes.read_config_file(document, path.parent)  # an assignment may name another one
    if plains.is_plain(document):
        plains.check(document)
    spec = _build(document)
    _check_meant(document, spec)
    if spec.recipe is None:
        _check_entrypoint(document, path.parent, spec.job.entrypoint)
    else:
        optimizers.check(document, recipes.OPTIMIZER, spec.recipe.config.optimizer_config)
        found = recipes.check_files(document, path.parent, spec.recipe)
        spec = replace(spec, recipe=found)
    _check_files(document, path.parent, spec.job.files)
    start = spec.train.init_from
    if start and not Path(start).is_absolute() and not (path.parent / start).exists():
        raise document.error(("train", "init_from"), f"there is no {show(start)}")
    return spec


def _refuse_script(path: Path) -> None:
    """Raises ConfigError for what a job.toml names, in place of that."""
    if path.suffix not in _SCRIPTS or not path.is_file():
        return
    script, toml = path.with_suffix(".py"), path.with_name("job.toml")
    first = f"a notebook: {_as_script(path)}. Then" if path != script else "a script:"
    raise ConfigError(
        f"is {first} submit the job.toml that names it, as entrypoint = {show(script.name)} in"
        f" [job]: {pasted('elasticctl submit', toml)} (docs/writing-jobs.md shows a minimal one)",
        file=str(path),
    )


def _as_script(notebook: str | Path) -> str:
    return f"make a script of it ({pasted('jupyter nbconvert --to script', notebook)})"


def _check_files(document: Document, folder: Path, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        path, key = PurePosixPath(name), ("job", "files", f"[{place}]")
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise document.error(key, f"{show(name)} must be a path inside the job's folder")
        if not (folder / path).exists() and not (folder / path).is_symlink():
            raise document.error(key, f"there is no {show(name)}")


def _check_meant(document: Document, spec: JobSpec) -> None:
    """What somebody has written and would have no effect, or a wrong one. Jobs of earlier versions
    may say it."""
    if spec.checkpoint.best != "lowest" and not spec.checkpoint.keep_best:
        raise document.error(
            ("checkpoint", "best"), 'is of keep_best: name the figure there, as keep_best = "loss"'
        )
    if spec.recipe is not None and spec.job.args:
        raise document.error(
            ("job", "args"), "are for a script: what a [recipe] is to do stands in recipe.config"
        )
    if spec.recipe is not None and spec.recipe.kind == "dpo" and spec.train.init_from:
        raise document.error(
            ("train", "init_from"),
            'is not for kind = "dpo": what the model was is taken before it. Give adapters as'
            " recipe.config.resume_adapter_file, or a model's whole folder as recipe.config.model",
        )
    if spec.job.python.startswith("~"):
        raise document.error(
            ("job", "python"),
            f"begins with ~, which is another folder on each node, and isn't looked up: write the"
            f" absolute path of one that every node has, not {show(spec.job.python)}",
        )
    for key, names in (("pass_env", spec.job.pass_env), ("env", spec.job.env)):
        if strange := [name for name in names if name.split() != [name]]:
            raise document.error(
                ("job", key), f"{show(strange[0])} is no name of a variable: it has a blank"
            )


def _build(document: Document) -> JobSpec:
    tables = (*_TABLES, _RECIPE, PLAIN, TRACK)
    recipes.refuse_loose(document, tables)
    document.refuse_unknown((), tables, _KEYS)
    plain = None
    if plains.is_plain(document):
        plain = document.build(PlainSettings, (PLAIN,), _KEYS)
        plains.complete(document, plain)
    elif PLAIN in document.data:
        raise document.error((PLAIN,), 'is of a job of mode = "plain": say so in job.mode')
    recipe = recipes.build(document)
    built = {name: document.build(cls, (name,), _KEYS) for name, cls in _TABLES.items()}
    track = document.build(TrackSettings, (TRACK,), _KEYS) if TRACK in document.data else None
    spec = JobSpec(**built, recipe=recipe, plain=plain, track=track)
    if recipe is None and not spec.job.entrypoint:
        raise document.error(("job", "entrypoint"), "is missing")
    if recipe is not None and spec.job.entrypoint:
        raise document.error(
            ("job", "entrypoint"), "a job has a script or a [recipe], not both: remove one of them"
        )
    if spec.batch.micro > spec.batch.global_:
        raise document.error(
            ("batch", "micro"),
            f"must be at most batch.global ({spec.batch.global_}), not {spec.batch.micro}",
        )
    if spec.grains > MAX_GRAINS:
        raise document.error(
            ("batch", "micro"),
            f"cuts the global batch into {spec.grains} grains; at most {MAX_GRAINS} are possible",
        )
    if both := [name for name in spec.job.pass_env if name in spec.job.env]:
        raise document.error(
            ("job", "pass_env"), f"names {both[0]}, which job.env sets: it can be only one of them"
        )
    if spec.world.require_exact and spec.world.reduction != "exact":
        raise document.error(
            ("world", "reduction"),
            f'must be "exact" where require_exact is true, not {show(spec.world.reduction)}',
        )
    if 0 < spec.world.max < spec.world.min:
        raise document.error(
            ("world", "max"),
            f"must be 0 or at least world.min ({spec.world.min}), not {spec.world.max}",
        )
    return spec


def _check_entrypoint(document: Document, folder: Path, entrypoint: str) -> None:
    key = ("job", "entrypoint")
    try:
        script = (folder / entrypoint).resolve()
        exists, is_file = script.exists(), script.is_file()
    except (OSError, RuntimeError) as error:
        raise document.error(key, f"{show(entrypoint)} can't be read: {error}") from None
    if not script.is_relative_to(folder.resolve()):
        raise document.error(key, f"{show(entrypoint)} is a link that leaves the job's folder")
    if not exists:
        scripts = [entry.name for entry in sorted(folder.glob("[!.]*.py"))]
        raise document.error(key, f"there is no {show(entrypoint)}{meant(entrypoint, scripts)}")
    if not is_file:
        raise document.error(key, f"{show(entrypoint)} is not a file")
    if script.suffix == NOTEBOOK:
        cure, made = _as_script(entrypoint), Path(entrypoint).with_suffix(".py")
        message = f"{show(entrypoint)} is a notebook: {cure}, and name that, {show(str(made))}"
        raise document.error(key, message)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
