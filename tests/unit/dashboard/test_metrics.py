"""What Prometheus is told: the names, the figures, the page that lists them, and the board."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from elasticd.cli.reports.goodput import Goodput, goodput
from elasticd.dashboard.exposition import exposed
from elasticd.dashboard.metrics import (
    CAUSES,
    METRICS,
    ClusterFigures,
    ToldJob,
    samples,
    series_of,
    table,
)
from elasticd.dashboard.scraping import followed
from tests.unit.cli.conftest import STATUS
from tests.unit.cli.test_report_pages import COURSE, read

DOCS = Path(__file__).parents[3] / "docs"
JOB = "byte-lm-1-k3f9"
ORDER = {name: metric.labels for metric in METRICS for name in series_of(metric)}
LINKED = {
    **STATUS,
    "loop": {"node": "node-0", "stalls": 2, "failures": 1},
    "nodes": [
        STATUS["nodes"][0],
        STATUS["nodes"][1]
        | {
            "links": [
                {"host": "10.0.0.2", "state": "up", "round_trip_seconds": 0.001,
                 "bytes_per_second": 1e9},
                {"host": "10.1.0.2", "state": "lost", "round_trip_seconds": 0.0,
                 "bytes_per_second": 0},
            ]
        },
    ],
}  # fmt: skip
STORED = {"time": 5.0, "step": 120, "bytes": 2048, "replicas": 2, "stall_seconds": 0.25,
          "write_seconds": 0.5}  # fmt: skip
FULL = ClusterFigures("0.1.0", LINKED, {JOB: ToldJob(read(COURSE), STORED)})


def told(figures: ClusterFigures) -> dict[tuple[str, ...], float]:
    """As a reader of Prometheus's format finds it: by name and label values."""
    text, kind = exposed(figures)
    assert kind.startswith("text/plain")
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            order = ORDER.get(sample.name, ())
            assert set(order) == set(sample.labels)
            key = sample.name, *(sample.labels[label] for label in order)
            assert key not in found
            found[key] = sample.value
    return found


def test_the_figures_are_those_of_status_and_report() -> None:
    found, spent = told(FULL), goodput(read(COURSE))
    assert found["elasticd_job_goodput_ratio", JOB] == spent.share
    for cause in CAUSES:
        assert found["elasticd_job_time_seconds", JOB, cause] == getattr(spent, cause)
    assert found["elasticd_job_faults_total", JOB, "worker_exit"] == 1
    assert found["elasticd_job_detection_seconds_sum", JOB, "worker_exit"] == 1.0
    assert found["elasticd_job_recovery_seconds_sum", JOB, "restore"] == 4.0
    assert found["elasticd_job_recovery_seconds_count", JOB, "restore"] == 1
    assert found["elasticd_job_loss", JOB] == 2.134567
    assert found["elasticd_job_state", JOB, "running"] == 1
    assert found["elasticd_job_state", JOB, "parked"] == 0
    assert found["elasticd_node_state", "node-1", "dead"] == 1
    assert found["elasticd_link_up", "node-0", "node-1", "10.1.0.2"] == 0
    assert found["elasticd_job_checkpoint_stall_seconds", JOB] == 0.25
    assert found["elasticd_job_checkpoint_time_seconds", JOB] == 5.0


def test_goodput_that_nobody_knows_is_not_there() -> None:
    course = read([*COURSE[:2], COURSE[-1] | {"kind": "job_failed"}])
    found = told(ClusterFigures("1", STATUS, {JOB: ToldJob(course)}))
    assert ("elasticd_job_goodput_ratio", JOB) not in found
    assert ("elasticd_job_time_seconds", JOB, "useful") not in found
    assert found["elasticd_job_time_seconds", JOB, "waiting"] == 10


def test_those_that_run_or_ended_are_followed_before_those_that_wait() -> None:
    jobs = [{"id": f"q{n}", "state": "queued", "queue_position": n} for n in range(20)]
    others = [{"id": state, "state": state} for state in ("finished", "paused", "running")]
    found = followed({"jobs": [*jobs, *others]})
    assert found == ["running", "paused", "finished", "q0", "q1", "q2", "q3", "q4"]


def test_every_second_of_a_turn_has_a_cause() -> None:
    spent = goodput(read(COURSE))
    turn = [getattr(spent, cause) for cause in CAUSES if cause not in ("waiting", "paused")]
    assert sum(turn) == pytest.approx(spent.turn)
    assert {*CAUSES, "turn"} == set(Goodput.__slots__)


def test_all_that_is_promised_is_told_and_nothing_else() -> None:
    job = {**LINKED["jobs"][0], "ranks": [{"rank": 0, "node": "node-0", "step": 1, "grains": 4,
                                           "grain_seconds": 0.5, "active_bytes": 2,
                                           "cached_bytes": 0, "peak_bytes": 3,
                                           "seconds": {"compute": 0.25}}],
           "values": {"acc": {"step": 3, "value": 0.5}, "odd": 7}}  # fmt: skip
    full = ClusterFigures("0.1.0", {**LINKED, "jobs": [job]}, FULL.told)
    plain = {**job, "id": "p-1-aaaa", "mode": "plain", "restarts": 1, "script_seconds": 2.0}
    beside = ClusterFigures("0.1.0", {**LINKED, "jobs": [plain]})
    names = {name for figures in (full, beside) for name, *_ in told(figures)}
    assert names == {name for metric in METRICS for name in series_of(metric)}
    part = ("elasticd_rank_step_seconds", job["id"], "0", "node-0", "compute")
    assert told(full)[part] == 0.25
    values = {key: v for key, v in told(full).items() if key[0] == "elasticd_job_value"}
    assert values == {("elasticd_job_value", job["id"], "acc"): 0.5}


def test_what_is_not_known_is_left_out() -> None:
    assert told(ClusterFigures("1", None)) == {
        ("elasticd_daemon_up",): 0.0,
        ("elasticd_build_info", "1"): 1.0,
    }
    found = told(ClusterFigures("1", STATUS))
    assert ("elasticd_job_loss", "digits-2-aaaa") not in found
    assert not any(name.startswith(("elasticd_job_time", "elasticd_link")) for name, *_ in found)


odd = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
anything = st.recursive(
    odd, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["id", "state", "links", "host", "ranks", "rank", "step", "loss", "nodes"]),
        inner,
    ),
)  # fmt: skip


@given(nodes=st.lists(anything, max_size=3), jobs=st.lists(anything, max_size=3))
def test_no_answer_breaks_the_page(nodes: list[Any], jobs: list[Any]) -> None:
    named = [each | {"id": f"n{n}"} if isinstance(each, dict) else each
             for n, each in enumerate([*nodes, *jobs])]  # fmt: skip
    status = {"nodes": named[: len(nodes)], "jobs": named[len(nodes) :], "view": 3}
    text, _ = exposed(ClusterFigures("1", status))
    list(text_string_to_metric_families(text.decode()))


def test_labels_are_text_whatever_they_hold() -> None:
    name = 'a"} 1\nelasticd_job_loss{job="b'
    status = {"jobs": [{"id": name, "loss": 1.0, "state": "running"}]}
    losses = [key for key in told(ClusterFigures("1", status)) if key[0] == "elasticd_job_loss"]
    assert len(losses) == 1


def test_names_carry_their_units() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"elasticd_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert {each.metric for each in samples(FULL)} <= set(names)


def test_the_page_lists_them() -> None:
    assert table() in (DOCS / "metrics.md").read_text()
    page = (DOCS / "metrics.md").read_text()
    assert {cause for cause in CAUSES if f"| `{cause}` |" in page} == set(CAUSES)


def test_the_board_is_one_that_grafana_reads() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    schema = json.loads(Path(__file__).with_name("board.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(board, schema)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for one, other in itertools.combinations([p["gridPos"] for p in board["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
        assert one["x"] + one["w"] <= 24
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(board | {"panels": [{"type": "pie"}]}, schema)


def test_the_board_asks_for_what_is_there() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    known = {name: metric.labels for metric in METRICS for name in series_of(metric)}
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for expr, legend in zip(
        asked,
        [target["legendFormat"] for panel in board["panels"] for target in panel["targets"]],
        strict=True,
    ):
        names = re.findall(r"elasticd_\w+", expr)
        assert names and set(names) <= set(known), expr
        labels = {label for name in names for label in known[name]}
        assert set(re.findall(r"(\w+)=", expr)) | set(re.findall(r"{{(\w+)}}", legend)) <= labels


def test_of_a_plain_job_nothing_speaks_of_steps() -> None:
    plain = {**LINKED["jobs"][0], "mode": "plain", "restarts": 2, "script_seconds": 9.5}
    figures = ClusterFigures("0.1.0", {**LINKED, "jobs": [plain]}, FULL.told)
    names = {each.metric for each in samples(figures) if JOB in each.labels}
    assert not [n for n in names if re.search(r"step|loss|exact|goodput|checkpoint|rank_", n)]
    found = {(each.metric, each.labels): each.value for each in samples(figures)}
    assert found["elasticd_job_restarts_total", (JOB,)] == 2
    assert found["elasticd_job_script_seconds", (JOB,)] == 9.5
    assert found["elasticd_job_recoveries_total", (JOB,)] == 2
    assert ("elasticd_job_time_seconds", (JOB, "useful")) not in found
