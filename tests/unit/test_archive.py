"""A job's folder as an archive."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest

from elasticd import archive
from elasticd.errors import ConfigError, ProtocolError, UsageError
from elasticd.ignore import Ignore
from elasticd.removing import remove_tree
from elasticd.settings.needed import NeededFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    fill(folder, {"train.py": "print()", "data/a.txt": "a", "data/deep/b.bin": "b"})
    return folder


def fill(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def names(packed: archive.Archive) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed.data)) as tar:
        return tar.getnames()


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for header, content in members:
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def test_a_folder_comes_back_as_it_was(folder: Path, tmp_path: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o700)
    (folder / "größe-\N{SNOWMAN}.txt").write_text("x")
    (folder / ("n" * 200)).write_text("long")
    packed = archive.pack(folder)
    assert packed.digest == hashlib.blake2b(packed.data, digest_size=32).hexdigest()
    assert packed.files == 6
    archive.unpack(packed.data, tmp_path / "copy")
    assert archive.pack(tmp_path / "copy") == packed
    assert os.access(tmp_path / "copy" / "run.sh", os.X_OK)
    assert not os.access(tmp_path / "copy" / "train.py", os.X_OK)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "job"]


def made(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_dir())


def test_empty_folders_travel(folder: Path, tmp_path: Path) -> None:
    before = archive.pack(folder)
    for name in ("ckpts", "data/größe", "out/deep/deeper", "old"):
        (folder / name).mkdir(parents=True)
    (folder / "old" / "x.pyc").touch()
    packed = archive.pack(folder)
    assert packed.files == 3 and packed.files_digest == before.files_digest == before.digest
    archive.unpack(packed.data, tmp_path / "copy")
    filled = ["ckpts", "data", "data/deep", "data/größe", "old", "out", "out/deep"]
    assert made(tmp_path / "copy") == [*filled, "out/deep/deeper"]
    assert archive.pack(tmp_path / "copy") == packed
    assert archive.is_unpacked(packed.data, tmp_path / "copy")
    (tmp_path / "copy" / "out" / "deep" / "deeper").rmdir()
    assert not archive.is_unpacked(packed.data, tmp_path / "copy")


def test_daemons_of_before_find_the_files_beside_empty_folders(folder: Path) -> None:
    """They refuse a member that is no file, and pass over headers that they don't know."""
    (folder / "ckpts").mkdir()
    data = archive.pack(folder).data
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert all(member.type == tarfile.REGTYPE for member in tar)
        assert tar.pax_headers == {"ELASTICD.empty_folders": '["ckpts"]'}
    assert "ckpts" not in archive.files_of(data)


def test_which_empty_folders_do_not_travel(folder: Path, tmp_path: Path) -> None:
    fill(folder, {"home/node-0/elasticd.toml": "", "a/.git/x": "", ".elasticdignore": "tmp/\n"})
    for name in ("tmp", "b/tmp", "lib/__pycache__"):
        (folder / name).mkdir(parents=True)
    archive.unpack(archive.pack(folder).data, tmp_path / "copy")
    assert made(tmp_path / "copy") == ["a", "b", "data", "data/deep", "lib"]


def test_empty_folders_that_are_named(folder: Path, tmp_path: Path) -> None:
    fill(folder, {"more/x.bin": "", ".elasticdignore": "*.bin\n"})
    (folder / "ckpts").mkdir()
    packed = archive.pack(folder, ["train.py", "ckpts", "more", "more/x.bin"])
    archive.unpack(packed.data, tmp_path / "copy")
    assert made(tmp_path / "copy") == ["ckpts", "more"] and packed.files == 2
    assert b"more" not in packed.data[: packed.data.index(b"more/x.bin")]


def test_too_many_empty_folders_are_refused(folder: Path) -> None:
    for number in range(archive.MAX_FILES - 2):
        (folder / "data" / str(number)).mkdir()
    with pytest.raises(UsageError, match=r"10000 files and empty folders .* in .*/data\)"):
        archive.pack(folder)


def test_an_empty_folder_in_the_way_of_a_file_is_refused(folder: Path) -> None:
    (folder / "TRAIN.PY").mkdir()
    if len(list(folder.iterdir())) < 3:
        pytest.skip("this disk knows no case")
    with pytest.raises(UsageError, match=r"train\.py and TRAIN\.PY are in each other's way"):
        archive.pack(folder)


def test_who_writes_a_file_anew_shows_by_its_time(folder: Path, tmp_path: Path) -> None:
    """At once, at the same size, and on a disk that tells every other second: clones go by it."""
    archive.unpack(archive.pack(folder).data, tmp_path / "copy")
    path = tmp_path / "copy" / "train.py"
    sent = path.stat()
    path.write_bytes(b"x" * sent.st_size)
    assert sent.st_mtime_ns // 10**9 // 2 < path.stat().st_mtime_ns // 10**9 // 2
    assert sent.st_mtime_ns % (2 * 10**9) == 0


def test_times_owners_and_order_do_not_count(folder: Path, tmp_path: Path) -> None:
    packed = archive.pack(folder)
    other = tmp_path / "other"
    other.mkdir()
    fill(other, {"data/deep/b.bin": "b", "data/a.txt": "a", "train.py": "print()"})
    os.utime(other / "train.py", (1, 1))
    (other / "train.py").chmod(0o600)
    assert archive.pack(other) == packed
    (other / "train.py").write_text("print(1)")
    assert archive.pack(other).digest != packed.digest


def test_what_is_never_shipped(folder: Path) -> None:
    fill(folder, dict.fromkeys((".git/x", "a/__pycache__/x", ".venv/x", "x.pyc"), ""))
    fill(
        folder,
        dict.fromkeys((".DS_Store", "node_modules/x", "home/node-0/elasticd.toml"), ""),
    )
    fill(folder, {"home/node-0/control.log": "", "._train.py": "", "__MACOSX/data/._a.txt": ""})
    assert names(archive.pack(folder)) == ["data/a.txt", "data/deep/b.bin", "train.py"]


def test_the_ignore_file_is_obeyed(folder: Path) -> None:
    fill(folder, {".elasticdignore": "*.bin\n/data/*.txt\n!keep.bin\n", "keep.bin": ""})
    assert names(archive.pack(folder)) == [".elasticdignore", "keep.bin", "train.py"]


@pytest.mark.parametrize(
    ("lines", "path", "ignored"),
    [
        ("*.log", "a.log", True),
        ("*.log", "a/b/c.log", True),
        ("*.log", "a.log.txt", False),
        ("/a.log", "b/a.log", False),
        ("/a.log", "a.log", True),
        ("b/a.log", "b/a.log", True),
        ("b/a.log", "c/b/a.log", False),
        ("b/*", "b/c/d", False),
        ("b/**", "b/c/d", True),
        ("**/c", "c", True),
        ("**/c", "a/b/c", True),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/x/y/c", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[a-c]1", "b1", True),
        ("[!a-c]1", "b1", False),
        ("[!a-c]1", "d1", True),
        ("[]]x", "]x", True),
        ("[z-a]", "[z-a]", True),
        ("a[", "a[", True),
        ("\\*x", "*x", True),
        ("\\*x", "ax", False),
        ("# x\n\n   \n", "# x", False),
        ("*.log\n!a.log", "a.log", False),
        ("!a.log\n*.log", "a.log", True),
        ("!.git", ".git", False),
        ("a.b", "axb", False),
        ("only/", "only", False),
    ],
)
def test_patterns_mean_what_git_means_by_them(lines: str, path: str, ignored: bool) -> None:
    assert Ignore(lines.split("\n"))(path, folder=False) is ignored


def test_a_slash_at_the_end_matches_folders() -> None:
    assert Ignore(["only/"])("a/only", folder=True)


def test_links_inside_are_followed(folder: Path) -> None:
    (folder / "link.py").symlink_to("train.py")
    (folder / "more").symlink_to("data")
    assert names(archive.pack(folder)) == [
        "data/a.txt",
        "data/deep/b.bin",
        "link.py",
        "more/a.txt",
        "more/deep/b.bin",
        "train.py",
    ]


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert archive.pack(tmp_path / "link") == archive.pack(folder)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("/etc/hosts", "is a link that leaves the job's folder"),
        ("../secret", "is a link that leaves the job's folder"),
        ("..", "is a link to a folder above it"),
        ("missing", "can't be read: No such file or directory"),
        ("bad", "can't be read: Too many levels of symbolic links"),
    ],
)
def test_bad_links_are_refused_by_name(target: str, error: str, folder: Path) -> None:
    (folder.parent / "secret").touch()
    link = folder / "data" / "bad"
    link.symlink_to(target if not target.startswith("../") else "../../secret")
    with pytest.raises(UsageError) as raised:
        archive.pack(folder)
    assert str(raised.value) == f"{link}: {error}"


def test_links_in_a_circle_are_refused(folder: Path) -> None:
    for here, there in (("p", "q"), ("q", "p")):
        (folder / here).mkdir()
        (folder / here / "to").symlink_to(f"../{there}")
    with pytest.raises(UsageError, match="is a link to a folder above it"):
        archive.pack(folder)


def test_an_ignored_link_is_no_matter(folder: Path) -> None:
    (folder / "out").symlink_to("/")
    (folder / ".elasticdignore").write_text("out\n")
    assert "out" not in names(archive.pack(folder))


def test_sockets_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        with pytest.raises(UsageError, match=r"s: is no regular file"):
            archive.pack(folder)


def test_too_much_is_refused_by_the_biggest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (folder / "data" / "huge").open("wb") as huge:
        huge.truncate(archive.MAX_ARCHIVE_BYTES + 1)
    with pytest.raises(UsageError, match=r"more than 64 MiB \(the biggest .* data/huge, 64"):
        archive.pack(folder)


def test_too_many_files_are_refused_by_the_fullest_folder(folder: Path) -> None:
    for number in range(archive.MAX_FILES):
        (folder / "data" / str(number)).touch()
    with pytest.raises(UsageError, match=r"more than 10000 files .* in .*/data\)"):
        archive.pack(folder)


@pytest.mark.parametrize(
    ("one", "two"),
    [("Model.py", "model.py"), ("Foo", "foo/x"), ("lib/A/x", "lib/a"), ("\u00e9", "e\u0301")],
)
def test_names_that_are_one_on_some_disk_are_refused(folder: Path, one: str, two: str) -> None:
    fill(folder, {one: "1", two: "2"})
    if len({path for path in folder.rglob("*") if path.is_file()}) < 5:
        pytest.skip("this disk knows no case")
    with pytest.raises(UsageError) as refused:
        archive.pack(folder)
    assert one in str(refused.value) and two in str(refused.value)
    (folder / archive.IGNORE_FILE).write_text(two.removesuffix("/x"))
    assert one in names(archive.pack(folder))


def test_folders_without_end_are_refused(folder: Path, tmp_path: Path) -> None:
    fill(folder, {"d/" * archive.DEEPEST + "x": "1"})
    archive.unpack(archive.pack(folder).data, tmp_path / "copy")
    below = folder
    for _ in range(1100):
        below = below / "d"
        below.mkdir(exist_ok=True)
    with pytest.raises(UsageError, match="more than 100 folders"):
        archive.pack(folder)
    (folder / archive.IGNORE_FILE).write_text("d/\n")
    assert len(names(archive.pack(folder))) == 4
    remove_tree(folder / "d")


def header(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = "/etc/passwd" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    return info


def chained(kind: bytes, data: bytes) -> bytes:
    """Headers that each speak of the next, to no end."""
    one = tarfile.TarInfo("x")
    one.type, one.size = kind, len(data)
    return (one.tobuf(tarfile.GNU_FORMAT) + data.ljust(512, b"\0")) * 3000


def with_folders(named: str) -> bytes:
    """A file "a" and a header that names empty folders."""
    header_of_all = tarfile.TarInfo.create_pax_global_header({"ELASTICD.empty_folders": named})
    return header_of_all + tar_of((header("a"), b"1"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no archive at all" * 100,
        tar_of((header("/etc/x"), b"")),
        tar_of((header("../x"), b"")),
        tar_of((header("a/../../x"), b"")),
        tar_of((header("."), b"")),
        tar_of((header("a", tarfile.SYMTYPE), b"")),
        tar_of((header("a", tarfile.LNKTYPE), b"")),
        tar_of((header("a", tarfile.CHRTYPE), b"")),
        tar_of((header("a", tarfile.FIFOTYPE), b"")),
        tar_of((header("a", tarfile.DIRTYPE), b"")),
        tar_of((header("a"), b"1"), (header("a"), b"2")),
        tar_of((header("a"), b"1"), (header("a/b"), b"2")),
        tar_of((header("a/b"), b"1"), (header("a"), b"2")),
        tar_of((header("Model.py"), b"1"), (header("model.py"), b"2")),
        tar_of((header("Foo"), b"1"), (header("foo/x"), b"2")),
        tar_of((header("foo/x"), b"1"), (header("FOO"), b"2")),
        tar_of((header("\u00e9"), b"1"), (header("e\u0301"), b"2")),
        tar_of((header("d/" * (archive.DEEPEST + 1) + "x"), b"1")),
        tar_of((header("a"), b"x" * 5000))[:2000],
        b"\0" * (archive.MAX_ARCHIVE_BYTES + 1),
        chained(tarfile.GNUTYPE_LONGNAME, b"a\0"),
        chained(tarfile.XHDTYPE, b"11 path=xy\n"),
        with_folders("no JSON"),
        with_folders("[" * 100_000),
        with_folders("{}"),
        with_folders("[1]"),
        with_folders('["/etc/x"]'),
        with_folders('["b/../../x"]'),
        with_folders('["b\\u0000"]'),
        with_folders('["b\\ud800"]'),
        with_folders('["."]'),
        with_folders('["A"]'),
        with_folders('["a/b"]'),
        with_folders(json.dumps(["d/" * (archive.DEEPEST + 1)])),
        with_folders(json.dumps([str(number) for number in range(archive.MAX_FILES)])),
    ],
    ids=range(36),
)
def test_what_pack_never_writes_is_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError):
        archive.unpack(data, tmp_path / "job")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_left_alone(folder: Path) -> None:
    with pytest.raises(FileExistsError):
        archive.unpack(archive.pack(folder).data, folder)


def test_which_files_are_in_it(folder: Path) -> None:
    sent = archive.files_of(archive.pack(folder).data)
    assert "train.py" in sent
    assert NeededFile("key", "./data/a.txt").unsent(folder, sent, None, ".elasticdignore") == ""
    assert "data" not in sent


_REST = "batch = { global = 2, micro = 1 }\ntrain = { steps = 1 }\n"


def test_of_a_bare_job_only_its_script_and_files_are_shipped(tmp_path: Path) -> None:
    described = f'{_REST}[job]\nname = "a"\nentrypoint = "a.py"\n'
    (tmp_path / "a.py").write_text("print()")
    (tmp_path / "other.toml").write_text("")
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "x.bin").write_bytes(b"x")
    toml = tmp_path / "a.toml"
    toml.write_text(described)
    spec, packed = archive.of_job(toml, bare=True)
    assert (spec.job.entrypoint, packed.files) == ("a.py", 1)
    assert archive.of_job(toml)[1].files == 4, "the whole folder"
    toml.write_text(f'{described}files = ["data", "a.py"]\n')
    for bare in (True, False):
        packed = archive.of_job(toml, bare=bare)[1]
        assert packed.files == 2 and "data/deep/x.bin" in archive.files_of(packed.data)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "missing", "link", ""])
def test_files_that_are_not_beside_a_job_are_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_text("print()")
    (tmp_path / "link").symlink_to("/etc/passwd")
    toml = tmp_path / "a.toml"
    toml.write_text(f'{_REST}[job]\nname = "a"\nentrypoint = "a.py"\nfiles = ["{name}"]\n')
    said = "link" if name == "link" else r"^\S+a\.toml:\d+: job\.files\[0\]: "
    with pytest.raises(UsageError, match=name or "path inside"):
        archive.of_job(toml, bare=True)
    with pytest.raises(UsageError, match=said):
        archive.of_job(toml, bare=True)


JOB = '[job]\nname = "a"\nentrypoint = "train.py"\n[batch]\nglobal = 1\nmicro = 1\n'


def test_a_script_that_is_no_python_is_refused_by_its_line(folder: Path) -> None:
    (folder / "job.toml").write_text(JOB + "[train]\nsteps = 1\n")
    (folder / "train.py").write_text("import os\n\nfor x in:\n    pass\n")
    with pytest.raises(ConfigError, match=r"train\.py:3: job\.entrypoint: .*, says Python 3\.\d+;"):
        archive.of_job(folder / "job.toml")
    (folder / "train.py").write_bytes(b"a = 1\0")
    with pytest.raises(ConfigError, match="null bytes"):
        archive.of_job(folder / "job.toml")
    (folder / "run.sh").write_text("#!/bin/sh\nexec python train.py\n")
    with pytest.raises(ConfigError, match=r"run\.sh:2: job\.entrypoint: .*, says Python 3"):
        archive.of_job(folder / "job.toml", ["job.entrypoint=run.sh"])
    (folder / "train.pyz").write_bytes(b"PK\0")
    assert archive.of_job(folder / "job.toml", ["job.entrypoint=train.pyz"])[1].files == 6


def test_an_import_that_needs_a_package_is_refused_by_its_line(folder: Path) -> None:
    (folder / "job.toml").write_text(JOB + "[train]\nsteps = 1\n")
    (folder / "train.py").write_text('"""Trains."""\nimport os\n\nfrom . import model as m, data\n')
    with pytest.raises(ConfigError) as raised:
        archive.of_job(folder / "job.toml")
    assert str(raised.value).endswith(
        'train.py:4: job.entrypoint: "from . import …" fails in the script that is started, as it'
        ' is in no package; write "import model as m, data", of what lies beside it'
    )
    assert archive.of_job(folder / "job.toml", ["job.python=/opt/python"])[1].files == 4


def test_a_script_of_another_python_is_for_that_one_to_read(folder: Path) -> None:
    (folder / "job.toml").write_text(JOB + "[train]\nsteps = 1\n")
    (folder / "train.py").write_text("match the_next_syntax -> then\n")
    assert archive.of_job(folder / "job.toml", ["job.python=/opt/python"])[1].files == 4


@pytest.mark.parametrize(
    ("start", "ignored", "files", "error"),
    [
        ("w.bin", "*.bin", "", '"w.bin" is not shipped; see .elasticdignore'),
        ("./w.bin", "", '"data"', '"w.bin" is not shipped, as job.files doesn\'t name it; add it'),
        ("w.bin", "*.bin", '"w.bin"', ""),
        ("base", "", '"base"', ""),
        ("base/", "", "", ""),
        ("base", "*-2.safetensors", "", '"base/model-2.safetensors" is not shipped; see .elas'),
        ("base", "*-2.safetensors", '"base"', '"base/model-2.safetensors" is not shipped; see'),
        ("base", "", '"base/model-2.safetensors"', '"base/model-1.safetensors" is not shipped, as'),
        ("data", "/data", "", '"data" is not shipped; see .elasticdignore'),
        ("../job/w.bin", "", "", '"../job/w.bin" is not shipped, as it lies outside of the job\'s'),
        ("data/../w.bin", "", "", ""),
    ],
)
def test_weights_to_begin_with_must_be_sent(
    folder: Path, start: str, ignored: str, files: str, error: str
) -> None:
    fill(folder, dict.fromkeys(("w.bin", "base/notes.txt", ".elasticdignore"), ignored))
    fill(folder, {f"base/model-{number}.safetensors": "" for number in (1, 2)})
    (folder / "job.toml").write_text(
        JOB.replace("[batch]", f"files = [{files}]\n[batch]")
        + f'[train]\nsteps = 1\ninit_from = "{start}"\n'
    )
    if not error:
        archive.of_job(folder / "job.toml")
        return
    with pytest.raises(ConfigError) as raised:
        archive.of_job(folder / "job.toml")
    assert str(raised.value).startswith(f"{folder / 'job.toml'}: train.init_from: {error}")
