"""What a job.toml comes to, for nodes to be asked whether they have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from elasticd import archive
from elasticd.archive import Archive
from elasticd.client.client import Client
from elasticd.core.words.requests.looking import ReadEvents, ShowStatus
from elasticd.imports import imported
from elasticd.preflight.needs import JobNeeds, NamedPath
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import HUB, RecipeSettings
from elasticd.types import JobId

MAX_PATHS = 50
_MOMENTS = {"adam": 2, "adamw": 2, "muon": 1, "sgd": 0, "adafactor": 0}
"""How many values of each weight an optimizer keeps at least."""
_PLACES = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONNOUSERSITE", "PATH", "HOME",
    "VIRTUAL_ENV", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME",
)  # fmt: skip
"""Variables that say where modules and models are. No other leaves job.toml for this."""
_MOST_EARLIER = 5


def needs_of(spec: JobSpec, packed: Archive, earlier: tuple[str, int] = ("", 0)) -> JobNeeds:
    """``earlier``: a job of the same name, and the size of its state."""
    job, recipe = spec.job, spec.recipe
    sources = archive.sources(packed.data)
    modules = imported(sources, job.entrypoint) if recipe is None else ("mlx_lm",)
    runs = () if spec.plain is not None else ("elasticd",)
    model = "" if recipe is None else recipe.config.model
    shipped = bool(model) and not model.startswith(HUB) and not _is_absolute(model)
    state_of, state_bytes = earlier
    return JobNeeds(
        name=job.name,
        least=spec.world.min,
        replicas=spec.checkpoint.replicas,
        keep=spec.checkpoint.keep,
        archive_bytes=len(packed.data),
        python=job.python,
        plain=spec.plain is not None,
        modules=tuple(sorted({*modules, *runs})),
        env={name: value for name, value in job.env.items() if name in _PLACES},
        passed=job.pass_env,
        paths=tuple(_paths(spec))[:MAX_PATHS],
        model=model,
        model_bytes=(
            archive.folder_bytes(packed.data, model, "model*.safetensors") if shipped else 0
        ),
        tuned="" if recipe is None else recipe.config.fine_tune_type,
        layers=0 if recipe is None else recipe.config.num_layers,
        moments=0 if recipe is None else _MOMENTS[recipe.config.optimizer],
        state_bytes=state_bytes,
        state_of=state_of,
        archive=packed.digest,
    )


def earlier_state(client: Client, name: str) -> tuple[str, int]:
    """The last job of that name which stored a state, and how large that was; "" and 0: none."""
    found = [job for job in client.request(ShowStatus())["jobs"] if job.get("name") == name]
    found.sort(key=lambda job: _number(str(job.get("id"))), reverse=True)
    for job in found[:_MOST_EARLIER]:
        size = 0
        for event in client.stream(ReadEvents(JobId(str(job["id"])))):
            if event.get("kind") == "checkpoint_committed":
                size = int(event.get("bytes") or 0)
        if size:
            return str(job["id"]), size
    return "", 0


def _number(job: str) -> int:
    """The later a job was submitted, the higher."""
    parts = job.rsplit("-", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else 0


def _paths(spec: JobSpec) -> Iterator[NamedPath]:
    """Those that it names outside of its folder, each once."""
    found = dict[str, NamedPath]()
    for each in (*_read(spec), *_given(spec)):
        found.setdefault(each.path, each)
    yield from found.values()


def _read(spec: JobSpec) -> Iterator[NamedPath]:
    named = [("train.init_from", spec.train.init_from)]
    if isinstance(spec.recipe, RecipeSettings):
        config = spec.recipe.config
        named += [
            (f"recipe.config.{key}", getattr(config, key) or "")
            for key in ("model", "data", "resume_adapter_file")
        ]
    yield from (NamedPath(key, path, read=True) for key, path in named if _is_absolute(path))


def _given(spec: JobSpec) -> Iterator[NamedPath]:
    """What its script is told; where a word is an option, what is behind its ``=``."""
    for word in spec.job.args:
        path = word if word.startswith("/") else word.partition("=")[2]
        if _is_absolute(path):
            yield NamedPath("job.args", path)
    for name, value in sorted(spec.job.env.items()):
        if name not in _PLACES and _is_absolute(value):
            yield NamedPath(f"job.env {name}", value, secret=True)


def _is_absolute(path: str) -> bool:
    """Of one thing alone: no list of paths, nor one with a variable in it."""
    return (
        PurePosixPath(path).is_absolute()
        and len(PurePosixPath(path).parts) > 1
        and not {*path} & {*":$\n"}
    )
