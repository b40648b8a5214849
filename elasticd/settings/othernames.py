"""What mlx-lm's older versions, or others, call the keys of a recipe, and what to say here."""

from __future__ import annotations

from collections.abc import Mapping

from elasticd.settings.rules import Wrong
from elasticd.settings.toml import Document
from elasticd.settings.toml_lines import KeyPath

PROJECT = '[track] wandb = "PROJECT" in job.toml, or --set track.wandb=PROJECT'
_CURES: Mapping[KeyPath, str] = {
    ("wandb",): f"say {PROJECT}",
    ("lora_layers",): 'did you mean "num_layers"?',
    ("adapter_file",): 'did you mean "adapter_path"?',
    ("config",): "leave it out: what that file says is said here, or recipe.config names it",
    ("epochs",): 'did you mean "iters"?',
    ("lora_parameters", "alpha"): 'did you mean "scale", which is alpha / rank?',
}


def refuse_other_names(document: Document, path: KeyPath) -> None:
    """Of the table at ``path``.

    Raises:
        ConfigError: a key has another name here.
    """
    table = document.table(path)
    for below, cure in _CURES.items():
        inner = table.get(below[0]) if below[1:] else table
        if isinstance(inner, Mapping) and below[-1] in inner:
            raise document.error((*path, *below), f"unknown key; {cure}")


def report_to(value: object) -> object:
    """mlx-lm's key for that."""
    if value == "wandb":
        raise Wrong(f"is not supported: say {PROJECT}")
    raise Wrong(
        "is not supported: elasticctl monitor and the logs show the figures, and [track] in"
        " job.toml has them told to tensorboard, wandb or trackio"
    )
