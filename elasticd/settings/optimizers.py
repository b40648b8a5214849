"""``recipe.config.optimizer_config``: what each of MLX's optimizers takes.

A table of our own, as a job is submitted where MLX needn't be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticd.settings.rules import (
    Rule,
    Wrong,
    boolean,
    choice,
    integer,
    list_of,
    number,
    positive_number,
    show,
    table_of,
    text,
)
from elasticd.settings.toml import Document
from elasticd.settings.toml_lines import KeyPath


def _share(value: object) -> object:
    found = float(str(number(0.0, 1.0)(value)))
    if found == 1.0:
        raise Wrong(f"must be below 1, not {show(value)}")
    return value


def _pair(check: Rule) -> Rule:
    def checked(value: object) -> object:
        if not isinstance(value, list | tuple) or len(value) != 2:
            count = f"{len(value)} of them" if isinstance(value, list | tuple) else show(value)
            raise Wrong(f"must be an array of two numbers, not {count}")
        return list_of(check, 2)(value)

    return checked


_DECAY = number(0.0, 1e6)
_ADAM: Mapping[str, Rule] = {
    "betas": _pair(_share),
    "eps": number(0.0, 1.0),
    "bias_correction": boolean,
}
OPTIMIZERS: Mapping[str, Mapping[str, Rule]] = {
    "adam": _ADAM,
    "adamw": {**_ADAM, "weight_decay": _DECAY},
    "muon": {
        "momentum": _share,
        "weight_decay": _DECAY,
        "nesterov": boolean,
        "ns_steps": integer(1, 100),
    },
    "sgd": {
        "momentum": _share,
        "weight_decay": _DECAY,
        "dampening": number(0.0, 1.0),
        "nesterov": boolean,
    },
    "adafactor": {
        "eps": _pair(number(0.0, 1.0)),
        "clip_threshold": positive_number(1e9),
        "decay_rate": number(-10.0, 0.0),
        "beta_1": _share,
        "weight_decay": _DECAY,
        "scale_parameter": boolean,
        "relative_step": boolean,
        "warmup_init": boolean,
    },
}
"""The arguments of each, as mlx.optimizers has them."""


def optimizer_config(value: object) -> object:
    """Tables of arguments by optimizer. Jobs are recorded whose values are out of range: of these
    :func:`check` refuses new ones only."""
    found = table_of(choice(*OPTIMIZERS), table_of(text(), _anything, 20), 10)(value)
    assert isinstance(found, dict)
    for name, table in found.items():
        for key, argument in table.items():
            try:
                choice(*OPTIMIZERS[name])(key)
            except Wrong as wrong:
                raise Wrong(f"unknown key: {wrong}", name, key) from None
            if not _was_accepted(argument):
                _check(name, key, argument)
    return found


def check(document: Document, path: KeyPath, config: Mapping[str, Mapping[str, Any]]) -> None:
    """Of a job that somebody submits.

    Raises:
        ConfigError: an optimizer takes no such value.
    """
    try:
        for name, table in config.items():
            for key, argument in table.items():
                _check(name, key, argument)
    except Wrong as wrong:
        raise document.error((*path, *wrong.below), str(wrong)) from None
    sgd = config.get("sgd", {})
    if sgd.get("nesterov") and (not sgd.get("momentum") or sgd.get("dampening")):
        raise document.error(
            (*path, "sgd", "nesterov"), "true needs a momentum above 0, and no dampening"
        )


def _check(name: str, key: str, argument: object) -> None:
    try:
        OPTIMIZERS[name][key](argument)
    except Wrong as wrong:
        raise Wrong(str(wrong), name, key, *wrong.below) from None


def _anything(value: object) -> object:
    return list(value) if isinstance(value, list | tuple) else value


def _was_accepted(value: object) -> bool:
    if isinstance(value, bool | int | float):
        return True
    return (
        isinstance(value, list) and len(value) <= 2 and all(type(v) in (int, float) for v in value)
    )
