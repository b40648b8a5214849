"""What a member makes of the ends and troubles of its own children."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from elasticd.core.context import Context
from elasticd.core.engines.spares import SpareReducers
from elasticd.core.taking_part.crew import Crew
from elasticd.core.taking_part.elastic import Elastic
from elasticd.core.taking_part.member import Member
from elasticd.core.taking_part.place import Place
from elasticd.core.taking_part.trainers import Trainer
from elasticd.core.words import effects as e
from elasticd.core.words.processes import CANNOT_BEGIN, UNCOUNTED
from elasticd.core.words.records import JobRecord, World
from elasticd.core.words.ring import Continue, ReducerListens, StopReducer
from elasticd.core.words.trainers import (
    TrainerAtRun,
    TrainerLostScript,
    TrainerUnloaded,
    TrimMemory,
)
from elasticd.core.words.worlds import Fault, Form, Pressed
from elasticd.recovery.gpu import RESTARTS, WITHIN_SECONDS
from elasticd.recovery.relief import RECOMPUTE_LEVEL
from elasticd.recovery.signatures import LastMemory
from elasticd.settings.job import JobSpec
from elasticd.types import JobId, Lineage, NodeId, Stamp, Tag, TrainerPhase

ME, LEADER = NodeId("me"), NodeId("leader")
SPEC = JobSpec.from_dict(
    {
        "job": {"name": "job", "entrypoint": "train.py"},
        "batch": {"global": 8, "micro": 2},
        "train": {"steps": 9},
    }
)


EMPTY = World(
    job=JobId("job-1"),
    generation=Tag(2, LEADER, "v"),
    epoch=Tag(1, LEADER, "e"),
    lineage=Lineage("l"),
    parent=None,
    step=0,
    stamp=Stamp("s"),
    members=(),
    sources=(),
    hosts=(),
    shares_now=(),
    shares=(),
    rung="start",
    reason="",
    recoveries=0,
    lost_steps=0,
    exact=True,
    checkpointed=-1,
    manifest=None,
    holders=(),
)


@dataclass
class Desk:
    """A member of one job that runs, with its trainer."""

    ctx: Context
    member: Member
    part: Elastic
    trainer: Trainer

    @property
    def crew(self) -> Crew:
        return self.part.crew

    def attend(self) -> None:
        """After an event: the job's record is as it was."""
        self.member.attend(self.member.record, unwanted=False, short=False)

    def look(self) -> None:
        """Something may be started."""
        self.member.look.again()
        self.attend()

    def settle(
        self, members: tuple[NodeId, ...] = (ME,), generation: Tag = EMPTY.generation
    ) -> Place:
        """Put it into a world in which a step is committed."""
        world = replace(EMPTY, members=members, generation=generation)
        self.member.reports.world = world
        place = self.part.place_in(Form(world), self.trainer, has_state=True)
        place.settled = True
        self.part.place = place
        return place


def desk(phase: TrainerPhase = "active") -> Desk:
    ctx = Context(ME, lambda: "nonce", now=100.0)
    record = JobRecord(JobId("job-1"), 1, SPEC.to_dict(), "digest", "running")
    made = Member(ctx, record, SpareReducers(ctx))
    made.archive, made.short = "ready", False
    made.reports.leader, made.reports.epoch = LEADER, Tag(1, LEADER, "e")
    assert isinstance(made.part, Elastic)
    trainer = Trainer(ctx.next_child(), pid=7, phase=phase)
    made.part.crew.trainer = trainer
    return Desk(ctx, made, made.part, trainer)


def told(made: Desk) -> list[Any]:
    return [f.message for f in made.ctx.effects if isinstance(f, e.Send)]


def the_fault(made: Desk) -> Fault:
    (fault,) = [message for message in told(made) if isinstance(message, Fault)]
    return fault


def ends(made: Desk, status: int, tail: str = "", memory: LastMemory | None = None) -> Fault:
    made.part.on_child(e.ChildExited(made.trainer.child, status, tail, memory))
    made.attend()
    return the_fault(made)


def test_a_traceback_is_the_scripts_own_failure() -> None:
    fault = ends(desk(), 1, "Traceback\nKeyError: 'x'")
    assert fault.fault == "worker_exit" and not fault.fatal
    assert fault.failing is not None and "KeyError" in fault.failing.reason


def test_a_folder_that_can_not_be_cloned_makes_the_node_unfit() -> None:
    why = "the job's folder can't be cloned: [Errno 13] Permission denied: '/home/clones/j/0/x'"
    made = desk("starting")
    fault = ends(made, CANNOT_BEGIN, f"elasticd: {why}\n")
    assert fault.failing is not None and fault.failing.reason == why and not fault.fatal
    assert made.crew.trainer is None, "it would end in the same way"


def test_what_was_raised_in_a_body_that_does_not_count_makes_nothing_unfit() -> None:
    made = desk()
    fault = ends(made, UNCOUNTED, "Traceback\nKeyError: 'x'\nelasticd: that body does not count\n")
    assert fault.failing is None and not fault.fatal
    assert made.crew.trainer is not None, "it is replaced"


def test_a_script_may_have_such_an_exit_status_of_its_own() -> None:
    fault = ends(desk(), UNCOUNTED, "Traceback\nKeyError: 'x'")
    assert fault.failing is not None and "exit status 75" in fault.failing.reason


@pytest.mark.parametrize(
    ("status", "tail"),
    [(1, "Traceback\nMemoryError"), (1, "RuntimeError: [malloc] Unable to allocate 9 bytes")],
)
def test_unless_it_says_that_memory_ran_out(status: int, tail: str) -> None:
    made = desk()
    fault = ends(made, status, tail)
    assert (fault.fault, fault.fatal, fault.status) == ("oom", "", status)
    assert made.crew.trainer is not None, "it is replaced"


GPU_FAILED = (
    "Traceback\nRuntimeError: [METAL] Command buffer execution failed: Caused GPU Address Fault"
    " Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"
)


def its_gpu_fails(made: Desk, phase: TrainerPhase = "active") -> Fault:
    """Once more, under the trainer that is there now."""
    trainer = made.crew.trainer
    assert trainer is not None
    trainer.phase = phase
    made.ctx.effects.clear()
    made.part.on_child(e.ChildExited(trainer.child, 1, GPU_FAILED))
    made.attend()
    return the_fault(made)


def test_a_gpu_that_fails_is_no_failure_of_the_script() -> None:
    made = desk()
    fault = its_gpu_fails(made)
    assert fault.fault == "worker_exit" and fault.failing is None and not fault.fatal
    assert "Address Fault" in fault.evidence
    assert made.crew.trainer is not None, "another one goes on"


def test_but_when_it_fails_again_and_again_the_job_does_without_the_node() -> None:
    made = desk()
    for _ in range(RESTARTS):
        assert its_gpu_fails(made).failing is None
    failing = its_gpu_fails(made).failing
    assert failing is not None and failing.looping and made.crew.trainer is None
    assert failing.reason.startswith("the GPU of this machine has failed 4 times in 10 min")
    assert "Address Fault" in failing.reason
    # A while later the node is tried again, and its GPU has as many tries as before.
    made.part.renew("it is tried again")
    made.look()
    assert its_gpu_fails(made, "ready").failing is None


def test_a_gpu_that_fails_now_and_then_costs_a_restart_each_time() -> None:
    made = desk()
    for _ in range(3 * RESTARTS):
        assert its_gpu_fails(made).failing is None
        made.ctx.now += WITHIN_SECONDS / RESTARTS


@pytest.mark.parametrize("phase", ["finished", "released"])
@pytest.mark.parametrize(
    "tail",
    [
        "Traceback\nOSError: [Errno 28] No space left on device",
        "Traceback\nMemoryError: [malloc] Unable to allocate 9 bytes",
        "RuntimeError: [malloc_or_wait] Unable to allocate 9 bytes",
        GPU_FAILED,
    ],
)
def test_behind_the_last_step_an_exit_status_ends_the_job_whatever_was_printed(
    phase: TrainerPhase, tail: str
) -> None:
    made = desk()
    made.trainer.phase = phase
    fault = ends(made, 1, tail)
    assert "exit status 1" in fault.fatal and tail.splitlines()[-1] in fault.fatal
    assert fault.failing is None


def test_a_crash_at_the_limit() -> None:
    memory = LastMemory(virtual_bytes=100, address_space_limit_bytes=101)
    assert ends(desk(), -11, "", memory).fault == "oom"
    assert ends(desk(), -11, "").fault == "worker_exit"


def test_a_stopped_trainer_is_killed_and_its_end_is_a_hang() -> None:
    made = desk()
    made.part.on_child(e.ChildStopped(made.trainer.child, 1.5))
    assert e.KillChild(made.trainer.child, "it was stopped") in made.ctx.effects
    fault = ends(made, -9)
    assert fault.fault == "hang" and fault.age_seconds == 1.5
    assert "could not show its stack" in fault.evidence


def test_the_stack_of_a_hung_trainer_is_evidence() -> None:
    made = desk()
    made.trainer.hung, made.trainer.hung_since = "it was slow", 90.0
    tail = (
        "Thread 0x1 (most recent call first):\n  File other.py\n\n"
        "Current thread 0x2 (most recent call first):\n"
        '  File "load.py", line 3 in read\n  File "train.py", line 9 in <module>\n'
    )
    fault = ends(made, -9, tail)
    assert fault.evidence == (
        'it was slow; stack, innermost first: File "load.py", line 3 in read'
        ' < File "train.py", line 9 in <module>'
    )


def test_pressure_ends_the_spare_and_holds_back_the_next() -> None:
    made = desk()
    made.settle()
    made.look()
    assert made.crew.spare is not None
    spare = made.crew.spare.child
    made.ctx.effects.clear()
    made.part.on_pressure("9 MiB are left", 9 << 20)
    assert [type(f) for f in made.ctx.effects] == [e.Emit, e.KillChild]
    made.look()
    assert made.crew.spare is None
    made.ctx.now = made.crew.pressed_until
    made.attend()
    assert made.crew.spare is not None
    assert made.crew.spare.child != spare


def test_spares_that_die_at_their_start_are_tried_ever_more_rarely() -> None:
    """The script listens at a port that its trainer has, say. The trainer's own starts are counted
    apart: it is replaced at once, and the job goes on."""
    made = desk()
    made.settle()
    made.look()
    pauses: list[float] = []
    for _ in range(14):
        assert made.crew.spare is not None
        made.part.on_child(e.ChildExited(made.crew.spare.child, 1, "address in use", None, False))
        made.look()
        if made.crew.spare is None:
            (due,) = made.crew.deadlines(let_go=False)
            pauses.append(due - made.ctx.now)
            made.ctx.now = due - 0.1
            made.attend()
            assert made.crew.spare is None
            made.ctx.now = due
            made.attend()
    assert pauses == [10, 20, 40, 80, 160, 320, 640, 640, 640, 640, 640]
    assert not made.crew.hopeless and not made.crew.false_starts
    assert made.crew.spare is not None
    made.crew.at_run(made.crew.spare, TrainerAtRun({}))
    made.part.on_child(e.ChildExited(made.crew.spare.child, -9, "", None, False))
    made.look()
    assert made.crew.spare is not None, "that one had come to its Run(...)"


def test_while_headroom_falls_caches_go_and_then_the_job_is_asked_to_need_less() -> None:
    made = desk()
    made.settle()
    made.part.on_pressure("9 MiB are left", 9 << 20)
    assert made.ctx.effects[-1] == e.TellTrainer(made.trainer.child, TrimMemory())
    made.part.on_pressure("9 MiB are left", 9 << 20)
    made.part.on_pressure("5 MiB are left", 5 << 20)
    (asked,) = [message for message in told(made) if isinstance(message, Pressed)]
    assert asked.generation == EMPTY.generation and asked.reason.startswith("5 MiB are left, less")
    reasons = [f.reason for f in made.ctx.effects if isinstance(f, e.Emit)]
    assert len(reasons) == 2, "nothing is said while headroom holds"


def test_the_job_is_asked_again_until_it_needs_less() -> None:
    """A leader may die with what it was asked, and a member may be in no world just then."""
    made = desk()
    made.settle()
    place, made.part.place = made.part.place, None
    assert place is not None
    for left in (9, 5):
        made.part.on_pressure(f"{left} MiB are left", left << 20)
    assert not [message for message in told(made) if isinstance(message, Pressed)]
    made.part.place = place
    for _ in range(2):
        made.part.on_pressure("5 MiB are left", 5 << 20)
    asked = [message for message in told(made) if isinstance(message, Pressed)]
    assert len(asked) == 2 and asked[1].reason.startswith("5 MiB are left, less")
    place.world = replace(place.world, relief=RECOMPUTE_LEVEL)
    made.part.on_pressure("4 MiB are left", 4 << 20)
    assert len([message for message in told(made) if isinstance(message, Pressed)]) == 2
    texts = [f.reason for f in made.ctx.effects if isinstance(f, e.Emit)]
    assert len([text for text in texts if "asks the job" in text]) == 1, "people are told once"


def test_once_memory_was_enough_the_job_is_not_asked_any_more() -> None:
    made = desk()
    made.settle()
    for left in (9, 5):
        made.part.on_pressure(f"{left} MiB are left", left << 20)
    made.ctx.now = made.crew.pressed_until
    made.attend()
    made.part.on_pressure("9 MiB are left", 9 << 20)
    assert len([message for message in told(made) if isinstance(message, Pressed)]) == 1


def test_a_mac_that_warns_for_hours_ends_one_spare_and_says_so_once() -> None:
    made = desk()
    made.settle()
    made.look()
    made.ctx.effects.clear()
    for _ in range(3600):
        made.ctx.now += 2.0
        made.part.on_pressure("macOS reports memory pressure 2 of 4", 9 << 30, mild=True)
        made.attend()
        made.look()
    assert [type(f) for f in made.ctx.effects] == [e.Emit, e.KillChild]


def test_a_spare_that_lets_memory_run_short_is_started_ever_more_rarely() -> None:
    made = desk()
    made.settle()
    pauses: list[float] = []
    for _ in range(4):
        made.look()
        assert made.crew.spare is not None
        made.part.on_pressure("macOS reports memory pressure 2 of 4", 9 << 30, mild=True)
        assert made.crew.spare is None
        pauses.append(made.crew.pressed_until - made.ctx.now)
        made.ctx.now = made.crew.pressed_until
        made.attend()
    assert pauses == [60, 120, 240, 480]


def test_relief_does_without_spares() -> None:
    made = desk()
    made.settle()
    made.look()
    assert made.crew.spare is not None
    made.member.record = JobRecord(JobId("job-1"), 1, SPEC.to_dict(), "digest", "running", relief=1)
    made.look()
    assert made.crew.spare is None


def test_relief_only_grows_when_records_meet() -> None:
    old = JobRecord(JobId("j"), 1, SPEC.to_dict(), "d", "running", relief=3)
    new = JobRecord(JobId("j"), 1, SPEC.to_dict(), "d", "finished", step=9)
    assert old.merged(new) == new.merged(old)
    assert old.merged(new).relief == 3 and old.merged(new).state == "finished"


WORLD = Tag(3, LEADER, "w")


def in_bring_up(made: Desk) -> int:
    """The member is rank 0 of a world of two whose ring comes up; returns its reducer."""
    place = made.settle((ME, LEADER), WORLD)
    assert place.engine is not None
    reducer = made.ctx.next_child()
    place.engine.adopt(reducer, pid=8, up=False)
    return reducer


def test_a_reducer_that_somebody_stops_in_the_bring_up_is_a_hang_of_its_own() -> None:
    made = desk()
    reducer = in_bring_up(made)
    made.part.on_child(e.ChildStopped(reducer, 2.1))
    assert (the_fault(made).fault, the_fault(made).culprit) == ("hang", ME)


def test_a_reducer_that_the_bring_up_stops_is_none() -> None:
    made = desk()
    reducer = in_bring_up(made)
    made.part.on_engine(ReducerListens(reducer))
    assert StopReducer(reducer) in made.ctx.effects
    made.part.on_child(e.ChildStopped(reducer, 2.1))
    assert not [message for message in told(made) if isinstance(message, Fault)]
    made.part.on_order(Continue(JobId("job-1"), WORLD))
    made.part.on_child(e.ChildStopped(reducer, 2.1))
    assert the_fault(made).fault == "hang", "it was let go on, and somebody stopped it again"


@pytest.mark.parametrize("spent", [False, True])
def test_a_trainer_that_can_not_take_the_state_makes_room_for_one_that_can(spent: bool) -> None:
    made = desk()
    place = made.settle()
    word = TrainerUnloaded(place.world.generation, "before the loop", spent)
    made.part.on_child(e.ChildSaid(made.trainer.child, word))
    made.attend()
    assert the_fault(made).fault == "state_unavailable"
    assert (made.crew.trainer is not made.trainer) is spent
    assert (made.part.place is None) is spent
    assert any(isinstance(f, e.StartTrainer) for f in made.ctx.effects) is spent


def test_a_lost_script_of_a_plain_job_ends_the_world_and_no_trainer() -> None:
    made = desk()
    place = made.settle()
    why = "the script was ended by signal 9"
    word = TrainerLostScript(place.world.generation, "reducer_lost", why)
    made.part.on_child(e.ChildSaid(made.trainer.child, word))
    made.attend()
    assert (the_fault(made).fault, the_fault(made).evidence) == ("reducer_lost", why)
    assert made.crew.trainer is made.trainer and made.part.place is place


def test_a_script_that_is_slow_to_come_to_run_is_told_by_its_limit() -> None:
    """Not by the signal by which its daemon has ended it."""
    made = desk("starting")
    late = e.ChildExited(made.trainer.child, -15, "", late_seconds=2.0)
    made.part.on_child(late)
    made.attend()
    evidence = the_fault(made).evidence
    assert "within 2 s (recovery.user_code_seconds)" in evidence and "signal" not in evidence
