"""One trainer process as its daemon sees it, and what to make of what it says and how it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from elasticd.core.context import Context
from elasticd.core.taking_part.adoption import AdoptedTrainer
from elasticd.core.words.effects import ChildExited, KillChild
from elasticd.core.words.processes import CANNOT_BEGIN, OURS, UNCOUNTED
from elasticd.core.words.records import ProbeDigests, Proof, StopAsked, TrainerStatus
from elasticd.core.words.trainers import TrainerAtRun
from elasticd.core.words.worlds import Failing
from elasticd.recovery import signatures
from elasticd.recovery.gpu import GpuBudget
from elasticd.recovery.samples import NO_SAMPLES, Samples
from elasticd.types import Confidence, Point, ProofPart, Sign, Tag, TrainerPhase

_AT_THE_END = ("finished", "released", "done")
"""Phases of trainers that have done all steps: what runs is what stands behind the loop."""


@dataclass(slots=True)
class Trainer:
    child: int
    pid: int = 0
    phase: TrainerPhase = "starting"
    fingerprint: dict[str, str] = field(default_factory=dict)
    samples: Samples = NO_SAMPLES
    """Beside it."""
    probe: ProbeDigests | None = None
    judged: bool = False
    prepared: Point | None = None
    """The state that it was brought to enter a world with."""
    stop: StopAsked | None = None
    """What its script has asked for in its world."""
    came: bool = False
    """Its thread has taken up its world, or waited for one: it is not in the script's own code."""
    proof: Proof | None = None
    """What it has shown of its world's first step."""
    began: int = 0
    """The step of the first state that it has had."""
    entered: Tag | None = None
    """The newest world in which it has had the right state."""
    hung: str = ""
    """Why we killed it, if it hung."""
    hung_since: float = 0.0

    def started(self, pid: int) -> None:
        """Its process runs."""
        self.pid = pid

    def waits(self) -> None:
        """Its interpreter is up."""
        self.phase = "waiting"

    def goes_on(self) -> None:
        """From there to its script."""
        self.phase = "starting"

    def at_run(self, said: TrainerAtRun) -> None:
        """Its script has come to ``Run(…)``."""
        self.phase, self.fingerprint, self.samples = "ready", said.fingerprint, said.samples

    def prepare(self, point: Point) -> None:
        """It holds this state now, though it is in no world."""
        self.prepared = point

    def enter(self) -> None:
        """It is given a world, whose verdict is on what is computed there."""
        self.came = self.phase == "ready"
        self.phase, self.prepared, self.stop, self.proof = "active", None, None, None
        if not self.judged:
            self.probe = None

    def comes(self, began: int) -> None:
        """Its thread has taken up its world."""
        self.came, self.began = True, began

    def has_state(self, generation: Tag) -> None:
        """It holds the right state in this world."""
        self.entered = generation

    def probed(self, result: ProbeDigests) -> None:
        """It has computed a grain twice, and asks, so it knows of no verdict, whatever it was
        sent."""
        self.probe, self.judged = result, False

    def judge(self) -> None:
        """It is told the verdict."""
        self.judged = True

    def proves(self, generation: Tag, part: ProofPart, digests: dict[str, str]) -> None:
        """It shows what it has come to."""
        self.proof = (self.proof or Proof(generation)).put(part, digests)

    def proven(self, generation: Tag, part: ProofPart) -> None:
        """It is told that this is right: nobody needs it any more."""
        if self.proof is not None:
            self.proves(generation, part, {})

    def stops(self, asked: StopAsked) -> None:
        """Its script wants to go no further."""
        self.stop = asked

    def finish(self) -> None:
        """Its last step is committed."""
        self.phase = "finished"

    def release(self) -> None:
        """It may leave the loop."""
        self.phase = "released"

    def done(self) -> None:
        """It has ended as it should."""
        self.phase = "done"

    def hangs(self, why: str, since: float) -> None:
        """It is killed for that."""
        self.hung, self.hung_since = why, since

    @property
    def left_the_loop(self) -> bool:
        """It was released: its reducer and its neighbours' end, and nobody minds."""
        return self.phase in ("released", "done")

    def status(self) -> TrainerStatus:
        return TrainerStatus(
            self.phase, self.pid, self.fingerprint, self.probe, self.judged, self.prepared,
            self.stop, self.came, self.proof, self.began, self.samples,
        )  # fmt: skip


def kill_hung(ctx: Context, trainer: Trainer, why: str, seconds: float) -> None:
    """It overstays, by now for ``seconds``: end it, with its stack as evidence."""
    trainer.hangs(why, ctx.now - seconds)
    ctx.do(KillChild(trainer.child, f"it hung: {why}", dump=True))


def adopted(one: AdoptedTrainer) -> Trainer:
    """A trainer that a daemon before this one has started, by what it says of itself."""
    said = one.said
    if said.fingerprint is None:
        phase: TrainerPhase = "waiting" if said.waiting else "starting"
    elif said.released:
        phase = "released"
    else:
        phase = "active" if one.used else "ready"
    child, prints = one.left.child, said.fingerprint or {}
    return Trainer(
        child, one.left.pid, phase, prints, said.samples,
        judged=said.judged, prepared=said.prepared, entered=said.entered,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ending:
    """What the end of a trainer means."""

    fault: Sign
    evidence: str
    fatal: str = ""
    """Why the job is over."""
    failing: Failing | None = None
    """Why nothing more is started here: it would end in the same way."""
    confidence: Confidence = "certain"
    """How sure that is; empty: as the kind of fault says."""
    status: int | None = None
    """Exit code, or minus the signal."""
    age_seconds: float = 0.0
    """How long ago the first sign of it was seen."""
    stranger_at: int = -1
    """As in :class:`Fault`."""
    by_gpu: bool = False
    """The machine's GPU failed: a new trainer may go on, for a few times."""


def ending(trainer: Trainer, exited: ChildExited, now: float, gpu: GpuBudget) -> Ending:
    """What its end means, by its status, its last words and its memory. A GPU that fails again and
    again is a reason to do without this node."""
    age_seconds = now - trainer.hung_since if trainer.hung else 0.0
    end = replace(_ending(trainer, exited), status=exited.status, age_seconds=age_seconds)
    why = gpu.spend(now) if end.by_gpu else ""
    if not why or trainer.phase in _AT_THE_END:
        return end
    reason = f"{why}, at last: {end.evidence}"
    return replace(end, failing=Failing(reason, looping=trainer.phase == "active"))


def _ending(trainer: Trainer, exited: ChildExited) -> Ending:
    status, tail, memory = exited.status, exited.tail, exited.memory
    if status is None and not trainer.hung:
        text = f"trainer ended while {trainer.phase}, how is not known: its daemon was restarted"
        return Ending("worker_exit", text, confidence="likely")
    status = status or 0
    finding = signatures.cause_of_exit(status, tail, memory)
    evidence = f"trainer ended with {finding.text} while {trainer.phase}"
    if exited.late_seconds:
        within = f"{exited.late_seconds:g} s (recovery.user_code_seconds)"
        evidence = f"trainer did not come to Run(...) within {within}, and was ended"
    if trainer.hung:
        return Ending("hang", trainer.hung + _wait(memory) + _stack(tail), confidence="likely")
    if finding.fault == "worker_exit":
        return _by_itself(trainer.phase, _own_doing(trainer.phase, status, tail), evidence)
    fault: Sign = "oom" if finding.fault == "oom" else "worker_exit"
    end = Ending(fault, evidence, confidence=finding.confidence, by_gpu=finding.fault == "gpu")
    # All steps are done: nothing that the leader could do about memory or the GPU would help.
    own = trainer.phase in _AT_THE_END and status > 0
    return replace(end, fatal=_own_doing(trainer.phase, status, tail)) if own else end


def _wait(memory: signatures.LastMemory | None) -> str:
    """That it hung in the kernel, for want of an answer from elsewhere."""
    if memory is None or not memory.waited_seconds:
        return ""
    return f"; {signatures.WAITED} for {memory.waited_seconds:.0f} s"


def _stack(tail: str) -> str:
    """What faulthandler printed of the main thread, if that is in the last lines."""
    _, found, rest = tail.rpartition("Current thread")
    if not found:
        return ""
    lines = [line.strip() for line in rest.splitlines()[1:]]
    return "; stack, innermost first: " + " < ".join(line for line in lines[:12] if line)


def _by_itself(phase: TrainerPhase, why: str, evidence: str) -> Ending:
    """Its script, or what that has found on this node, has ended it, if anything says ``why``."""
    if phase in _AT_THE_END:
        return Ending("worker_exit", evidence, fatal=why)  # all steps are done: nobody makes up
    failing = Failing(why, looping=phase == "active") if why else None
    return Ending("worker_exit", evidence, failing=failing)


def _own_doing(phase: TrainerPhase, status: int, tail: str) -> str:
    """How a trainer's script has ended it, or nothing."""
    last_lines = "\n".join(tail.strip().splitlines()[-12:])
    last = last_lines.rpartition("\n")[2]
    if status == CANNOT_BEGIN and phase == "starting" and last:
        return last.removeprefix(OURS)
    if status == UNCOUNTED and last.startswith(OURS):
        return ""
    if status > 0:
        ended = f"the script ended with exit status {status}"
        return f"{ended}:\n{last_lines}" if last_lines else ended
    if status == 0 and phase in ("starting", "waiting"):
        return "the script ended without calling elasticd.Run"
    if status == 0 and phase in ("ready", "active", "finished"):
        return "the script ended before its last step"
    return ""
