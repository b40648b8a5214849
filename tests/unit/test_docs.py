"""What the documents name is there, and what the README shows works."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeGuard, get_args

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import elasticd
from elasticd import archive
from elasticd.cli import clusterhome, keeper
from elasticd.cli.app import app
from elasticd.cli.checkpoints import STORED
from elasticd.cli.monitors.picture import MONITORED_NODES, MONITORED_RANKS
from elasticd.cli.output import JOBS, NODES, RANKS
from elasticd.cli.performance import PERFORMANCE
from elasticd.cli.service import service
from elasticd.core.leading import patience
from elasticd.core.words import limits
from elasticd.ipc import frames
from elasticd.launchd.service import LaunchdService
from elasticd.settings import job, plain, rules, toml
from elasticd.settings.config import NodeConfig
from elasticd.settings.keep import KeepRules
from elasticd.settings.localhomes import MAX_LOCAL_NODES
from elasticd.settings.notify import NotifyRules
from elasticd.settings.rules import Wrong
from elasticd.shell.chaos import inject
from elasticd.shell.children import ownvariables
from elasticd.shell.control import jobsfolder, server, submissions
from elasticd.shell.storage import eventform, homefolders, keptevents
from elasticd.supervision import logs
from elasticd.supervision.service import STARTED
from elasticd.trust import tokens
from elasticd.types import FaultKind, Sign
from tests import commandpages

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = sorted(ROOT.glob("docs/*.md"))
JOB_TABLES = dataclasses.fields(job.JobSpec)
PAGES = [README, ROOT / "CHANGELOG.md", *DOCS]


def keys(path: Path) -> set[str]:
    """The first cells of the tables' rows, where they are code."""
    cells = re.findall(r"^\| (`[^|]*`) \|", path.read_text(), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def anchors(path: Path) -> set[str]:
    """What may stand behind ``#`` in a link to the page, as GitHub makes it of the headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@functools.cache
def all_tests() -> dict[str, list[set[str]]]:
    """By name, of each test that is called so its marks, not those of some of its cases alone, and
    its folder."""
    found = defaultdict(list)
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = path.relative_to(ROOT / "tests").parts[0]
        body = ast.parse(path.read_text()).body
        of_all = [each.value for each in body if is_mark(each)]
        for test in body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                own = [ast.unparse(each) for each in (*of_all, *test.decorator_list)]
                whole = " ".join(each for each in own if "mark.parametrize(" not in each)
                found[test.name].append({folder, *re.findall(r"\bmark\.(\w+)", whole)})
    return dict(found)


def is_mark(line: ast.stmt) -> TypeGuard[ast.Assign]:
    return isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "pytestmark"


def named_tests(page: Path) -> list[tuple[str, set[str]]]:
    """The tests that a page names, each with what it says of it in brackets."""
    found = re.findall(r"`(test_\w+)`(?: \(([a-z, ]+)\))?", page.read_text())
    return [(name, set(said.split(", ")) & MARKS) for name, said in found]


WITHOUT_PROCESSES = {"gallery": "unit", "property": "property", "sim": "simulator", "unit": "unit"}
"""By folder of a test that starts no process, what stands behind its name."""
FOLDERS = WITHOUT_PROCESSES.keys()
MARKS = {"deep", *WITHOUT_PROCESSES.values()}


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_tests_that_are_named(page: Path) -> None:
    named = {name for name, _ in named_tests(page)}
    assert named <= all_tests().keys(), sorted(named - all_tests().keys())


@pytest.mark.parametrize("page", ["what-holds", "faults"])
def test_of_a_test_that_is_named_is_told_who_runs_it_and_with_what(page: str) -> None:
    for name, said in named_tests(ROOT / f"docs/{page}.md"):
        cases = all_tests()[name]
        told = {"deep"} if all(marks & {"deep", "slow"} for marks in cases) else set()
        if not any("process" in marks for marks in cases):
            told |= {WITHOUT_PROCESSES[folder] for each in cases for folder in each & FOLDERS}
        assert said == told, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_faults_and_signs_that_are_named(page: Path) -> None:
    for what, kinds in (("fault", FaultKind), ("sign", Sign)):
        assert {*re.findall(rf"\b{what} `(\w+)`", page.read_text())} <= {*get_args(kinds)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_scripts_that_are_named(page: Path) -> None:
    for script in re.findall(r"python (tests/[\w/]+\.py)", page.read_text()):
        assert (ROOT / script).is_file(), script


def commands(page: Path) -> list[list[str]]:
    """The words behind ``elasticctl`` wherever a page shows a command."""
    text = page.read_text()
    blocks = re.findall(r"^ *```\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", text)
    calls = (re.match(r"(?:sudo )?(?:\S+/)?elasticctl ([^#…|]+)", line.strip()) for line in lines)
    return [call[1].split() for call in calls if call]


def shown_of(page: Path, command: str) -> list[str]:
    """The lines of the block behind the one that has the command alone."""
    text = page.read_text().partition(f"```\n{command}\n```\n")[2]
    return text.partition("```\n")[2].partition("```")[0].splitlines()


def test_what_an_install_of_a_service_prints_is_shown_as_it_is(tmp_path: Path) -> None:
    page, install = ROOT / "docs/macs.md", "elasticctl service install"
    found = service(tmp_path, None, "darwin")
    assert isinstance(found, LaunchdService)
    said = [line for line in found.install(dry_run=True).splitlines() if line.startswith("# would")]
    assert [line for line in shown_of(page, f"{install} --dry-run") if line != "…"] == said
    (done,) = shown_of(page, f"sudo .venv/bin/{install}")
    assert done == STARTED.format(found.path, done.partition("Its home is ")[2])


def test_the_cluster_of_a_first_day_is_one() -> None:
    text = (ROOT / "docs/macs.md").read_text()
    (token,) = re.findall(rf"^{tokens.PREFIX}\S+$", text, re.MULTILINE)
    assert set(re.findall(r"cluster ([0-9a-f]{12})", text)) == {tokens.read(token).pin[:12]}
    own, fresh = "10.0.0.2", NodeConfig()
    where = clusterhome.found_listen(own, fresh, written=False, running=False, free=lambda _, n: n)
    at = clusterhome.reached_at(where, own, fresh)
    assert f"it listens on {where} (elasticd.toml); others reach it at {at}\n" in text


@pytest.mark.parametrize("page", [README, *DOCS], ids=lambda page: page.stem)
def test_commands_that_are_shown_are_there(page: Path) -> None:
    for words in commands(page):
        command: Any = get_command(app)
        rest = list(words)
        while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
            context = command.context_class(command)
            if rest[0] == "COMMAND":
                break
            assert rest[0] in command.list_commands(context), words
            _, command, rest = command.resolve_command(context, rest)
        known = {name for each in command.params for name in each.opts} | {"--help", "-h"}
        shown = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)}
        assert shown <= known, words


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_a_page_says_first_whom_it_is_for(page: Path) -> None:
    title, empty, first = page.read_text().splitlines()[:3]
    assert title.startswith("# ") and not empty and first.startswith("For whoever "), first


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) < 200


def settings_of_a_job() -> dict[str, dict[str, None]]:
    """By table the keys that job.toml may have."""
    return {
        table.name: {
            item.name.rstrip("_"): None
            for item in dataclasses.fields(getattr(job, f"{table.name.title()}Settings"))
        }
        for table in JOB_TABLES
    }


def paths(tables: Mapping[str, Iterable[str]]) -> set[str]:
    return {f"{table}.{key}" for table, names in tables.items() for key in names}


def test_every_setting_of_a_job_is_told() -> None:
    there = settings_of_a_job()
    told = keys(ROOT / "docs/writing-jobs.md")
    assert {key for key in told if key.partition(".")[0] in there} == paths(there)


def test_what_a_plain_job_takes_is_told() -> None:
    text = (ROOT / "docs/plain.md").read_text()
    taken, refused = re.findall(r"`\[job\]`, (.*) mean what .* elsewhere\. (.*) are refused", text)[
        0
    ]
    there = settings_of_a_job()
    kept = plain.written(there)
    assert set(re.findall(r"`\[(\w+)\]`", refused)) == there.keys() - kept.keys()
    shared = {table: names for table, names in kept.items() if table not in ("job", "plain")}
    assert set(re.findall(r"`(\w+\.\w+)`", taken)) == paths(shared)


def test_what_a_recipe_has_if_nobody_says_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'job.name = "a"\n[recipe]\nkind = "mlx-lm"\nconfig = {model = "/m", data = "/d"}'
    )
    settings = job.load(file).to_dict()
    text = (ROOT / "docs/writing-jobs.md").read_text()
    told = re.findall(r"^\| `(\w+)\.(\w+)` \| .*`\[recipe\]`: then `(\d+)` \|", text, re.MULTILINE)
    assert {f"{table}.{key}" for table, key, _ in told} == {
        "batch.global",
        "batch.micro",
        "train.steps",
    }
    for table, key, value in told:
        assert settings[table][key] == int(value)


def test_every_setting_of_a_node_is_told() -> None:
    told = keys(ROOT / "docs/operating.md")
    assert {item.name for item in dataclasses.fields(NodeConfig)} <= told
    assert {item.name for item in dataclasses.fields(KeepRules)} <= told
    assert {item.name for item in dataclasses.fields(NotifyRules)} <= told


def test_every_command_is_on_its_page_as_help_says_it() -> None:
    assert commandpages.PAGE.read_text("utf-8") == commandpages.page(), "run: make docs"


def api_names() -> set[str]:
    text = (ROOT / "docs/python-api.md").read_text()
    return set(re.findall(r"`elasticd\.([\w.]+)", text))


def test_every_name_that_scripts_import_is_told() -> None:
    names = api_names()
    assert {name.partition(".")[0] for name in names} == set(elasticd.__all__)
    for name in names:
        thing: Any = elasticd
        for part in name.split("."):
            thing = getattr(thing, part)
    of_data = {name.removeprefix("data.") for name in names if name.startswith("data.")}
    assert {name.partition(".")[0] for name in of_data} == set(elasticd.data.__all__)


def members(cls: type) -> set[str]:
    """What a class of ours has for scripts, beside what it is made of."""
    own = {
        name
        for each in cls.__mro__
        if each.__module__.startswith("elasticd")
        for name in vars(each)
    }
    made_of = set(inspect.signature(cls).parameters) if is_shown(cls) else set()
    return {name for name in own if not name.startswith("_")} - made_of


def is_shown(cls: type) -> bool:
    """Whether the page shows how one is made."""
    return f".{cls.__name__}(" in (ROOT / "docs/python-api.md").read_text()


def classes() -> dict[str, type]:
    shown = {name: getattr(elasticd, name) for name in elasticd.__all__}
    shown |= {f"data.{name}": getattr(elasticd.data, name) for name in elasticd.data.__all__}
    return {name: thing for name, thing in shown.items() if isinstance(thing, type)}


@pytest.mark.parametrize("name", classes())
def test_every_member_of_what_scripts_import_is_told(name: str) -> None:
    told = {each.removeprefix(f"{name}.") for each in api_names()}
    assert members(classes()[name]) <= told, sorted(members(classes()[name]) - told)


@pytest.mark.process
@pytest.mark.parametrize("module", ["data", "plain"])
def test_a_module_is_loaded_when_it_is_first_used(module: str) -> None:
    code = (
        "import sys, elasticd\n"
        f"assert 'elasticd.{module}' not in sys.modules\n"
        f"print(elasticd.{module}.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"elasticd.{module}\n"


@pytest.mark.process
def test_the_job_in_the_readme_trains(tmp_path: Path) -> None:
    text = README.read_text()
    for kind, name in (("toml", "job.toml"), ("python", "train.py")):
        found = re.search(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert found is not None
        (tmp_path / name).write_text(found[1])
    done = subprocess.run(
        [sys.executable, str(tmp_path / "train.py")], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(losses) == 100 and losses[-1] < losses[0] / 10


def test_the_layers_of_the_architecture_are_those_that_are_checked() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    layers = [each for each in tools["importlinter"]["contracts"] if each["type"] == "layers"]
    for each in layers:
        (where,) = each["containers"]
        (cell,) = re.findall(rf"^\| `{where}` \| (.*) \|$", text, re.MULTILINE)
        told = [set(re.findall(r"`(\w+)`", layer)) for layer in cell.split(" > ")]
        assert told == [set(re.findall(r"\w+", layer)) for layer in each["layers"]], where


def test_what_the_platforms_name_in_a_file_is_there() -> None:
    text = (ROOT / "docs/platforms.md").read_text()
    named = re.findall(r"`([\w/]+\.py)` \(((?:`[\w.]+`(?:, )?)+)\)", text)
    assert named
    for path, names in named:
        source = (ROOT / path).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            assert all(re.search(rf"\b{part}\b", source) for part in name.split(".")), name


def test_paths_that_the_architecture_names_are_there() -> None:
    """A reader who wants to change something is sent to a file that exists."""
    text = (ROOT / "docs/architecture.md").read_text()
    where_to = text[text.index("## Where to change what") : text.index("## Vocabulary")]
    named = re.findall(r"`((?:elasticd|recovery|tests)/[\w/]+\.?\w*)`", where_to)
    assert len(named) >= 12
    for name in named:
        assert "NAME" in name or (ROOT / name).exists(), name


def test_what_lies_in_a_home_is_told() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    told = text[text.index("## What persists in HOME") : text.index("## Where things live")]
    files = [name for name in homefolders.FILES if "/" not in name]
    for name in (*files, *(f"{each}/" for each in homefolders.FOLDERS), ownvariables.FILE_NAME):
        assert re.search(rf"(^| ){re.escape(name)}", told, re.MULTILINE), name
    kept = f"{keeper.KEEPER_LOG_BYTES >> 20} MiB, and one older part"
    assert f"`{keeper.KEEPER_FILE}`" in told and f"`{keeper.KEEPER_LOG}`" in told and kept in told


SYSTEM = re.compile(r"sys\.platform|darwin|/proc/|osascript")
"""What code asks that does one thing on Linux and another on macOS."""
NO_DIFFERENCE = {
    "elasticd/cli/mac/choosing.py": "asks for root before the probes that the page tells of",
    "elasticd/cli/mac/system.py": "is probes of the page's second table",
    "elasticd/cli/machine.py": "judges by the checks of a preflight, which the page tells of",
    "elasticd/cli/service.py": "chooses between the two service managers, which are told of",
}
"""Modules that ask it and stand on no row of docs/platforms.md, each with the reason."""


def test_what_differs_between_systems_is_on_its_page() -> None:
    page = (ROOT / "docs/platforms.md").read_text()
    cells = re.findall(r"^\| [^|]* \| ([^|]*) \|", page, re.MULTILINE)
    told = {path for cell in cells for path in re.findall(r"`([\w/-]+/\w+\.\w+)`", cell)}
    assert all((ROOT / path).is_file() for path in told), sorted(told)
    folders = ("elasticd", "recovery", "checkpoints", "launchd", "systemd-like")
    asks = {
        str(path.resolve().relative_to(ROOT.resolve()))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if SYSTEM.search(path.read_text())
    }
    assert asks - told - NO_DIFFERENCE.keys() == set()
    assert NO_DIFFERENCE.keys() <= asks - told


def test_limits_are_told_as_they_are() -> None:
    text = (ROOT / "docs/operating.md").read_text()
    told = text[text.index("## Limits") : text.index("## Troubleshooting")]
    for number, what in (
        (archive.MAX_ARCHIVE_BYTES >> 20, "MiB"),
        (archive.MAX_FILES, "files"),
        (archive.DEEPEST, "folders in each other"),
        (f"{submissions.MAX_RECEIVING}, and {submissions.MAX_WAITING}", "that wait"),
        (submissions.MAX_SPEC_BYTES >> 10, "KiB |"),
        (limits.MAX_REASON_LETTERS, "letters"),
        (limits.PART_BYTES >> 20, "MiB. What is longer"),
        (int(inject.MAX_CUT_SECONDS), "s |"),
        (MAX_LOCAL_NODES, "with real daemons"),
        (frames.MAX_FRAME_BYTES >> 20, "MiB"),
        (keptevents.KEPT_EVENTS, ""),
        (eventform.MAX_EVENT_BYTES >> 10, "KiB"),
        (logs.ROTATE_AT_BYTES >> 20, "MiB, and three older parts"),
        (logs.ROTATE_AT_BYTES * (logs.KEEP_OLD + 1) >> 20, "MiB together"),
        (server.MAX_CLIENTS, "|"),
        (jobsfolder.MAX_JOBS, "|"),
        (rules.MAX_TEXT_LENGTH, "characters"),
    ):
        shown = f"{number:,}" if isinstance(number, int) and number >= 10_000 else str(number)
        assert f"{shown} {what}".rstrip() in told, (number, what)
    assert logs.KEEP_OLD == 3 and toml.MAX_FILE_BYTES == 1 << 20


def test_deadlines_are_told_as_they_are() -> None:
    text = (ROOT / "docs/faults.md").read_text()
    assert f"such a phase for {patience.FACTOR:.0f} times as long" in text
    assert f"at least {patience.FLOOR_SECONDS:.0f} s. The stack" in text
    assert f"at least {patience.LONGEST_FACTOR:.0f} times the longest such phase" in text
    assert f"It is {patience.GROWTH:.0f} times as long again while" in text
    assert f"`run.evaluate` {patience.EVALUATE_FACTOR:.0f} times that" in text
    page = (ROOT / "docs/writing-jobs.md").read_text()
    assert f"it may take {patience.EVALUATE_FACTOR:.0f} times `user_code_seconds`" in page
    assert f"`run.evaluate` has {patience.EVALUATE_FACTOR:.0f} times that" in page


def test_the_order_in_which_columns_go_is_told() -> None:
    text = (ROOT / "docs/operating.md").read_text()
    for table in (JOBS, NODES, RANKS, STORED, MONITORED_NODES, MONITORED_RANKS, PERFORMANCE):
        assert f"| {', '.join(table.drops)} |" in text


def bounds(check: Any) -> set[str]:
    """What a rule's refusals of the largest and the smallest say that a value may be."""
    found: set[str] = set()
    huge = (10**30, -(10**30), 1e300, "/" + "a" * 50_000, ["/a"] * 50_000)
    for value in (*huge, ["127.0.0.1:1"] * 50_000, {f"N{n}": "" for n in range(50_000)}):
        try:
            check(value)
        except Wrong as refused:
            found |= {*re.findall(r"at (?:most|least) (-?[\d.e+]+)", str(refused))}
    return found - {"0", "1", str(rules.MAX_TEXT_LENGTH)}


def told_bounds(page: str, heading: str) -> dict[str, str]:
    """By key, what the last table of a chapter says that its value may be."""
    text = (ROOT / "docs" / page).read_text()
    chapter = text[text.index(f"\n{heading}\n") :].split("\n## ", 2)[1]
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|$", chapter, re.MULTILINE)
    return {name: limit for cell, limit in rows for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize(
    ("page", "heading", "settings"),
    [
        (
            "writing-jobs.md",
            "## job.toml",
            {f"{table.name}.": f"{table.name.title()}Settings" for table in JOB_TABLES},
        ),
        ("operating.md", "## Limits", {"": NodeConfig, "keep.": KeepRules}),
    ],
    ids=["job", "node"],
)
def test_what_a_setting_may_be_at_most_is_told(
    page: str, heading: str, settings: dict[str, Any]
) -> None:
    told = told_bounds(page, heading)
    bounded = 0
    for prefix, named in settings.items():
        for item in dataclasses.fields(getattr(job, named) if isinstance(named, str) else named):
            key = f"{prefix}{item.name.rstrip('_')}"
            for bound in bounds(item.metadata["rule"]):
                bounded += 1
                assert bound in re.findall(r"-?[\d.e+]*\d", told.get(key, "")), (key, bound)
    assert bounded >= 10, "refusals say no more what a value may be"
