"""What a job needs of nodes, judged: each check fails for its reason, and says its cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from elasticd.preflight.jobs import JOB_CHECKS, judged_job, judged_world, least_bytes
from elasticd.preflight.needs import JobNeeds, JobSeen, NamedPath, NeedsMet, PathFacts
from elasticd.preflight.nodes import CheckResult
from elasticd.types import NodeId

DATA = PathFacts("folder", 3, 3_000_000, "aa")
WELL = NeedsMet(
    python="3.12.4",
    mlx="0.32.4",
    paths=(DATA, PathFacts("file", 1, 10, "bb")),
    memory_bytes=64 << 30,
    available_bytes=60 << 30,
    free_bytes=100 << 30,
)
NEEDS = JobNeeds(
    name="lm",
    least=2,
    archive_bytes=1 << 20,
    modules=("elasticd", "tokens"),
    passed=("TOKEN",),
    paths=(
        NamedPath("recipe.config.data", "/data", read=True),
        NamedPath("job.env WHERE", "/secret/place", secret=True),
    ),
)
FULL = replace(NEEDS, model="/m/base", tuned="full", moments=2, replicas=3)
LORA = replace(FULL, tuned="lora")


def seen(*facts: NeedsMet) -> list[JobSeen]:
    return [JobSeen(NodeId(f"mac-{at}"), each) for at, each in enumerate(facts)]


def at(found: Sequence[CheckResult], check: str, where: str) -> list[CheckResult]:
    return [each for each in found if (each.check, each.where) == (check, where)]


def test_where_all_is_there_every_check_passes() -> None:
    found = [*judged_job(NEEDS, seen(WELL, WELL, WELL))]
    assert [each for each in found if each.verdict != "pass" or each.cure] == []
    assert {each.check for each in found} == {"role", *(check.name for check in JOB_CHECKS)}


GONE = PathFacts()
OTHER = PathFacts("file", 1, 10, "zz")
FILE = WELL.paths[1]
BIG = {"model_bytes": 20 << 30}
EARLIER = replace(NEEDS, state_bytes=70 << 30, state_of="lm-1-aaaa", replicas=1, keep=1)
ODD: list[tuple[str, JobNeeds, dict[str, Any], str, str, str]] = [
    ("interpreter", NEEDS, {"python": "", "error": "no such file"}, "fail", "no such file", "path"),
    ("interpreter", NEEDS, {"mlx": ""}, "fail", "MLX not installed", "pip install mlx"),
    ("interpreter", NEEDS, {"mlx": "0.33.0"}, "fail", "most have Python 3.12, MLX 0.32.4", "same"),
    ("packages", NEEDS, {"missing": ("tokens",)}, "fail", "doesn't find tokens", "that bring tok"),
    ("variables", NEEDS, {"lacks": "no variable TOKEN"}, "fail", "TOKEN", "secrets.env"),
    ("model", FULL, BIG, "fail", "80.0 GiB at least (weights, gradients and 2", "drain mac-1"),
    ("model", LORA, {"model_bytes": 50 << 30}, "warn", "little is left", "quantised"),
    ("model", LORA, BIG | {"available_bytes": 9 << 30}, "warn", "9.0 GiB are free", "End there"),
    ("model", LORA, {"model_error": "not in the cache"}, "fail", "cache", "Put the model there"),
    ("model", LORA, {"model_error": "no", "model_cure": "Let it in"}, "fail", "no", "Let it in"),
    ("model", EARLIER, {"memory_bytes": 1 << 30}, "fail", "that lm-1-aaaa stored", "Train less"),
    ("room", NEEDS, {"free_bytes": 1 << 20}, "fail", "whose size is not known", "elasticctl disk"),
    ("room", NEEDS, {"free_bytes": 1 << 30}, "warn", "1.0 GiB are free", "elasticctl disk"),
    ("data", NEEDS, {"paths": (GONE, FILE)}, "fail", "/data: not there", "Put the same"),
    (
        "data",
        NEEDS,
        {"paths": (PathFacts(cure="macOS waits"), FILE)},
        "fail",
        "/data: not there",
        "Put the same there as on the other nodes. macOS waits",
    ),
    ("data", NEEDS, {"paths": (OTHER, FILE)}, "fail", "not what most have", "Copy it there"),
    ("data", NEEDS, {"paths": (DATA, GONE)}, "fail", "job.env WHERE: not there", "Put the same"),
    ("data", NEEDS, {"paths": (DATA, OTHER)}, "warn", "job.env WHERE: 10 bytes, not", "only write"),
    ("data", NEEDS, {"paths": (PathFacts(error="denied"),)}, "fail", "/data: denied", "account"),
    ("data", NEEDS, {"paths": (PathFacts(error="no", cure="Let it in"),)}, "fail", "no", "Let it"),
]


@pytest.mark.parametrize(("check", "needs", "odd", "verdict", "value", "cure"), ODD)
def test_what_a_node_lacks_is_said_with_the_cure(
    check: str, needs: JobNeeds, odd: dict[str, Any], verdict: str, value: str, cure: str
) -> None:
    roomy = replace(WELL, memory_bytes=640 << 30) if needs is EARLIER else WELL
    roomy = replace(roomy, available_bytes=roomy.memory_bytes)
    found = [*judged_job(needs, seen(roomy, replace(WELL, **odd), roomy))]
    (one,) = [each for each in at(found, check, "mac-1") if each.verdict != "pass"]
    assert (one.verdict, value in one.value, cure in one.cure) == (verdict, True, True), one
    assert {each.verdict for each in at(found, check, "mac-0")} == {"pass"}
    assert "/secret/place" not in repr(found)


def test_a_memory_that_is_not_known_is_no_small_one() -> None:
    found = [*judged_job(FULL, seen(replace(WELL, model_bytes=1, memory_bytes=0)))]
    (one,) = at(found, "model", "mac-0")
    assert (one.verdict, "does not say" in one.value) == ("pass", True)


def test_every_check_has_such_a_case() -> None:
    assert {check for check, *_ in ODD} == {check.name for check in JOB_CHECKS}


def test_a_path_that_is_nowhere_may_be_the_scripts_to_make() -> None:
    nowhere = replace(WELL, paths=(DATA, GONE))
    found = at([*judged_job(NEEDS, seen(nowhere, nowhere))], "data", "mac-0")
    assert [each.verdict for each in found] == ["pass", "warn"] and "makes it" in found[1].cure
    late = replace(WELL, paths=(DATA, PathFacts(cure="macOS waits")))
    found = at([*judged_job(NEEDS, seen(late, late))], "data", "mac-0")
    assert "makes it" in found[1].cure and found[1].cure.endswith(". macOS waits")


def folder(digest: str, **files: str) -> NeedsMet:
    return replace(WELL, paths=(PathFacts("folder", 3, 30, digest, by_file=files), FILE))


def test_of_two_nodes_that_differ_each_names_the_other_and_the_file() -> None:
    """Nobody knows which is right: so neither can be told to be wrong alone."""
    one, two = folder("aa", train="1", valid="2"), folder("bb", train="3", valid="2")
    found = [*judged_job(NEEDS, seen(one, two))]
    for own, other in (("mac-0", "mac-1"), ("mac-1", "mac-0")):
        (data,) = [each for each in at(found, "data", own) if each.verdict != "pass"]
        assert (data.verdict, data.value) == (
            "fail",
            f"recipe.config.data: /data: 3 files, 30 bytes, it differs from {other} in train",
        )


def test_of_several_kinds_all_are_named() -> None:
    one, two = folder("aa", a="1"), folder("bb", a="2")
    three = folder("cc", a="1", b="1", c="1", d="1", e="1")
    found = [*judged_job(NEEDS, seen(one, two, two, three, one))]
    said = [next(e.value for e in at(found, "data", f"mac-{n}")) for n in range(4)]
    assert said[0].endswith("bytes, it differs from mac-1, mac-2 in a")
    assert said[1].endswith("bytes, it differs from mac-0, mac-4 in a")
    first = "it differs from mac-0, mac-4 in b, c, d and 1 more"
    second = "it differs from mac-1, mac-2 in a, b, c and 2 more"
    assert f"{first}; {second}" in said[3] and "most" not in said[3]


def test_of_a_secret_place_no_file_is_named() -> None:
    hidden = PathFacts("folder", 1, 3, "aa", by_file={"payroll": "1"})
    nodes = [replace(WELL, paths=(DATA, replace(hidden, digest=d))) for d in ("aa", "bb")]
    nodes[1] = replace(
        nodes[1], paths=(DATA, replace(hidden, digest="b", by_file={"payroll": "2"}))
    )
    found = [*judged_job(NEEDS, seen(*nodes))]
    assert "it differs from mac-0" in repr(found) and "payroll" not in repr(found)


def test_of_full_fine_tuning_only_the_trained_layers_count() -> None:
    facts = replace(WELL, model_bytes=8 << 30, model_layers=32)
    assert least_bytes(replace(FULL, layers=8), facts)[0] == 14 << 30
    assert least_bytes(replace(FULL, layers=-1), facts)[0] == 32 << 30
    assert least_bytes(replace(FULL, layers=8), replace(facts, model_layers=0))[0] == 8 << 30
    assert least_bytes(NEEDS, WELL)[0] == 0


def test_checkpoints_take_their_share_of_each_disk() -> None:
    needs = replace(NEEDS, archive_bytes=0, state_bytes=30 << 30, keep=2, replicas=1)
    (found,) = at([*judged_job(needs, seen(WELL, WELL, WELL))], "room", "mac-0")
    assert found.value == "it needs 30.0 GiB, 100.0 GiB are free"
    (alone,) = at([*judged_job(needs, seen(WELL))], "room", "mac-0")
    assert alone.value == "it needs 90.0 GiB, 100.0 GiB are free"


def test_nodes_that_do_not_train_need_less() -> None:
    bare = NeedsMet(free_bytes=1)
    nodes = [
        *seen(WELL),
        JobSeen(NodeId("store"), bare, "store"),
        JobSeen(NodeId("vote"), bare, "witness"),
        JobSeen(NodeId("out"), bare, draining=True),
    ]
    found = [*judged_job(NEEDS, nodes)]
    of = {node: {e.check for e in found if e.where == node} for node in ("store", "vote", "out")}
    assert of == {"store": {"role", "room"}, "vote": {"role"}, "out": {"role"}}
    (drained,) = at(found, "role", "out")
    assert drained.verdict == "warn" and drained.cure == "elasticctl undrain out"


@pytest.mark.parametrize(
    ("wrong", "least", "replicas", "verdicts", "value"),
    [
        ((), 2, 1, ["pass"], "3 nodes can train, world.min is 2"),
        (("mac-1", "mac-2"), 2, 1, ["fail"], "1 node can train, world.min is 2 (without mac-1, ma"),
        ((), 4, 1, ["fail"], "3 nodes can train, world.min is 4"),
        ((), 1, 4, ["pass", "warn"], "3 nodes can train"),
    ],
)
def test_enough_nodes_without_a_failed_check(
    wrong: tuple[str, ...], least: int, replicas: int, verdicts: list[str], value: str
) -> None:
    needs = replace(NEEDS, least=least, replicas=replicas)
    bad = {NodeId(each) for each in wrong}
    found = [*judged_world(needs, seen(WELL, WELL, WELL), bad)]
    assert [each.verdict for each in found] == verdicts and found[0].value.startswith(value)
    assert all(each.cure for each in found if each.verdict != "pass")


def test_needs_are_kept_by_their_hash_as_every_request_is() -> None:
    assert hash(replace(NEEDS, env={"PATH": "/bin"})) == hash(replace(NEEDS, env={"PATH": "/"}))
