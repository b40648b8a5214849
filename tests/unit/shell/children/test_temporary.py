"""Where a child's temporary files go, and that they go with it."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from pathlib import Path

import pytest

from elasticd.errors import OperationError
from elasticd.shell.children.files import ChildFiles
from elasticd.shell.children.temporary import (
    KERNELS,
    TemporaryFolders,
    own_runtime_folder,
    own_temporary_folder,
)

NONCE = "0123456789abcdef"


@pytest.fixture
def long(tmp_path: Path) -> ChildFiles:
    home = tmp_path.joinpath("christopher.johnson", "Library", "Application Support" * 5)
    home.mkdir(parents=True)
    return ChildFiles(home)


def linux(
    files: ChildFiles, short: Path | None = None, runtime: Path | None = None
) -> TemporaryFolders:
    """Without ``short`` no link is made, however long the path is."""
    return TemporaryFolders(files, "linux", "", short or files.home / "absent", runtime)


def mac(files: ChildFiles, daemons: str, short: Path = Path("/tmp")) -> TemporaryFolders:
    return TemporaryFolders(files, "darwin", daemons, short)


def own(files: ChildFiles) -> list[Path]:
    return [*(files.home / "cache" / "tmp").iterdir()]


def opens_socket(temporary: str) -> bool:
    folder = Path(temporary) / "pymp-12345678"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(folder / "listener-12345678"))
        except OSError:
            return False
    return True


def test_each_child_has_its_own_with_the_kernels_of_all(tmp_path: Path) -> None:
    files = ChildFiles(tmp_path)
    one, other = (Path(linux(files).of_child(nonce)) for nonce in ("a", "b"))
    assert one != other and NONCE not in linux(files).of_child(NONCE)
    (one / KERNELS / "0.1").mkdir()
    assert (other / KERNELS / "0.1").is_dir() and (tmp_path / "cache" / KERNELS / "0.1").is_dir()


def test_what_a_child_leaves_goes_with_it_and_no_kernel_does(tmp_path: Path) -> None:
    files = ChildFiles(tmp_path)
    folders = [Path(linux(files).of_child(nonce)) for nonce in ("a", "b")]
    for folder in folders:
        (folder / "pymp-1" / "more").mkdir(parents=True)
        (folder / "pymp-1" / "more").chmod(0)
    (folders[0] / KERNELS / "kernel.so").touch()
    asyncio.run(linux(files).remove("a"))
    assert own(files) == [folders[1]]
    assert (tmp_path / "cache" / KERNELS / "kernel.so").exists()
    asyncio.run(linux(files).remove("a"))  # as of one that was never started


def test_a_new_daemon_removes_what_no_child_that_it_takes_over_has(tmp_path: Path) -> None:
    files = ChildFiles(tmp_path)
    assert asyncio.run(linux(files).sweep([])) is None, "there is nothing yet"
    kept, _ = (Path(linux(files).of_child(nonce)) for nonce in ("kept", "left"))
    (kept / "file").touch()

    async def main() -> None:
        sweeping = linux(files).sweep(["kept"])
        linux(files).of_child("new")  # that is no leftover, though it is there by then
        await sweeping

    asyncio.run(main())
    assert sorted(own(files)) == sorted([kept, Path(linux(files).of_child("new"))])
    assert (kept / "file").exists()


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "tmp").touch()
    with pytest.raises(OperationError, match="cache/tmp"):
        linux(ChildFiles(tmp_path)).of_child(NONCE)
    assert asyncio.run(linux(ChildFiles(tmp_path)).sweep([])) is None


def test_a_long_home_leaves_room_for_sockets_and_keeps_the_kernels(
    long: ChildFiles, tmp_path: Path
) -> None:
    assert not opens_socket(linux(long, tmp_path / "absent").of_child("other"))
    found = linux(long, tmp_path).of_child(NONCE)
    assert any(Path(found).samefile(each) for each in own(long))
    assert len(found) < len(str(tmp_path)) + 50
    (Path(found) / KERNELS / "kernel.so").touch()
    assert (long.home / "cache" / KERNELS / "kernel.so").exists()


def test_the_link_in_tmp_is_short_enough(long: ChildFiles) -> None:
    found = linux(long, Path("/tmp")).of_child(NONCE)
    try:
        assert opens_socket(found)
    finally:
        os.unlink(Path(found).parent)


def test_a_link_to_what_is_lent_goes_with_it(long: ChildFiles, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    shared, folder = Path(linux(long, links).of_child(NONCE)), long.home / "scratch" / "tmp"
    folder.parent.mkdir()
    with linux(long, links).lent(folder) as found:
        assert Path(found).parent in links.iterdir() and Path(found).samefile(folder)
    assert [*links.iterdir()] == [shared.parent] and folder.is_dir()
    with linux(long, links).lent(folder) as found:
        other = Path(found).parent
        other.unlink()
        other.symlink_to("/etc")
    assert other.is_symlink(), "it is no more ours"
    with mac(long, str(long.home), links).lent(folder) as found:
        assert Path(found).parent == links
    assert Path(found).is_symlink(), "others go by it"


def test_a_short_home_needs_no_link(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.mkdir()
    with_room = Path("/tmp", f"elasticd-test-{os.getpid()}")
    with_room.mkdir()
    try:
        found = linux(ChildFiles(with_room), short).of_child(NONCE)
        assert Path(found).parent == with_room / "cache" / "tmp" and opens_socket(found)
        assert not list(short.iterdir())
    finally:
        asyncio.run(linux(ChildFiles(with_room)).remove(NONCE))
        (with_room / "cache" / KERNELS).rmdir()
        for each in (with_room / "cache" / "tmp", with_room / "cache", with_room):
            each.rmdir()


def test_what_is_in_the_way_is_not_followed(long: ChildFiles, tmp_path: Path) -> None:
    link = Path(linux(long, tmp_path).of_child("a")).parent
    link.unlink()
    link.symlink_to("/etc")
    inside = long.home / "cache" / "tmp"
    assert Path(linux(long, tmp_path).of_child("b")).parent == inside
    assert Path(linux(long, tmp_path / "absent").of_child("c")).parent == inside


def test_a_link_lies_where_nobody_else_gets_in_if_it_is_short_there(
    long: ChildFiles, tmp_path: Path
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="e") as made:
        runtime, links = Path(made), tmp_path / "links"
        links.mkdir()
        found = linux(long, links, runtime).of_child(NONCE)
        assert Path(found).parent.parent == runtime and opens_socket(found)
        assert not list(links.iterdir())
        too_long = runtime / ("x" * 60)
        too_long.mkdir()
        assert Path(linux(long, links, too_long).of_child(NONCE)).parent.parent == links


def test_where_the_runtime_folder_has_gone_links_lie_in_tmp(
    long: ChildFiles, tmp_path: Path
) -> None:
    """It goes at a log-out: so may that of who started the daemon by hand."""
    links = tmp_path / "links"
    links.mkdir()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="e") as made:
        runtime = Path(made, "run")
        folders = linux(long, links, runtime)
        first = Path(folders.of_child("a")).parent
        assert first.parent == links, "there is none"
        runtime.mkdir()
        assert Path(folders.of_child("b")).parent.parent == runtime
        os.utime(first, (5, 5), follow_symlinks=False)
        assert folders.look_after() == "" and first.lstat().st_mtime > 5
        (runtime / first.name).unlink()
        runtime.rmdir()
        first.unlink()
        assert folders.look_after() == "" and first.is_symlink()
        assert Path(folders.of_child("c")).parent == first


def test_the_runtime_folder_of_a_service_alone_is_taken(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "link").symlink_to(tmp_path)
    given = {"XDG_RUNTIME_DIR": str(tmp_path), "INVOCATION_ID": "x"}
    assert own_runtime_folder(given) == tmp_path
    for other in ("", "here", str(tmp_path / "absent"), str(tmp_path / "link")):
        assert own_runtime_folder({**given, "XDG_RUNTIME_DIR": other}) is None
    assert own_runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) is None, "it goes at a logout"
    tmp_path.chmod(0o755)
    assert own_runtime_folder(given) is None


def test_a_link_that_a_cleaner_has_removed_is_made_again(long: ChildFiles, tmp_path: Path) -> None:
    folders = linux(long, tmp_path)
    assert folders.look_after() == "" and not list(tmp_path.glob("elasticd-*")), "there is no use"
    link = Path(folders.of_child(NONCE)).parent
    os.utime(link, (5, 5), follow_symlinks=False)
    assert folders.look_after() == "" and link.lstat().st_mtime > 5
    link.unlink()
    assert folders.look_after() == "" and link.is_symlink()
    link.unlink()
    link.mkdir()
    assert folders.look_after() == str(link), "what has its place is told"


def test_a_long_one_of_a_mac_goes_by_a_link_too(long: ChildFiles, tmp_path: Path) -> None:
    """A socket's path has 103 bytes there (sys/un.h, sun_path)."""
    given = "/" + "x" * (103 - len("/pymp-XXXXXXXX/listener-XXXXXXXX") - 1)
    assert mac(long, given, tmp_path).of_child(NONCE) == given
    link = Path(mac(long, f"{given}x", tmp_path).of_child(NONCE))
    assert link.parent == tmp_path and link.readlink() == Path(f"{given}x")


def test_a_mac_has_a_short_one_of_its_own(long: ChildFiles) -> None:
    assert mac(long, "/var/folders/ab/T").of_child(NONCE) == "/var/folders/ab/T"
    assert not (long.home / "cache").exists()


def test_a_mac_whose_account_has_none_has_them_in_the_home(
    long: ChildFiles, tmp_path: Path
) -> None:
    folders = mac(long, "", tmp_path)
    found = Path(folders.of_child(NONCE))
    assert found.parent.parent == tmp_path and any(found.samefile(each) for each in own(long))
    (found / KERNELS / "kernel.so").touch()
    found.parent.unlink()
    assert folders.look_after() == "" and (found / KERNELS / "kernel.so").exists()
    asyncio.run(folders.remove(NONCE))
    assert own(long) == [] and (long.home / "cache" / KERNELS / "kernel.so").exists()


def test_a_daemon_of_a_mac_uses_no_folder_in_which_another_account_may_write(
    tmp_path: Path,
) -> None:
    """One that launchd has started has no TMPDIR, and MLX loads what lies in /tmp."""
    mine, open_to_all = tmp_path / "T", tmp_path / "tmp"
    mine.mkdir(0o700)
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)

    def never(name: int) -> str:
        raise AssertionError("its own is good enough")

    def fails(name: int) -> str:
        raise OSError(22, "Invalid argument")

    assert own_temporary_folder(str(mine), never) == str(mine)
    asked: list[int] = []

    def told(name: int) -> str:
        asked.append(name)
        return f"{mine}/"

    for given in ("", str(open_to_all), str(tmp_path / "absent")):
        assert own_temporary_folder(given, told) == str(mine)
        assert own_temporary_folder(given, lambda _: str(open_to_all)) == ""
        assert own_temporary_folder(given, lambda _: None) == ""
        assert own_temporary_folder(given, fails) == ""
    assert set(asked) == {65537}
