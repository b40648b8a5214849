"""[recipe]: what is taken from mlx-lm's own files, and with which words it is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from elasticd import archive
from elasticd.errors import ConfigError
from elasticd.settings import job
from elasticd.settings.job import JobSpec
from elasticd.settings.recipe import Dpo

JOB = '[job]\nname = "a"\n[recipe]\nkind = "mlx-lm"\nconfig = "lora.yaml"\n'
LORA = """\
# as people have it
model: model
train: true
batch_size: 8
iters: 20
seed: 3
learning_rate: 1e-4
resume_adapter_file: null
lora_parameters:
  rank: 4
  scale: 16
"""
TABLE = JOB.replace(
    'config = "lora.yaml"', 'config = { model = "model", iters = 20, learning_rate = 1e-4 }'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("model/config.json", "data/train.jsonl", "train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    return tmp_path


def load(lora: str = LORA, text: str = JOB, *overrides: str) -> JobSpec:
    Path("lora.yaml").write_text(lora)
    Path("job.toml").write_text(text)
    return job.load(Path("job.toml"), overrides)


def refusal(lora: str = LORA, text: str = JOB, *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load(lora, text, *overrides)
    assert raised.value.exit_code == 2
    return str(raised.value)


def test_arguments_are_for_scripts(folder: Path) -> None:
    assert refusal(LORA, JOB, 'job.args=["--iters", "5"]') == (
        '--set job.args=["--iters", "5"]: job.args: are for a script: what a [recipe] is to do'
        " stands in recipe.config"
    )


def test_preferences_begin_with_no_other_weights_than_those_they_are_compared_with(
    folder: Path,
) -> None:
    """Those of init_from are loaded behind the reference."""
    text = TABLE.replace('"mlx-lm"', '"dpo"') + '[train]\ninit_from = "w.safetensors"\n'
    Path("w.safetensors").touch()
    assert refusal(text=text) == (
        'job.toml:7: train.init_from: is not for kind = "dpo": what the model was is taken before'
        " it. Give adapters as recipe.config.resume_adapter_file, or a model's whole folder as"
        " recipe.config.model"
    )
    assert load(text=text.replace('"dpo"', '"mlx-lm"')).train.init_from == "w.safetensors"


def test_a_file_of_mlx_lm_is_a_job(folder: Path) -> None:
    pytest.importorskip("yaml")
    spec = load()
    assert spec.recipe is not None
    config = spec.recipe.config
    assert (spec.batch.global_, spec.batch.micro, spec.train.steps, spec.train.seed) == (
        8,
        1,
        20,
        3,
    )
    assert config.learning_rate == 1e-4 and config.resume_adapter_file is None
    assert config.lora_parameters.rank == 4 and config.lora_parameters.dropout == 0.0


def test_a_record_of_it_reads_the_same(folder: Path) -> None:
    """A job's record has no file beside it. What --set has changed stays changed."""
    pytest.importorskip("yaml")
    spec = load(LORA, JOB, "train.steps=7", "recipe.config.lora_parameters.rank=2")
    assert spec.train.steps == 7
    assert JobSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_table_says_the_same_as_a_file(folder: Path) -> None:
    spec = load(LORA, TABLE)
    assert (spec.batch.global_, spec.train.steps) == (4, 20)
    assert spec.recipe is not None and spec.recipe.config.learning_rate == 1e-4


def test_a_name_of_the_hub_is_no_folder(folder: Path) -> None:
    """Unless there is such a folder."""
    pytest.importorskip("yaml")
    spec = load(LORA.replace("model: model", "model: org/name-4bit@main"))
    assert spec.recipe is not None
    assert spec.recipe.config.model == "hub:org/name-4bit@main"
    assert spec.recipe.inside == ("data",)
    assert [each.name for each in spec.recipe.needed] == ["data"]
    assert JobSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    Path("org/name").mkdir(parents=True)
    Path("org/name/config.json").write_text("{}")
    spec = load(LORA.replace("model: model", "model: org/name"))
    assert spec.recipe is not None and spec.recipe.config.model == "org/name"
    assert spec.recipe.inside == ("org/name", "data")


def test_data_may_be_a_name_of_the_hub_too(folder: Path) -> None:
    pytest.importorskip("yaml")
    spec = load(LORA + "data: org/rows@v1\n")
    assert spec.recipe is not None and spec.recipe.config.data == "hub:org/rows@v1"
    assert "data" not in spec.recipe.inside
    assert "data" not in [each.name for each in spec.recipe.needed]
    Path("org/rows").mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"there is no .org/rows/train\.jsonl. in the job's folder"
    ):
        load(LORA + "data: org/rows\n")


def test_preferences_have_keys_of_their_own(folder: Path) -> None:
    pytest.importorskip("yaml")
    spec = load(LORA + "beta: 0.3\nchosen_feature: good\n", JOB.replace("mlx-lm", "dpo"))
    assert spec.recipe is not None and isinstance(spec.recipe.config, Dpo)
    assert (spec.recipe.config.beta, spec.recipe.config.chosen_feature) == (0.3, "good")
    assert JobSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    dpo = JOB.replace("mlx-lm", "dpo")
    assert refusal(LORA + "packing: true\n", dpo).endswith("pairs of answers are not packed")
    assert "only the answers are trained" in refusal(LORA + "mask_prompt: false\n", dpo)
    assert refusal(LORA + "beta: 0.3\n").startswith("lora.yaml:12: recipe.config.beta: unknown key")


@pytest.mark.parametrize("name", ["lora", "qlora", "dpo"])
def test_the_examples_are_jobs(name: str) -> None:
    pytest.importorskip("yaml")
    folder = Path(__file__).parents[3] / "elasticd" / "examples" / name
    spec, packed = archive.of_job(folder / "job.toml")
    assert spec.recipe is not None and spec.recipe.config.model.startswith("hub:mlx-community/")
    assert {"data/train.jsonl", "data/valid.jsonl"} <= archive.files_of(packed.data)


def test_accumulated_parts_are_one_step(folder: Path) -> None:
    pytest.importorskip("yaml")
    spec = load(LORA + "grad_accumulation_steps: 4\nsteps_per_eval: 10\n")
    assert spec.recipe is not None
    assert (spec.batch.global_, spec.train.steps) == (32, 5)
    assert spec.recipe.config.steps_per_eval == 3
    assert JobSpec.from_dict(spec.to_dict()) == spec


def test_more_parts_than_iterations_are_refused(folder: Path) -> None:
    pytest.importorskip("yaml")
    more = "grad_accumulation_steps: 2000\n"
    assert refusal(LORA + more) == (
        "lora.yaml:5: recipe.config.iters: must be at least grad_accumulation_steps (2000), not 20"
    )
    assert refusal(LORA.replace("iters: 20\n", "") + more) == (
        "lora.yaml:11: recipe.config.grad_accumulation_steps: must be at most iters, which is 1000"
        " unless it is said, not 2000"
    )


def test_data_sets_with_their_splits_and_columns(folder: Path) -> None:
    """The job's folder needs no data then; a folder that is there is sent."""
    pytest.importorskip("yaml")
    (folder / "data" / "train.jsonl").unlink()
    (folder / "rows").mkdir()
    tables = (
        "hf_dataset:\n- {path: billsum, prompt_feature: text, train_split: 'train[:9]'}\n"
        "- {path: org/set@v1, config: {name: a, data_files: {train: [x.json]}}, test_split: null}\n"
        "- {path: rows, chat_feature: turns}\n"
    )
    spec = load(LORA + tables)
    assert spec.recipe is not None and spec.recipe.config.hf_dataset is not None
    one, two, three = spec.recipe.config.hf_dataset
    assert (one.path, two.path, three.path) == ("hub:billsum", "hub:org/set@v1", "rows")
    assert one.splits == {"train": "train[:9]", "valid": "train[-10%:]", "test": None}
    assert two.config == {"name": "a", "data_files": {"train": ["x.json"]}}
    assert spec.recipe.inside == ("model", "rows")
    assert [each.name for each in spec.recipe.needed] == ["model", "rows"]
    assert JobSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    (table,) = load(LORA + "hf_dataset: {path: billsum}\n").recipe.config.hf_dataset  # type: ignore[union-attr,misc]
    assert table.path == "hub:billsum"


def test_both_may_say_the_same(folder: Path) -> None:
    pytest.importorskip("yaml")
    assert load(LORA, JOB + "[batch]\nglobal = 8\nmicro = 2\n").batch.micro == 2


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("num_layer: 1", 'recipe.config.num_layer: unknown key; did you mean "num_layers"?'),
        ("num_layers: many", 'recipe.config.num_layers: must be a whole number, not "many"'),
        ("fine_tune_type: lorra", 'recipe.config.fine_tune_type: must be "lora", "dora" or "full"'),
        ("report_to: wandb",
         'recipe.config.report_to: is not supported: say [track] wandb = "PROJECT" in job.toml, or'
         " --set track.wandb=PROJECT"),
        ("report_to: swanlab", "recipe.config.report_to: is not supported: elasticctl monitor"),
        ("wandb: mine", 'recipe.config.wandb: unknown key; say [track] wandb = "PROJECT" in job'),
        ("lora_layers: 8", 'recipe.config.lora_layers: unknown key; did you mean "num_layers"?'),
        ("config: null", "recipe.config.config: unknown key; leave it out: what that file says"),
        ("epochs: 8", 'recipe.config.epochs: unknown key; did you mean "iters"?'),
        ("hf_dataset: []", "recipe.config.hf_dataset: must be a table, or a list of tables"),
        ("hf_dataset: {}", "recipe.config.hf_dataset.path: is missing"),
        ("hf_dataset: {path: ../a}", "recipe.config.hf_dataset.path: must be absolute or inside"),
        ("hf_dataset: {path: a/b/c}", "recipe.config.hf_dataset.path: there is no folder "),
        ("hf_dataset: {path: a, prompt_featur: q}",
         'recipe.config.hf_dataset.prompt_featur: unknown key; did you mean "prompt_feature"?'),
        ("hf_dataset: [{path: a}, {path: 3}]",
         "recipe.config.hf_dataset[1].path: must be a string"),
        ("hf_dataset: {path: a, config: {token: x}}",
         "recipe.config.hf_dataset.config.token: unknown key"),
        ("test: true\nhf_dataset: {path: a}", "recipe.config.test: true needs a test_split"),
        ("compile: true\ngrad_checkpoint: true", "recipe.config.compile: true and grad_checkpoint"),
        ("packing: 1", "recipe.config.packing: must be true or false, not 1"),
        ("clip_norm: 0", "recipe.config.clip_norm: must be"),
        ("clip_norms: 1", 'recipe.config.clip_norms: unknown key; did you mean "clip_norm"?'),
        ("adapter_path: /a", "recipe.config.adapter_path: must be a folder below run.output_dir"),
        ("data: other", 'recipe.config.data: there is no "other/train.jsonl" in the job\'s folder'),
        ("test: true", 'recipe.config.test: there is no "data/test.jsonl"'),
        ("lr_schedule: {name: cosine_decay, arguments: [1e-5]}",
         "recipe.config.lr_schedule.arguments: cosine_decay takes 2 or 3 numbers, not 1"),
        ("lr_schedule: {name: cosine_decay, arguments: [1e-3, 0]}",
         "recipe.config.lr_schedule.arguments: the number of steps of cosine_decay must be at least"
         " 1, not 0"),
        ("lr_schedule: {name: cosine_decay, arguments: [-1e-3, 10]}",
         "recipe.config.lr_schedule.arguments: the learning rate of cosine_decay must be at least"
         " 0, not -0.001"),
        ("lr_schedule: {name: cosine_decay, arguments: [1e-3, 10, -1]}",
         "recipe.config.lr_schedule.arguments: the last learning rate of cosine_decay must be at"),
        ("lr_schedule: {name: step_decay, arguments: [1e-3, 0.5, 0]}",
         "recipe.config.lr_schedule.arguments: the number of steps of step_decay must be at least"),
        ("lr_schedule: {name: linear_schedule, arguments: [0, 1e-3, 0.5]}",
         "recipe.config.lr_schedule.arguments: the number of steps of linear_schedule must be at"),
        ("lr_schedule: {name: exponential_decay, arguments: [1e-3, -0.5]}",
         "recipe.config.lr_schedule.arguments: the factor of exponential_decay must be at least 0"),
        ("lr_schedule: {name: cosine, arguments: [1e-5]}", "recipe.config.lr_schedule.name: must"),
        ("optimizer_config: {adam: {beta: 1}}", "recipe.config.optimizer_config.adam.beta: unkno"),
        ("train: false", "train is there twice"),
        ("lora_parameters: [", "expected the node content"),
    ],
)  # fmt: skip
def test_wrong_lines_are_named(folder: Path, line: str, error: str) -> None:
    pytest.importorskip("yaml")
    at = 13 if line.endswith("[") else 12
    assert refusal(f"{LORA}{line}\n").startswith(f"lora.yaml:{at}: {error}")


def test_adapters_to_begin_with_are_a_file(folder: Path) -> None:
    at = "lora.yaml:8: recipe.config.resume_adapter_file: "
    lora = LORA.replace("null", "a/b")
    assert refusal(lora) == f'{at}there is no "a/b"'
    (folder / "a" / "b").mkdir(parents=True)
    said = f'{at}"a/b" is a folder: name the file in it, a/b/adapters.safetensors'
    assert refusal(lora) == said


@pytest.mark.process
def test_each_key_of_mlx_lms_is_taken_or_refused_with_a_reason(folder: Path) -> None:
    """At the value that it has there if nobody says one."""
    pytest.importorskip("mlx_lm", reason="needs elasticd[lm]")
    # In another process: it changes how all YAML is read in its own.
    code = "import json, mlx_lm.lora as lora; print(json.dumps(lora.CONFIG_DEFAULTS))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    usual = json.loads(said.stdout.splitlines()[-1])
    assert len(usual) > 25
    refused = {}
    for key, value in usual.items():
        model = "" if key == "model" else "model: model\n"
        try:
            load(f"{model}{key}: {json.dumps(value)}\n")
        except ConfigError as error:
            refused[key] = str(error)
    assert refused.keys() == {"train", "config"}
    assert "train: false is not supported: this kind of job trains" in refused["train"]
    assert "recipe.config.config: unknown key; leave it out" in refused["config"]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ('adamw: {weight_decay: "0.1"}', 'adamw.weight_decay: must be a number, not "0.1"'),
        ("adamw: {weight_decay: [0.1]}", "adamw.weight_decay: must be a number, not an array"),
        ("adamw: {weight_decay: true}", "adamw.weight_decay: must be a number, not true"),
        ("adamw: {weight_decay: -5}", "adamw.weight_decay: must be from 0 to 1e+06, not -5"),
        ("adamw: {eps: tiny}", 'adamw.eps: must be a number, not "tiny"'),
        ("adam: {eps: -1e-8}", "adam.eps: must be from 0 to 1, not -1e-08"),
        ("adam: {betas: 0.9}", "adam.betas: must be an array of two numbers, not 0.9"),
        ("adam: {betas: [0.9]}", "adam.betas: must be an array of two numbers, not 1 of them"),
        ("adam: {betas: [0.9, 1.5]}", "adam.betas[1]: must be from 0 to 1, not 1.5"),
        ("adam: {betas: [1, 0.9]}", "adam.betas[0]: must be below 1, not 1"),
        ('adam: {betas: [0.9, "1"]}', 'adam.betas[1]: must be a number, not "1"'),
        ("adam: {bias_correction: 1}", "adam.bias_correction: must be true or false, not 1"),
        ("sgd: {nesterov: true}", "sgd.nesterov: true needs a momentum above 0, and no dampening"),
        ("sgd: {nesterov: true, momentum: 0.9, dampening: 0.1}", "sgd.nesterov: true needs"),
        ("sgd: {momentum: 1.0}", "sgd.momentum: must be below 1, not 1.0"),
        ("muon: {ns_steps: 2.5}", "muon.ns_steps: must be a whole number, not 2.5"),
        ("adafactor: {eps: 1e-3}", "adafactor.eps: must be an array of two numbers, not 0.001"),
        ("adafactor: {decay_rate: 0.8}", "adafactor.decay_rate: must be from -10 to 0, not 0.8"),
        ("adafactor: {clip_threshold: 0}", "adafactor.clip_threshold: must be more than 0"),
    ],
)
def test_wrong_arguments_of_optimizers_are_named(folder: Path, said: str, error: str) -> None:
    pytest.importorskip("yaml")
    line = f"optimizer_config:\n  {said}\n"
    assert refusal(LORA + line).startswith(f"lora.yaml:13: recipe.config.optimizer_config.{error}")


def test_a_record_of_an_older_job_is_still_read(folder: Path) -> None:
    """Its status can be asked for, whatever was accepted then."""
    pytest.importorskip("yaml")
    said = load(
        LORA + "optimizer_config: {adamw: {weight_decay: 5}, sgd: {momentum: 0.5}}"
    ).to_dict()
    said["recipe"]["config"]["optimizer_config"]["adamw"] = {"weight_decay": -5, "betas": [0.9]}
    assert JobSpec.from_dict(said).to_dict() == said


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (("rank: 4", "alpha: 4"), 
         "lora.yaml:10: recipe.config.lora_parameters.alpha: unknown key; did you mean \"scale\""),
        (("train: true", "train: false"), "lora.yaml:3: recipe.config.train: false is not"),
        (("model: model", "model: name"), "lora.yaml:2: recipe.config.model: there is no "),
        (("model: model", "model: a/b/c"), "lora.yaml:2: recipe.config.model: there is no "),
        (("model: model", "model: 'hub:name'"), "lora.yaml:2: recipe.config.model: must be hub:OW"),
        (("model: model", "data: data"), "lora.yaml:1: recipe.config.model: is missing"),
        (("iters: 20", "iters: 0"), "lora.yaml:5: recipe.config.iters: must be at least 1, not 0"),
    ],
)  # fmt: skip
def test_wrong_edits_are_named(folder: Path, edit: tuple[str, str], error: str) -> None:
    pytest.importorskip("yaml")
    assert refusal(LORA.replace(*edit)).startswith(error)


def test_a_folder_without_a_model_says_what_it_lacks(folder: Path) -> None:
    pytest.importorskip("yaml")
    (folder / "model" / "config.json").unlink()
    said = "lora.yaml:2: recipe.config.model: there is no config.json in model: "
    assert refusal() == f"{said}fetch or copy the model's whole folder"
    (folder / "model" / "adapter_config.json").write_text("{}")
    assert refusal().startswith(f"{said}these are adapters")
    assert "resume_adapter_file = model/adapters.safetensors" in refusal()


def test_what_is_said_twice_must_be_the_same(folder: Path) -> None:
    pytest.importorskip("yaml")
    assert refusal(LORA, JOB + "[train]\nsteps = 9\n") == (
        "lora.yaml:5: recipe.config.iters: comes to train.steps = 20, and job.toml says 9: say it"
        " in one place"
    )


def test_of_what_is_said_twice_the_assignment_wins(folder: Path) -> None:
    pytest.importorskip("yaml")
    both = JOB + "[train]\nsteps = 20\n"
    assert load(LORA, both, "train.steps=7").train.steps == 7
    assert load(LORA, both, "recipe.config.iters=8").train.steps == 8
    assert load(LORA, both, "train.steps=7", "recipe.config.iters=7").train.steps == 7
    for given in (("train.steps=7", "recipe.config.iters=8"), ("train={steps=7}",)):
        assert refusal(LORA, JOB, *given, "recipe.config.iters=8") == (
            "--set recipe.config.iters=8: recipe.config.iters: comes to train.steps = 8, and --set"
            " says 7: say it in one place"
        )


def test_each_kind_that_an_error_names_is_there(folder: Path) -> None:
    error = refusal(LORA, TABLE.replace("mlx-lm", "mlxlm"))
    offered = error.partition("must be ")[2].partition(", not")[0].split(" or ")
    assert len(offered) == 2
    for kind in offered:
        assert load(LORA, TABLE.replace('"mlx-lm"', kind)).recipe is not None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (JOB.replace('"a"', '"a"\nentrypoint = "train.py"'), "job.toml:3: job.entrypoint: a job"),
        (JOB.replace("mlx-lm", "mlxlm"), 'job.toml:4: recipe.kind: must be "mlx-lm" or "dpo", not'),
        (JOB.replace("lora.yaml", "x.yaml"), 'job.toml:5: recipe.config: there is no "x.yaml"'),
        (JOB.replace("lora.yaml", "../x"), "job.toml:5: recipe.config: must be absolute or inside"),
        (JOB.replace("config", "confg"), 'job.toml:5: recipe.confg: unknown key; did you mean'),
        ('[job]\nname = "a"\n[batch]\nglobal = 1\nmicro = 1\n[train]\nsteps = 1\n',
         "job.toml:1: job.entrypoint: is missing"),
    ],
)  # fmt: skip
def test_wrong_recipes_are_refused(folder: Path, text: str, error: str) -> None:
    pytest.importorskip("yaml")
    assert refusal(LORA, text).startswith(error)


def test_a_file_without_end_is_refused(folder: Path) -> None:
    pytest.importorskip("yaml")
    bomb = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    for one, other in zip("abcdef", "bcdefg", strict=True):
        bomb += f"{other}: &{other} [{', '.join([f'*{one}'] * 10)}]\n"
    assert "holds more than 10000 values" in refusal(bomb)


def test_only_what_it_names_is_sent_of_a_bare_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    load(LORA, TABLE)
    _, packed = archive.of_job(Path("job.toml"), bare=True)
    assert packed.files == 2
    (folder / ".elasticdignore").write_text("data\n")
    with pytest.raises(ConfigError, match="is not shipped"):
        archive.of_job(Path("job.toml"))


@pytest.mark.parametrize(
    ("ignored", "key"),
    [
        ("model/config.json", "model"),
        ("model/model-1.safetensors", "model"),
        ("model/tokenizer.json", "model"),
        ("data/valid.jsonl", "data"),
        ("a.safetensors", "resume_adapter_file"),
    ],
)
def test_no_file_that_a_recipe_reads_is_left_out(folder: Path, ignored: str, key: str) -> None:
    for name in ("model/model-1.safetensors", "model/tokenizer.json", "data/valid.jsonl"):
        (folder / name).touch()
    (folder / "a.safetensors").touch()
    load(text=TABLE.replace("{ model", '{ resume_adapter_file = "a.safetensors", model'))
    assert archive.of_job(Path("job.toml"))[1].files == 9
    (folder / ".elasticdignore").write_text(f"/{ignored}\n*.txt\n")
    with pytest.raises(ConfigError) as raised:
        archive.of_job(Path("job.toml"))
    said = f'recipe.config.{key}: "{ignored}" is not shipped; see .elasticdignore'
    assert str(raised.value) == f"job.toml: {said}"


def test_the_folder_of_rows_is_not_left_out(folder: Path) -> None:
    (folder / "rows").mkdir()
    (folder / "rows" / "a.parquet").touch()
    load(text=TABLE.replace("{ model", '{ hf_dataset = { path = "rows" }, model'))
    archive.of_job(Path("job.toml"))
    (folder / ".elasticdignore").write_text("rows\n")
    with pytest.raises(ConfigError, match=r'hf_dataset\.path: "rows" is not shipped'):
        archive.of_job(Path("job.toml"))


def test_a_file_of_mlx_lm_is_a_job_by_itself(folder: Path) -> None:
    pytest.importorskip("yaml")
    (folder / "notes.txt").write_text("mine")
    Path("My LoRA.yaml").write_text(LORA)
    spec, packed = archive.of_job(Path("My LoRA.yaml"), ["train.steps=5"])
    assert (spec.job.name, spec.train.steps, spec.batch.global_) == ("my-lora", 5, 8)
    assert packed.files == 2  # the model's and the data's: not what else lies there
    Path("lora.yml").write_text(LORA.replace("iters: 20", "itres: 20"))
    with pytest.raises(ConfigError, match=r'lora\.yml:5: recipe\.config\.itres: .*"iters"'):
        job.load(Path("lora.yml"))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("learning_rate=1e-4", "recipe.config.learning_rate"),
        ("lora_parameters.rank=4", "recipe.config.lora_parameters"),
        ("beta=0.2", "recipe.config.beta"),
        ("iters=5", "train.steps"),
        ("batch_size=5", "batch.global"),
        ("seed=5", "train.seed"),
    ],
)
def test_an_assignment_to_a_bare_file_is_told_the_whole_key(
    folder: Path, said: str, meant: str
) -> None:
    pytest.importorskip("yaml")
    Path("lora.yaml").write_text(LORA)
    with pytest.raises(ConfigError) as raised:
        job.load(Path("lora.yaml"), [said])
    key = said.partition("=")[0].partition(".")[0]
    text = f'{key}: unknown key; did you mean "{meant}"?'
    assert str(raised.value) == f"--set {said}: {text}"
