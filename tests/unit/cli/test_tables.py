"""Tables at every width: what is shown of an id or a number is the whole of it."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from elasticd import cli
from elasticd.cli import output
from elasticd.cli.checkpoints import STORED
from elasticd.cli.mac.choosing import RESULTS
from elasticd.cli.notify import TELLERS
from elasticd.cli.tables import Table, cut, fitted, fold, shown

NAMES = st.text("abcxyz0189-", min_size=1, max_size=40)
NUMBERS = st.none() | st.integers(0, 10**12) | st.floats(0, 1e6, allow_nan=False)
STEPS = st.builds("{}/{}".format, st.integers(0, 10**7), st.integers(0, 10**7))
STATES = st.sampled_from(["running", "recovering", "queued (12.)", "cancelled"])
# Wide letters, controls, a combining one, one that turns the direction round, and long words.
TEXTS = st.none() | st.text(
    st.sampled_from("ab  日本語\x1b\x9b\r\t\x07\u0301\u202e👩e.") | st.characters(), max_size=120
)
HOLDERS = st.lists(NAMES, min_size=1, max_size=6).map(" ".join)

BYTES = st.none() | st.integers(0, 2**60).map(output.shown_bytes)
MOMENTS = st.just("2026-01-31T14:30:00")
CELLS = NAMES | STATES | STEPS | NUMBERS | BYTES | MOMENTS | st.sampled_from(["yes", "0.4 ms"])


def all_tables() -> dict[str, Table]:
    """Those of all modules, by where they are; and the nodes' with the columns that it may have."""
    found: dict[Table, str] = {}
    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        if not module.name.endswith("__main__"):
            for name, thing in vars(importlib.import_module(module.name)).items():
                if isinstance(thing, Table):
                    found.setdefault(thing, f"{module.name.rpartition('.')[2]}.{name}")
    columns, drops = output.NODES.columns, output.NODES.drops
    found[Table((*columns, "role"), drops)] = "nodes with roles"
    found[NOTED_NODES] = "nodes with notes"
    return {name: table for table, name in found.items()}


def rows_of(table: Table) -> st.SearchStrategy[list[tuple[object, ...]]]:
    """What may stand there: of each column other kinds of things, and in the text anything."""
    texts = HOLDERS if table.ids else TEXTS
    cells = [texts if name == table.text else CELLS for name in table.columns]
    return st.lists(st.tuples(NAMES | NUMBERS, *cells[1:]), max_size=4)


NOTED_NODES = Table((*output.NODES.columns, "note"), output.NODES.drops, text="note")
NAMED = all_tables()
TABLES = st.sampled_from(list(NAMED.values())).flatmap(
    lambda table: st.tuples(st.just(table), rows_of(table))
)


def as_text(table: Table, rows: list[tuple[object, ...]], width: int | None) -> list[str]:
    return ["".join(text for text, _ in line) for line in fitted(table, rows, width)]


def left_out(lines: list[str]) -> list[str]:
    """The columns that the last line names."""
    found = re.search(r"\(too narrow for (.*)\)$", " ".join(lines))
    return found[1].lower().split(", ") if found else []


def test_a_brief_text_below_its_row_ends_without_blanks() -> None:
    columns = ("job", "state", "step", "reason")
    table = Table(columns, drops=("step",), text="reason", ids=False, brief=True)
    assert as_text(table, [("0", "running", "0/0", "1 ")], 20)[2] == "  1"


def test_all_tables_are_found() -> None:
    assert {output.JOBS, output.RANKS, TELLERS, STORED, RESULTS} <= {*NAMED.values()}


def test_what_a_node_tells_people_of_is_folded() -> None:
    told = "job_failed, job_finished, node_lost, node_joined, job_parked"
    lines = as_text(TELLERS, [("mac-studio-1", "alive", told)], 50)
    assert max(map(cell_len, lines)) <= 50 and told in " ".join(" ".join(lines).split()), lines


@pytest.mark.parametrize("name", NAMED)
@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.integers(20, 200))
def test_what_is_shown_is_whole(name: str, data: st.DataObject, width: int) -> None:
    table = NAMED[name]
    rows = data.draw(rows_of(table))
    lines = as_text(table, rows, width)
    dropped = left_out(lines)

    assert dropped == list(table.drops[: len(dropped)]), "columns go in another order"
    assert all(line.isprintable() for line in lines)
    cells = {shown(cell) for row in rows for cell in row}
    ids = {shown(row[table.columns.index(table.text)]) for row in rows if table.ids}
    words = set(itertools.chain(cells, *(text.split() for text in ids)))
    for line in lines:
        assert cell_len(line) <= width or line.strip() in words, line
        assert cell_len(line) <= width or " " not in line.strip(), line

    spaced = [f" {line} " for line in lines]
    for row in rows:
        for name, cell in zip(table.columns, row, strict=True):
            if name in dropped:
                continue
            if name != table.text:
                assert any(f" {shown(cell)} " in line for line in spaced), (name, cell)
            elif shown(cell) == "-":
                continue  # there is none, and no line below says so
            elif table.brief:
                rooms = (shown(cell), *(cut(shown(cell), room) for room in range(width)))
                assert any(line.endswith(text.rstrip()) for line in lines for text in rooms)
            elif table.ids:
                assert all(any(f" {w} " in line for line in spaced) for w in shown(cell).split())
            else:
                letters = re.sub(r"\s", "", "".join(lines))
                # Folded beside other columns its letters are apart, but all are there.
                assert set(re.sub(r"\s", "", shown(cell))) <= set(letters)


@settings(max_examples=200, deadline=None)
@given(TEXTS.filter(bool), st.integers(20, 200))
def test_a_folded_text_is_the_same_text(text: str, width: int) -> None:
    whole = shown(text)
    lines = fold(whole, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(whole.split())


@settings(max_examples=100, deadline=None)
@given(TABLES)
def test_in_a_pipe_each_row_is_one_line(made: tuple[Table, list[tuple[object, ...]]]) -> None:
    table, rows = made
    lines = as_text(table, rows, None)
    assert len(lines) == 1 + len(rows)
    assert lines[0].split() == " ".join(table.columns).upper().split()


JOB = ("byte-lm-12-k3f9", "recovering", "58/400", 2.134567, 3.1, 3, 12, "node-1 is silent for 2 s")


@pytest.mark.parametrize(
    ("width", "shown_as"),
    [
        (
            100,
            [
                "JOB              STATE       STEP     LOSS  STEPS/S  RANKS  RECOVERIES  REASON",
                "byte-lm-12-k3f9  recovering  58/400  2.135      3.1      3          12"
                "  node-1 is silent for 2 s",
            ],
        ),
        (
            80,
            [
                "JOB              STATE       STEP     LOSS  STEPS/S  RANKS  RECOVERIES",
                "byte-lm-12-k3f9  recovering  58/400  2.135      3.1      3          12",
                "  node-1 is silent for 2 s",
            ],
        ),
        (
            50,
            [
                "JOB              STATE       STEP     LOSS",
                "byte-lm-12-k3f9  recovering  58/400  2.135",
                "  node-1 is silent for 2 s",
                "(too narrow for RECOVERIES, RANKS, STEPS/S)",
            ],
        ),
        (
            20,
            [
                "byte-lm-12-k3f9",
                "  state recovering",
                "  node-1 is silent…",
                "(too narrow for",
                "RECOVERIES, RANKS,",
                "STEPS/S, LOSS, STEP)",
            ],
        ),
    ],
)
def test_how_a_table_gives_way(width: int, shown_as: list[str]) -> None:
    assert as_text(output.JOBS, [JOB], width) == shown_as


REASON = "waits for node-1 and node-2, which have not answered for a long time"
NOTED = ("node-1", "127.0.0.1:7070", "draining", 4100, "M1", "16.0 GiB", "0.1", REASON)


def test_a_text_is_folded_in_its_column_while_that_is_wide_enough() -> None:
    lines = as_text(NOTED_NODES, [NOTED], 100)
    assert lines[1].endswith("  waits for node-1 and node-2, which") and len(lines) == 3
    assert lines[2].startswith(" " * 60)


@pytest.mark.parametrize(
    ("width", "last"),
    [
        (110, "12  waits for node-1 and node-2, which…"),
        (80, "  waits for node-1 and node-2, which have not answered for a long time"),
        (60, "  waits for node-1 and node-2, which have not answered for…"),
    ],
)
def test_a_reason_in_a_list_has_one_line(width: int, last: str) -> None:
    lines = as_text(output.JOBS, [(*JOB[:-1], REASON)] * 2, width)
    shown_as = [line for line in lines if "waits for" in line]
    assert len(shown_as) == 2 and shown_as[0].endswith(last) and cell_len(last) <= width
    assert len(lines) == (3 if width == 110 else 5) + (width == 60)


@given(TEXTS.filter(bool), st.integers(2, 200))
def test_a_cut_text_is_its_beginning(text: str, width: int) -> None:
    whole = shown(text)
    short = cut(whole, width)
    assert cell_len(short) <= width
    assert short == whole.rstrip(" ") or (short.endswith("…") and whole.startswith(short[:-1]))
