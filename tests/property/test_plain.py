"""A plain job's script begins on all ranks or on none, and runs again once faults end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.recovery.plain import (
    Again,
    Begin,
    Finish,
    GiveUp,
    GoOn,
    Limits,
    NotYet,
    Order,
    ScriptHistory,
    ScriptWord,
    decide,
)

NODES = ("a", "b", "c", "d")
LIMITS = Limits(restarts=8, steady_seconds=600.0)
ROUND_SECONDS = 0.2
ROUNDS = 60
"""After the last fault so many are enough."""


@dataclass
class Company:
    """All ranks; a script is the world in which it was begun, as long as it lives."""

    counter: int = 0
    members: tuple[str, ...] = ()
    words: dict[str, ScriptWord] = field(default_factory=dict)
    told: dict[str, ScriptWord] = field(default_factory=dict)
    scripts: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    history: ScriptHistory = field(default_factory=ScriptHistory)
    order: Order = field(default_factory=NotYet)
    causes: int = 0

    @property
    def world(self) -> tuple[int, str, str]:
        return self.counter, "leader", "nonce"

    def form(self, members: tuple[str, ...], fresh: frozenset[str] = frozenset()) -> None:
        """A world; ``fresh``: whose trainers are new, and know what those before them told."""
        self.counter += 1
        for rank, node in enumerate(members):
            word = self.words.get(node)
            if word is None or node in fresh:
                self.scripts.pop(node, None)
                word = ScriptWord(self.world, rank, members, 0, 0.0)
            elif word.members != members:
                self.scripts.pop(node, None)
                word = replace(word, state="none", ring=None)
            self.words[node] = replace(
                word, world=self.world, rank=rank, members=members, port=7, entered_seconds=0.0
            )
        for node in set(self.words) - set(members):
            self.scripts.pop(node, None)
            del self.words[node]
        self.members = members

    def fails(self, node: str, status: int) -> None:
        """Its script ends by itself, and those that are left lose it."""
        if node not in self.scripts:
            return
        self.causes += 1
        self.end(node, status, "no", follows=False)
        if status < 0:
            self.form(self.members)
        for other in list(self.scripts):
            self.end(other, 1, "lost", follows=True)

    def loses(self, node: str, seen: bool) -> None:
        """The node is gone, its script with it; others may have seen that before the world ends."""
        self.scripts.pop(node, None)
        for other in list(self.scripts) if seen else ():
            self.end(other, 1, "lost", follows=True)

    def end(self, node: str, status: int, text: str, follows: bool) -> None:
        del self.scripts[node]
        self.words[node] = replace(
            self.words[node], state="failed", failed_in=self.world, status=status, text=text,
            follows=follows,
        )  # fmt: skip

    def round(self) -> None:
        """Of news: what follows from what was told, which may be of a world that has ended since;
        then it is told how all are now."""
        self.order, self.history = decide(self.told.values(), self.history, LIMITS)
        assert self.history.failures <= self.causes, "what came from outside counts for nothing"
        match self.order:
            case Begin(world) if world == self.world:
                for node in self.members:
                    self.scripts[node] = world
                    self.words[node] = replace(
                        self.words[node], ring=world, state="running", failed_in=None, text=""
                    )
            case Again(world) if world == self.world:
                self.form(self.members)
            case Finish():
                raise AssertionError("no script has ended as it should")
            case _:
                pass
        for node, word in self.words.items():
            self.words[node] = replace(word, entered_seconds=word.entered_seconds + ROUND_SECONDS)
        self.told |= self.words

    def until_it_goes_on(self) -> None:
        for _ in range(ROUNDS):
            self.round()
        assert isinstance(self.order, GoOn | GiveUp), f"still {self.order}"


faults = st.one_of(
    st.tuples(st.just("fails"), st.sampled_from(NODES), st.sampled_from([1, 3, -9, -11])),
    st.tuples(st.just("lost"), st.sampled_from(NODES), st.integers(0, 1)),
    st.tuples(st.just("joins"), st.sampled_from(NODES), st.just(0)),
    st.tuples(st.just("replaced"), st.sampled_from(NODES), st.integers(0, 1)),
    st.tuples(st.just("reducers"), st.sampled_from(NODES), st.just(0)),
    st.tuples(st.just("rounds"), st.sampled_from(NODES), st.integers(1, 30)),
)


@settings(deadline=None)
@given(st.lists(faults, max_size=30))
def test_it_runs_again_when_faults_end(happens: list[tuple[str, str, int]]) -> None:
    company = Company()
    company.form(NODES[:3])
    for what, node, number in happens:
        here = company.members
        if what == "fails":
            company.fails(node, number)
        elif what == "lost" and node in here and len(here) > 1:
            company.loses(node, seen=bool(number))
            company.form(tuple(each for each in here if each != node))
        elif what == "joins" and node not in here:
            company.form((*here, node))
        elif what == "replaced" and node in here:
            company.loses(node, seen=bool(number))
            company.form(here, frozenset([node]))
        elif what == "reducers":
            begun = dict(company.scripts)
            company.form(here)
            assert company.scripts == begun, "a ring of ours that broke ends no script"
        for _ in range(number if what == "rounds" else 1):
            if not isinstance(company.order, GiveUp):
                company.round()
        if isinstance(company.order, GiveUp):
            break
    if not isinstance(company.order, GiveUp):
        company.until_it_goes_on()
    if isinstance(company.order, GiveUp):
        assert company.causes, "nothing that came from outside is held against the script"
        return
    assert set(company.scripts) == set(company.members)
    assert len(set(company.scripts.values())) == 1
    for node in company.members:
        del company.scripts[node]
        company.words[node] = replace(company.words[node], state="done")
    company.told |= company.words
    assert decide(company.told.values(), company.history, LIMITS)[0] == Finish()
