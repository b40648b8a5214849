"""What the trainers of a plain job keep of its script in the job's state."""

from __future__ import annotations

import json

from elasticd.recipes.plain import remember, remembered
from elasticd.recovery.plain import ScriptHistory
from elasticd.train.states.namespace import Namespace

NEW = (
    '{"begun": 0, "ring": null, "members": [], "failing": 0, "counted": null, "failures": 0, '
    '"same": 0, "last": ""}'
)
"""As the release before has it. Digests of it are compared."""
LINE = "b ended with exit status 1 ValueError"


def test_the_release_before_has_the_same_state() -> None:
    state = Namespace()
    remember(state, ScriptHistory())
    assert json.dumps(state.state_dict()["values"]) == f'{{"history": {NEW}}}'
    assert remembered(state) == ScriptHistory()


def test_who_was_left_out_is_told_beside_what_that_one_knows() -> None:
    state, history = Namespace(), ScriptHistory(left=(LINE,))
    remember(state, history)
    assert json.dumps(state.state_dict()["values"]) == f'{{"history": {NEW}, "left": ["{LINE}"]}}'
    joined = Namespace()
    joined.load_state_dict(state.state_dict())
    assert remembered(joined) == history
    remember(joined, ScriptHistory())
    assert "left" not in joined and remembered(joined) == ScriptHistory()
