"""outputs: a folder that appears whole or not at all, and never over another."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.otheraccount import need_root
from tests.nobody import NOBODY

from .test_commands import Ctl, Daemon

Serve = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """Frames of a daemon that hands out files by name; None: changed meanwhile."""

    def frames(copy: bool = False, **files: str | None) -> list[dict[str, Any]]:
        head = {
            "job": "j", "node": "node-1", "main": "node-0", "copy": copy, "made": 0.0,
            "files": len(files), "bytes": 9, "skipped": ["big"] if copy else [], "note": "",
        }  # fmt: skip
        said: list[dict[str, Any]] = [head]
        for number, (name, text) in enumerate(files.items()):
            path = tmp_path / f"source-{number}"
            path.write_text(text or "")
            os.utime(path, (5, 5))
            said.append({"name": name, "received": 1})
            shown = None if text is None else str(path)
            said.append({"name": name, "bytes": len(text or ""), "path": shown})
        return [*said, {"end": True}]

    return frames


def test_the_folder_is_made(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    fake = daemon(home, {"outputs": serve(**{"a.txt": "one", "b/c.txt": "two"})})
    out = tmp_path / "out"
    assert ctl("outputs", "j", "--out", out, "--home", home) == (0, f"2 files, 9 B: {out}\n", "")
    assert fake.requests == [{"do": "outputs", "job": "j"}]
    assert (out / "b/c.txt").read_text() == "two"
    assert (out / "a.txt").stat().st_mtime == 5 and not list(tmp_path.glob(".out.*"))


def test_a_copy_is_told(ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve) -> None:
    daemon(home, {"outputs": serve(copy=True, a="one")})
    out = tmp_path / "out"
    out.mkdir()  # an empty one will do
    code, said, warned = ctl("outputs", "j", "--out", out, "--home", home)
    assert code == 0 and "node-1's copy" in said and "1970-01-01" in said
    assert warned == "big: was not copied to other nodes (see the event output_skipped)\n"


def test_what_changed_meanwhile_is_named(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    daemon(home, {"outputs": serve(a="one", b=None)})
    out = tmp_path / "out"
    code, said, warned = ctl("outputs", "j", "--out", out, "--home", home, "--json")
    assert code == 1 and warned.startswith("b: changed while it was read")
    told = json.loads(said)
    assert (told["files"], told["changed"], told["out"]) == (["a"], ["b"], str(out))
    assert [path.name for path in out.iterdir()] == ["a"]


def test_what_is_damaged_is_named_and_the_others_come(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    frames = serve(a="one", b=None)
    daemon(
        home,
        {"outputs": [*frames[:-2], {**frames[-2], "why": "a disk has changed b"}, {"end": True}]},
    )
    out = tmp_path / "out"
    code, _, warned = ctl("outputs", "j", "--out", out, "--home", home)
    assert (code, warned) == (1, "b: was not copied: a disk has changed b\n")
    assert [path.name for path in out.iterdir()] == ["a"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda out: out.write_text("x"), "is no folder"),
        (lambda out: (out.mkdir(), (out / "mine").touch()), "is not empty"),
        (lambda out: out.symlink_to(out.parent), "is no folder"),
    ],
    ids=["file", "full", "link"],
)
def test_nothing_is_overwritten(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, make: Callable[[Path], Any], why: str
) -> None:
    fake = daemon(home, {})
    make(tmp_path / "out")
    code, said, warned = ctl("outputs", "j", "--out", tmp_path / "out", "--home", home)
    assert (code, said) == (2, "") and why in warned and warned.count("\n") == 1
    assert fake.requests == []


def test_a_parent_that_is_missing_is_said(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path
) -> None:
    code, _, warned = ctl("outputs", "j", "--out", tmp_path / "no" / "out", "--home", home)
    assert code == 2 and "there is no such folder" in warned


@pytest.mark.parametrize("name", ["../up", "/etc/up", "a/../../up"])
def test_no_name_leaves_the_folder(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve, name: str
) -> None:
    daemon(home, {"outputs": serve(**{"a": "one", name: "two"})})
    code, _, warned = ctl("outputs", "j", "--out", tmp_path / "out", "--home", home)
    assert code == 1 and "is no name of an output file" in warned
    assert not list(tmp_path.glob("*out*")) and not list(tmp_path.glob("**/up"))


def test_no_half_folder_is_left(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    frames = [*serve(a="one")[:-1], {"error": "node-0 went away", "code": 1}]
    daemon(home, {"outputs": frames})
    code, _, warned = ctl("outputs", "j", "--out", tmp_path / "out", "--home", home)
    assert (code, warned) == (1, "elasticctl: node-0 went away\n")
    assert not list(tmp_path.glob("*out*"))


def test_what_is_a_link_or_a_pipe_by_now_is_not_read(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    frames = serve(a="one", b="two", c="three")
    for number, make in ((1, os.mkfifo), (2, lambda path: os.symlink("/etc/passwd", path))):
        path = tmp_path / f"source-{number}"
        path.unlink()
        make(path)
    daemon(home, {"outputs": frames})
    out = tmp_path / "out"
    code, _, warned = ctl("outputs", "j", "--out", out, "--home", home)
    assert code == 1 and warned.count("changed while it was read") == 2
    assert [path.name for path in out.iterdir()] == ["a"]


def test_as_root_only_files_of_the_daemons_account_are_copied(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    need_root()
    daemon(home, {"outputs": serve(a="one", b="two")}).pose()
    os.chown(tmp_path / "source-1", NOBODY, -1)
    out = tmp_path / "out"
    code, said, warned = ctl("outputs", "j", "--out", out, "--home", home, "--json")
    assert code == 1 and warned.count("\n") == 1
    assert warned.startswith("a: was not copied: ") and "runs as nobody, names this" in warned
    told = json.loads(said)
    assert (told["files"], told["changed"], told["refused"]) == (["b"], [], ["a"])
    assert [path.name for path in out.iterdir()] == ["b"]
    os.chown(tmp_path / "source-0", NOBODY, -1)
    assert ctl("outputs", "j", "--out", tmp_path / "again", "--home", home)[0] == 0
    assert (tmp_path / "again" / "a").read_text() == "one"


def test_a_file_that_is_left_out_for_its_name_is_named(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    frames = serve(A="one")
    frames[0]["skipped"] = ["a"]
    daemon(home, {"outputs": frames})
    code, _, warned = ctl("outputs", "j", "--out", tmp_path / "out", "--home", home)
    assert (code, warned) == (0, "a: was left out: another file's name differs in case only\n")


def test_what_main_left_out_is_named(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    frames = serve(a="one")
    frames[0]["skipped"] = ["deep/"]
    daemon(home, {"outputs": frames})
    code, _, warned = ctl("outputs", "j", "--out", tmp_path / "out", "--home", home)
    assert (code, warned) == (0, "deep/: was left out: one too many, or its name can't travel\n")


def test_of_many_that_are_left_out_some_are_named(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    frames = serve(a="one")
    frames[0]["skipped"] = [f"deep-{number}/" for number in range(1000)]
    frames[0]["skipped_files"] = 5000
    daemon(home, {"outputs": frames})
    code, _, warned = ctl("outputs", "j", "--out", tmp_path / "out", "--home", home)
    assert (
        code == 0
        and warned.count("\n") == 21
        and "4980 more were left out; --json names 1000 of all" in warned
    )


def test_why_a_copy_came_is_said_beside_its_age(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    frames = serve(copy=True, a="one")
    frames[0] |= {"skipped": [], "note": "node-0 did not give its files"}
    daemon(home, {"outputs": frames})
    code, said, warned = ctl("outputs", "j", "--out", tmp_path / "out", "--home", home)
    assert (code, warned) == (0, "node-0 did not give its files\n") and "1970-01-01" in said


def test_a_folder_that_can_t_be_made_is_named(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve
) -> None:
    daemon(home, {"outputs": serve(a="one")})
    out = tmp_path / ("n" * 300)
    code, _, warned = ctl("outputs", "j", "--out", out, "--home", home)
    assert code == 1 and warned == f"elasticctl: {out}: File name too long\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_ended_leaves_nothing(
    ctl: Ctl, home: Path, daemon: Daemon, tmp_path: Path, serve: Serve, number: signal.Signals
) -> None:
    out, before = tmp_path / "out", signal.signal(number, signal.SIG_DFL)
    begun: list[Path] = []

    def ended(_: dict[str, Any]) -> Iterator[dict[str, Any]]:
        head, *files, end = serve(a="one", b="two")
        yield from (head, *files)
        begun.extend(tmp_path.glob(".out.*"))
        os.kill(os.getpid(), number)
        yield end

    daemon(home, {"outputs": ended})
    try:
        code, _, _ = ctl("outputs", "j", "--out", out, "--home", home, "--json")
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert code == 130 and len(begun) == 1
    assert not out.exists() and not list(tmp_path.glob(".out.*"))
