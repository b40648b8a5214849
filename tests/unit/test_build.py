"""Which build this is, as its daemons, commands and reports say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd import __version__, build
from elasticd.build import digest_of


def folder(at: Path) -> Path:
    """A package as in a checkout: one of its folders is a link."""
    inside, beside = at / "checkout" / "elasticd", at / "checkout" / "recovery"
    (inside / "dashboard" / "page").mkdir(parents=True)
    (inside / "examples").mkdir()
    beside.mkdir()
    (inside / "recovery").symlink_to("../recovery")
    for path in (inside / "a.py", beside / "b.py", inside / "dashboard/page/page.js"):
        path.write_text("x = 1\n")
    return inside


def test_it_is_the_version_and_the_digest_of_this_package() -> None:
    package = Path(build.__file__).parent
    assert build.build() == f"{__version__}+{digest_of(package)}"


def test_an_installed_copy_is_the_same_build(tmp_path: Path) -> None:
    """Of folders that lie apart in a checkout a wheel has copies. What Python and people make in
    its folders is no part of it."""
    package = folder(tmp_path)
    copy = tmp_path / "site-packages" / "elasticd"
    shutil.copytree(package, copy)
    assert not (copy / "recovery").is_symlink()
    for name in ("__pycache__/a.py", "examples/train.py", "py.typed"):
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("made later")
    assert digest_of(copy) == digest_of(package)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a line": lambda package: (package / "a.py").write_text("x = 2\n"),
    "behind a link": lambda package: (package / "recovery/b.py").write_text("x = 2\n"),
    "the web page": lambda package: (package / "dashboard/page/page.js").write_text("x = 2\n"),
    "an empty file": lambda package: (package / "c.py").write_text(""),
    "a name": lambda package: (package / "a.py").rename(package / "c.py"),
    "one file less": lambda package: (package / "recovery/b.py").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_in_it_makes_another(
    change: Callable[[Path], object], tmp_path: Path
) -> None:
    package = folder(tmp_path)
    before = digest_of(package)
    change(package)
    assert digest_of(package) != before


def test_a_file_that_goes_while_another_build_is_installed_ends_nothing(tmp_path: Path) -> None:
    package = folder(tmp_path)
    (package / "gone.py").symlink_to(tmp_path / "nowhere")
    assert len(digest_of(package)) == 8
