"""Tell, don't ask: what an object holds is changed by its own methods, and by nobody else.

Read from the source of elasticd/core: a field is assigned, and a set, dict or list in a field is
changed, only through ``self``, or in the file that has the object's class (a record that belongs
to the part beside it). Who it is that is changed is found by the annotations of fields and of
parameters; where there are none, a class of the file has to have a field of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CORE = Path(__file__).parents[3] / "elasticd" / "core"
OF_SETS = "add discard remove update clear pop"
OF_OTHERS = "popitem popleft append appendleft extend insert setdefault sort reverse"
CHANGING = frozenset(f"{OF_SETS} {OF_OTHERS}".split())
CONTAINERS = ("set[", "dict[", "list[", "deque[")


@dataclass(slots=True)
class Class:
    file: Path
    fields: dict[str, str] = field(default_factory=dict)
    """Their annotations."""


def annotation(node: ast.expr | None) -> str:
    """Of what may be None too, what it is else."""
    text = ast.unparse(node).strip("'\"") if node is not None else ""
    return text.removesuffix(" | None")


def classes() -> dict[str, Class]:
    found: dict[str, Class] = {}
    for path in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name] = Class(path, dict(fields_of(node)))
    return found


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Of a dataclass, or as ``__init__`` makes them; and what properties give."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            if "InitVar" not in ast.unparse(each.annotation):
                yield each.target.id, annotation(each.annotation)
        elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
            for inner in ast.walk(each):
                yield from made(inner)
        elif isinstance(each, ast.FunctionDef) and "property" in map(
            ast.unparse, each.decorator_list
        ):
            yield each.name, annotation(each.returns)


def made(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
        yield node.target.attr, annotation(node.annotation)
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            for each in flat(target):
                if isinstance(each, ast.Attribute) and isinstance(node.value, ast.Call):
                    yield each.attr, ast.unparse(node.value.func).partition(".")[0]


def flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from flat(each)
    else:
        yield target


@dataclass(slots=True)
class Reader:
    """Of one method or function."""

    file: Path
    known: dict[str, Class]
    types: dict[str, str]
    """Of self, the parameters, and names that were given to what these hold."""
    others: dict[str, ast.Attribute] = field(default_factory=dict)
    """Names for what somebody else holds."""

    def offences(self, function: ast.FunctionDef) -> Iterator[str]:
        nodes = list(ast.walk(function))
        for node in nodes:
            if isinstance(node, ast.Assign):
                self.learn(node)
        for node in nodes:
            if isinstance(node, ast.stmt | ast.expr):
                lines = ast.unparse(node).partition("\n")[0]
                for target in self.changed(node):
                    if not self.owns(target):
                        yield f"{self.file.relative_to(CORE)}:{node.lineno}: {lines[:90]}"

    def learn(self, node: ast.Assign) -> None:
        """What a name stands for that is given to a field."""
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                if isinstance(name, ast.Name) and isinstance(value, ast.Attribute):
                    self.types[name.id] = self.type_of(value)
                    if ast.unparse(value.value) != "self":
                        self.others[name.id] = value

    def changed(self, node: ast.stmt | ast.expr) -> Iterator[ast.Attribute]:
        """The fields of others that a statement or call changes."""
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = [each for target in node.targets for each in flat(target)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            held = node.func.value
            if node.func.attr in CHANGING and self.is_container(self.named(held, True)):
                targets = [held]
        called = isinstance(node, ast.Call)
        for target in targets:
            found = self.named(target, called or isinstance(target, ast.Subscript))
            if isinstance(found, ast.Attribute) and ast.unparse(found.value) != "self":
                yield found

    def named(self, node: ast.expr, inside: bool) -> ast.expr:
        """What is changed, ``inside`` or by giving the field another value."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if inside and isinstance(node, ast.Name):
            return self.others.get(node.id, node)
        return node

    def is_container(self, node: ast.expr) -> bool:
        if not isinstance(node, ast.Attribute):
            return False
        if known := self.type_of(node):
            return known.startswith(CONTAINERS)
        kinds = {each.fields.get(node.attr, "") for each in self.known.values()}
        return any(kind.startswith(CONTAINERS) for kind in kinds)

    def owns(self, target: ast.Attribute) -> bool:
        """Whether the object's class is in this file."""
        if (name := self.type_of(target.value)) in self.known:
            return self.known[name].file == self.file
        mine = (each for each in self.known.values() if each.file == self.file)
        return any(target.attr in each.fields for each in mine)

    def type_of(self, node: ast.expr) -> str:
        """As far as annotations tell."""
        match node:
            case ast.Name(name):
                return self.types.get(name, "")
            case ast.Attribute(value, name):
                holder = self.known.get(self.type_of(value))
                return holder.fields.get(name, "") if holder is not None else ""
            case ast.Subscript(value):
                return items_of(self.type_of(value))
            case _:
                return ""


def items_of(kind: str) -> str:
    """What a dict or list holds."""
    return kind.rstrip("]").rpartition(", ")[2].rpartition("[")[2] if "[" in kind else ""


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """With the class that each is a method of."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, node.name)
        elif isinstance(node, ast.FunctionDef):
            yield inside, node


def offences(path: Path, text: str, known: dict[str, Class]) -> Iterator[str]:
    for inside, function in functions(ast.parse(text)):
        arguments = [*function.args.args, *function.args.kwonlyargs]
        names = {each.arg: annotation(each.annotation) for each in arguments}
        names |= {"self": inside} if inside else {}
        yield from Reader(path, known, names).offences(function)


def test_nobody_changes_what_another_holds() -> None:
    known = classes()
    assert len(known) > 200
    files = {path: path.read_text() for path in sorted(CORE.rglob("*.py"))}
    assert [each for path, text in files.items() for each in offences(path, text, known)] == []


@pytest.mark.parametrize(
    "line",
    [
        "office.course.committed = 1",
        "office.course.committed, it = 1, 2",
        "office.course.progress['n'] = it",
        "del office.course.progress['n']",
        "office.wishes.discharged.add('n')",
        "course = office.course; course.committed += 1",
        "known, it = office.course.progress, 1; known.clear()",
        "office.growth.newcomers['n'].tries += 1",
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    text = f"def do(office: Office) -> None:\n    {line}\n"
    assert list(offences(CORE / "leading" / "new.py", text, classes()))
