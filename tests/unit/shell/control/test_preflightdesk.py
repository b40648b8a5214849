"""One daemon asks all others what they are, judges it, and keeps the report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from elasticd.core.words.bulk import Want, WantFacts, WantFirstStep, WantJobFacts, WantSpeed
from elasticd.core.words.codec import to_plain
from elasticd.core.words.requests.preflight import PreflightTold, RunPreflight
from elasticd.errors import OperationError, UsageError
from elasticd.preflight.firststeps import StepSeen
from elasticd.preflight.links import LinkSeen
from elasticd.preflight.needs import JobNeeds, NeedsMet, ScriptOffer
from elasticd.preflight.seen import REPORT_NAME, NodeFacts
from elasticd.preflight.speeds import SpeedSeen
from elasticd.shell.control.linkdesk import LinkDesk
from elasticd.shell.control.ownfacts import OwnFacts
from elasticd.shell.control.ownneeds import OwnNeeds
from elasticd.shell.control.preflightdesk import PreflightDesk
from elasticd.shell.control.server import Stream
from elasticd.shell.control.speeddesk import SpeedDesk
from elasticd.shell.control.stepdesk import StepDesk
from elasticd.shell.control.trialdesk import TrialDesk
from elasticd.shell.network.neighbours import Neighbours
from elasticd.types import NodeId, NodeRole

ME, OTHER, OLD, GONE = NodeId("me"), NodeId("other"), NodeId("old"), NodeId("gone")
NOW = 5000.0
HAVING = NeedsMet("3.12.4", "0.32.4", memory_bytes=64 << 30, free_bytes=100 << 30)


class FakePeers:
    """Answers by node: bytes, or an error."""

    def __init__(self, answers: dict[NodeId, bytes | Exception]) -> None:
        self.me, self.answers = ME, answers
        self.of_job: dict[NodeId, bytes | Exception] = {}
        self.asked: list[NodeId] = []

    def living(self) -> list[NodeId]:
        return [ME, *self.answers]

    async def fetch(self, node: NodeId, wanted: Want, fd: int, limit: int) -> int:
        assert limit > 0
        if isinstance(wanted, WantJobFacts):
            answer = self.of_job[node]
        else:
            assert wanted == WantFacts()
            self.asked.append(node)
            answer = self.answers[node]
        if isinstance(answer, Exception):
            raise answer
        return os.write(fd, answer)


class FakeStream:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.asked = 0

    async def send(self, said: PreflightTold) -> None:
        self.told.append(said.doing)
        self.asked += said.send


class FakeNeeds:
    """This node has all that a job needs."""

    def read(self, needs: JobNeeds) -> NeedsMet:
        return HAVING


class FakeLinks:
    """Every link is good; says what was measured at once."""

    def __init__(self) -> None:
        self.under_way: set[NodeId] = set()
        self.measured_: list[tuple[NodeId, NodeId, bool]] = []

    async def measured(self, node: NodeId, peer: NodeId, *, busy: bool) -> list[LinkSeen]:
        assert not {node, peer} & self.under_way, "it measures two at once"
        self.under_way |= {node, peer}
        await asyncio.sleep(0)
        self.under_way -= {node, peer}
        self.measured_.append((node, peer, busy))
        return [LinkSeen(node, peer, "10.0.0.1", 2e8, 0.0001)]


class FakeSpeeds:
    """Every node computes as fast, or its version can't say it."""

    def __init__(self) -> None:
        self.asked: list[tuple[NodeId, WantSpeed]] = []
        self.slow: list[NodeId] = []

    async def told(self, node: NodeId, wanted: WantSpeed) -> SpeedSeen | None:
        self.asked.append((node, wanted))
        gflops = 100.0 if node in self.slow else 1000.0
        return None if node == OLD else SpeedSeen(node, gflops, "gpu", unix=NOW)


class FakeSteps:
    """Every node's first step is the same, unless a test says what it is."""

    def __init__(self) -> None:
        self.here, self.asked = False, list[tuple[NodeId, WantFirstStep]]()
        self.odd: dict[NodeId, StepSeen | None] = {}

    @contextlib.asynccontextmanager
    async def taken(self, offer: ScriptOffer, stream: Stream) -> AsyncIterator[None]:
        self.here = True
        yield
        self.here = False

    async def told(self, node: NodeId, wanted: WantFirstStep) -> StepSeen | None:
        assert self.here, "its files are not here"
        self.asked.append((node, wanted))
        seen = StepSeen(node, gradient="g", update="u", batch="b", weights="w")
        return self.odd.get(node, seen)


class Desk:
    """A node's desk whose neighbours are no daemons."""

    def __init__(self, home: Path, answers: dict[NodeId, bytes | Exception]) -> None:
        self.peers, self.stream = FakePeers(answers), FakeStream()
        own = OwnFacts(home, lambda: "M3", list, "linux", lambda command: "")
        neighbours = cast(Neighbours, self.peers)
        self.links = FakeLinks()
        links = cast(LinkDesk, self.links)
        needs = cast(OwnNeeds, FakeNeeds())
        self.speeds = FakeSpeeds()
        speeds = cast(SpeedDesk, self.speeds)
        self.steps = FakeSteps()
        steps = cast(StepDesk, self.steps)
        self.drained: list[NodeId] = []

        def duty(node: NodeId) -> tuple[NodeRole, bool]:
            return "train", node in self.drained

        self.desk = PreflightDesk(
            home,
            neighbours,
            own,
            needs,
            links,
            speeds,
            steps,
            TrialDesk(steps),
            lambda: [GONE],
            duty,
            lambda: NOW,
        )

    def run(self, **request: Any) -> dict[str, Any]:
        asked = self.desk.run(RunPreflight(**request), cast(Stream, self.stream))
        return cast(dict[str, Any], asyncio.run(asked))

    def found(self) -> Callable[[str, NodeId], dict[str, Any]]:
        checks = self.run()["checks"]
        by_place = {(each["check"], each["where"]): each for each in checks}
        return lambda check, node: by_place[check, node]


def facts(home: Path, **changes: Any) -> bytes:
    own = OwnFacts(home, lambda: "M3", list, "linux", lambda command: "").begun()()
    return json.dumps(to_plain(replace(own, unix=NOW, **changes))).encode()


def test_what_others_are_is_judged_beside_ones_own(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {OTHER: facts(tmp_path, mlx="0.1.0"), NodeId("c"): facts(tmp_path)})
    found = desk.found()
    assert found("mlx", OTHER)["verdict"] == "fail" and found("mlx", ME)["verdict"] == "pass"
    assert found("answers", GONE)["value"].startswith("it is not here")
    assert desk.peers.asked == [NodeId("c"), OTHER] and "asking 3 nodes" in desk.stream.told[0]
    assert desk.run()["wrong"] == 1


def test_a_node_that_leaves_while_it_is_asked_is_told_of_once(tmp_path: Path) -> None:
    checks = Desk(tmp_path, {GONE: TimeoutError()}).run()["checks"]
    (told,) = [each for each in checks if each["where"] == GONE]
    assert told["verdict"] == "fail" and "nothing came" in told["value"]


def test_the_clock_of_another_is_compared_with_that_of_who_asks(tmp_path: Path) -> None:
    ahead = json.loads(facts(tmp_path)) | {"unix": NOW + 500}
    desk = Desk(tmp_path, {OTHER: json.dumps(ahead).encode(), NodeId("c"): facts(tmp_path)})
    found = desk.found()
    assert found("clock", OTHER)["value"] == "500.0 s ahead of the others"
    assert found("clock", NodeId("c"))["verdict"] == "pass"


@pytest.mark.parametrize(
    ("answer", "verdict", "value"),
    [
        (OperationError("facts from 10.0.0.2: unknown message 'facts'"), "warn", "earlier version"),
        (OperationError("old is not connected"), "fail", "old is not connected"),
        (TimeoutError(), "fail", "nothing came for 20 s"),
        (b"no json", "fail", "doesn't answer"),
        (b'{"elasticd": 7}', "fail", "expected str"),
        (b"[]", "fail", "expected a map"),
    ],
)
def test_a_node_that_tells_nothing_spoils_nothing(
    tmp_path: Path, answer: bytes | Exception, verdict: str, value: str
) -> None:
    found = Desk(tmp_path, {OLD: answer}).found()
    told = found("answers", OLD)
    assert told["verdict"] == verdict and value in told["value"] and told["cure"]
    assert found("mlx", ME)["verdict"] == "pass"


def test_a_later_version_may_say_more(tmp_path: Path) -> None:
    more = json.loads(facts(tmp_path)) | {"scent": "fine"}
    found = Desk(tmp_path, {OTHER: json.dumps(more).encode()}).found()
    assert found("answers", OTHER)["verdict"] == "pass"


def test_the_report_is_kept_and_shown_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {OTHER: facts(tmp_path)})
    with pytest.raises(OperationError, match="on me yet: run 'elasticctl preflight'"):
        desk.run(last=True)
    report = desk.run()
    asked = len(desk.peers.asked)
    assert desk.run(last=True) == json.loads(json.dumps(report))
    assert len(desk.peers.asked) == asked and report["time"] == NOW
    assert (tmp_path / REPORT_NAME).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "[1]", '{"checks": 1}'])
def test_a_damaged_report_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / REPORT_NAME).write_text(text)
    with pytest.raises(OperationError, match=r"preflight\.json is damaged"):
        Desk(tmp_path, {}).run(last=True)


def test_a_disk_that_refuses_costs_only_the_copy(tmp_path: Path) -> None:
    (tmp_path / REPORT_NAME).mkdir()
    assert Desk(tmp_path, {OTHER: facts(tmp_path)}).run()["checks"]


def test_what_a_node_tells_others_of_itself(tmp_path: Path) -> None:
    async def served() -> bytes:
        fd = await Desk(tmp_path, {}).desk.serve(WantFacts())
        try:
            return os.pread(fd, 1 << 20, 0)
        finally:
            os.close(fd)

    told = json.loads(asyncio.run(served()))
    assert told["chip"] == "M3" and set(told) == set(NodeFacts.__dataclass_fields__)


@pytest.mark.parametrize("busy", [None, True])
def test_every_link_is_measured_both_ways_and_no_node_measures_two_at_once(
    tmp_path: Path, busy: bool | None
) -> None:
    nodes = [NodeId(f"n{at}") for at in range(4)]
    desk = Desk(tmp_path, {**{node: facts(tmp_path) for node in nodes}, OLD: OperationError("x")})
    report = desk.run(busy=busy)
    all_ = [ME, *nodes]
    wanted = sorted((one, other, bool(busy)) for one in all_ for other in all_ if one != other)
    assert sorted(desk.links.measured_) == wanted
    links = [each for each in report["checks"] if each["check"] == "link"]
    assert len(links) == 20 and {each["verdict"] for each in links} == {"pass"}
    assert desk.stream.told[-1] == "measuring links, 5 of 5 turns"


def test_links_alone_are_kept_beside_the_rest(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {OTHER: facts(tmp_path, mlx="0.1.0")})
    report = desk.run(only="links")
    assert {each["check"] for each in report["checks"]} == {"answers", "link"}
    assert report["wrong"] == 0 and desk.run()["wrong"] == 1
    assert desk.run(only="links", last=True)["wrong"] == 0 and desk.run(last=True)["wrong"] == 1
    with pytest.raises(OperationError, match="'elasticctl check-network'"):
        (tmp_path / "network.json").unlink()
        desk.run(only="links", last=True)


def test_speeds_alone_are_kept_beside_the_rest(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {OTHER: facts(tmp_path), OLD: facts(tmp_path, mlx="0.1.0")})
    desk.speeds.slow = [OTHER]
    report = desk.run(only="speed", seconds=30.0, busy=True)
    assert {each["check"] for each in report["checks"]} == {"answers", "energy", "heat", "speed"}
    assert report["wrong"] == 0 and desk.links.measured_ == []
    assert {wanted for _, wanted in desk.speeds.asked} == {WantSpeed(30.0, busy=True)}
    verdicts = {e["where"]: e["verdict"] for e in report["checks"] if e["check"] == "speed"}
    assert verdicts == {ME: "pass", OTHER: "warn"}, "one of an earlier version tells nothing"
    assert desk.run(only="speed", last=True) == json.loads(json.dumps(report))
    with pytest.raises(OperationError, match="'elasticctl calibrate'"):
        (tmp_path / "calibrate.json").unlink()
        desk.run(only="speed", last=True)


def test_a_preflight_takes_a_speed_of_the_last_day(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {OTHER: facts(tmp_path)})
    assert desk.found()("speed", OTHER)["verdict"] == "pass"
    assert {wanted.fresh_seconds for _, wanted in desk.speeds.asked} == {86_400.0}


def test_nodes_on_one_machine_are_measured_in_turns(tmp_path: Path) -> None:
    here = {"addresses": ("127.0.0.1/8",)}
    desk = Desk(tmp_path, {OTHER: facts(tmp_path, **here), NodeId("c"): facts(tmp_path, **here)})
    desk.run(only="speed")
    assert desk.stream.told[-1] == "measuring how fast nodes compute, 2 of 2 turns"


def job_facts(**changes: Any) -> bytes:
    return json.dumps(to_plain(replace(HAVING, **changes))).encode()


def test_with_a_job_each_node_is_asked_what_it_has_of_its_needs(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {OTHER: facts(tmp_path), NodeId("c"): facts(tmp_path)})
    desk.peers.of_job = {OTHER: job_facts(missing=("tokens",)), NodeId("c"): job_facts()}
    desk.drained = [NodeId("c")]
    report = desk.run(job=JobNeeds("lm", least=2))
    by_place = {(each["check"], each["where"]): each for each in report["checks"]}
    assert by_place["packages", OTHER]["verdict"] == "fail" and report["job"] == "lm"
    assert by_place["packages", ME]["verdict"] == "pass"
    assert "undrain c" in by_place["role", NodeId("c")]["cure"]
    world = by_place["world", "the job"]
    assert world["verdict"] == "fail" and world["value"].startswith("1 node can train")
    assert "asking them what they have for lm" in desk.stream.told
    assert desk.run(last=True) == json.loads(json.dumps(report)) and "needs" not in report
    assert "needs" in json.loads((tmp_path / REPORT_NAME).read_bytes()), "for when it is submitted"


@pytest.mark.parametrize(
    ("answer", "verdict", "value"),
    [
        (OperationError("unknown message 'job_facts'"), "warn", "earlier version"),
        (TimeoutError(), "fail", "nothing came for 60 s"),
        (b'{"python": 3}', "fail", "expected str"),
    ],
)
def test_a_node_that_says_nothing_of_a_job_does_not_count(
    tmp_path: Path, answer: bytes | Exception, verdict: str, value: str
) -> None:
    desk = Desk(tmp_path, {OTHER: facts(tmp_path)})
    desk.peers.of_job = {OTHER: answer}
    checks = desk.run(job=JobNeeds("lm", least=2))["checks"]
    (said,) = [each for each in checks if (each["check"], each["where"]) == ("answers", OTHER)]
    assert said["verdict"] == verdict and value in said["value"]
    (world,) = [each for each in checks if each["check"] == "world"]
    assert world["verdict"] == "fail"


def test_without_a_job_nobody_is_asked_of_one(tmp_path: Path) -> None:
    report = Desk(tmp_path, {OTHER: facts(tmp_path)}).run()
    assert report["job"] is None and "world" not in {each["check"] for each in report["checks"]}


SPEC: dict[str, Any] = {
    "job": {"name": "lm", "entrypoint": "train.py"},
    "batch": {"global": 8, "micro": 1},
    "train": {"steps": 5},
}


def test_the_first_step_is_made_where_the_job_can_run(tmp_path: Path) -> None:
    without, late, old = NodeId("c"), NodeId("d"), NodeId("e")
    others = (OTHER, without, late, old)
    desk = Desk(tmp_path, {node: facts(tmp_path) for node in others})
    desk.peers.of_job = {
        OTHER: job_facts(model_bytes=5 << 30),
        without: job_facts(missing=("tokens",)),
        late: job_facts(),
        old: job_facts(),
    }
    desk.steps.odd = {OTHER: StepSeen(OTHER, error="no such file"), old: None}
    desk.drained = [late]
    needs = JobNeeds("lm", least=2, model="/m", tuned="lora")
    report = desk.run(job=needs, script=ScriptOffer(SPEC, 10, "ab"), busy=True)
    asked = dict(desk.steps.asked)
    assert asked.keys() == {ME, OTHER, old}, "the others can't run it"
    assert asked[OTHER] == WantFirstStep(SPEC, "ab", 5 << 30, busy=True)
    found = {e["where"]: e for e in report["checks"] if e["check"] == "gradients"}
    assert {node: each["verdict"] for node, each in found.items()} == {ME: "pass", OTHER: "fail"}
    assert desk.stream.asked == 1 and not desk.steps.here
    (world,) = [each for each in report["checks"] if each["check"] == "world"]
    assert world["verdict"] == "pass" and "2 nodes can train" in world["value"]


def test_without_a_script_or_a_node_that_can_run_it_no_files_are_asked_for(tmp_path: Path) -> None:
    desk = Desk(tmp_path, {})
    desk.run(job=JobNeeds("lm"))
    desk.drained = [ME]
    desk.run(job=JobNeeds("lm"), script=ScriptOffer(SPEC, 10, "ab"))
    assert desk.stream.asked == 0 and desk.steps.asked == []


def test_a_job_that_is_none_is_refused(tmp_path: Path) -> None:
    wrong = ScriptOffer({**SPEC, "batch": {}}, 10, "ab")
    with pytest.raises(UsageError, match="batch"):
        Desk(tmp_path, {}).run(job=JobNeeds("lm"), script=wrong)
