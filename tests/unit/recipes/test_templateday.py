"""Templates that write the day write the job's, whatever day a node's clock shows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elasticd.errors import UsageError
from elasticd.recipes import dpo, templateday
from elasticd.recipes.rows import read_rows
from elasticd.recipes.rowtokens import identity
from elasticd.settings.recipe import DAY_VARIABLE, Dpo, MlxLm
from elasticd.types import CACHE_VARIABLE
from tests import tinylm

PAIR = {"prompt": "which?", "chosen": "this", "rejected": "not that"}
ROW = {"prompt": "which day?", "completion": "that one"}
DAY, NEXT = "2025-03-31", "2025-04-01"


@pytest.fixture
def dated(tmp_path: Path, model_folder: Path) -> MlxLm:
    """A model whose template writes the day."""
    folder = tmp_path / "dated"
    shutil.copytree(model_folder, folder)
    tinylm.write_day(folder)
    return MlxLm(model=str(folder))


def tokenizer_of(config: MlxLm) -> Any:
    from mlx_lm.utils import load

    return load(config.model, lazy=True)[1]


def first_text(file: Path, config: MlxLm, key: str = "") -> str:
    tokenizer = tokenizer_of(config)
    read = dpo.read_pairs if isinstance(config, Dpo) else read_rows
    found: Any = read(file, tokenizer, config, key)  # type: ignore[arg-type]
    text: str = tokenizer.decode(found.samples[0][0][0].tolist())
    return text


@pytest.mark.parametrize(("kind", "row"), [(MlxLm, ROW), (Dpo, PAIR)])
def test_nodes_whose_clocks_show_other_days_have_the_same_tokens(
    tmp_path: Path,
    dated: MlxLm,
    travel: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    kind: type[MlxLm],
    row: dict[str, str],
) -> None:
    file, config = tinylm.write_rows(tmp_path / "train.jsonl", [row]), kind(model=dated.model)

    def everywhere() -> list[str]:
        found = []
        for place in tinylm.NEVER_ON_ONE_DAY:
            travel(place)
            found.append(first_text(file, config))
        return found

    one, other = everywhere()
    assert one != other, "as long as nobody says the day"
    monkeypatch.setenv(DAY_VARIABLE, DAY)
    one, other = everywhere()
    assert one == other and one.startswith("Today: 31 Mar 2025\n")


def test_tokens_of_another_day_are_kept_apart(
    tmp_path: Path, dated: MlxLm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    file = tinylm.write_rows(tmp_path / "train.jsonl", [ROW])
    keys = [identity(dated)]
    for day, written in ((DAY, "31 Mar"), (NEXT, "01 Apr"), (DAY, "31 Mar")):
        monkeypatch.setenv(DAY_VARIABLE, day)
        keys.append(identity(dated))
        assert first_text(file, dated, keys[-1]).startswith(f"Today: {written} 2025\n")
    assert len(set(keys)) == 3 and keys[1] == keys[3]
    assert len(list((tmp_path / "cache" / "tokens").iterdir())) == 2


def test_what_asks_for_no_day_is_kept_under_the_same_key_each_day(
    config: MlxLm, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [identity(config)]
    for day in (DAY, NEXT):
        monkeypatch.setenv(DAY_VARIABLE, day)
        keys.append(identity(config))
    assert len(set(keys)) == 1


def test_what_is_no_day_is_refused(dated: MlxLm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DAY_VARIABLE, "tomorrow")
    why = 'ELASTICD_DAY must be a day, as 2026-11-30, not "tomorrow"'
    with pytest.raises(UsageError, match=why):
        identity(dated)


def test_the_installed_transformers_takes_the_day_from_where_it_is_set(model_folder: Path) -> None:
    """Where it does no more: it reads the day elsewhere, and `templateday.written` has to set that
    in its place."""
    from transformers.utils import chat_template_utils

    code: Any = chat_template_utils
    clock, day = code.datetime, date.fromisoformat(DAY)
    assert templateday.is_written(day, code)
    with pytest.raises(ZeroDivisionError), templateday.written(day):
        assert code.datetime.now() == datetime(2025, 3, 31)
        raise ZeroDivisionError
    assert code.datetime is clock, "the machine's own afterwards, whatever happens"


@pytest.mark.parametrize(
    "code",
    [
        SimpleNamespace(render_jinja_template=lambda **_: ([DAY], [])),
        SimpleNamespace(datetime=datetime, render_jinja_template=lambda **_: (["today"], [])),
        SimpleNamespace(datetime=datetime),
    ],
)
def test_another_transformers_is_told_from_it(code: Any) -> None:
    assert not templateday.is_written(date.fromisoformat(DAY), code)


def test_templates_write_todays_where_transformers_takes_no_other(
    dated: MlxLm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said once in a process."""
    other = SimpleNamespace(datetime=datetime)
    monkeypatch.setattr(templateday, "_template_code", lambda: other)
    before = identity(dated)
    monkeypatch.setenv(DAY_VARIABLE, "2024-02-29")
    for _ in range(2):
        assert identity(dated) == before
    (line,) = capsys.readouterr().err.splitlines()
    assert "can't be given the job's, 2024-02-29: each node writes today's" in line
