"""Reading and listing files, local and remote."""

from __future__ import annotations

import io
import os
import pickle
import random
import re
import signal
import stat
import sys
import tarfile
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from support.child_processes import run_process
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.files.storage import (
    FolderEntry,
    Storage,
    is_url,
    joined_url,
    parent_of,
    replace_file,
    split_pattern,
)

FILES = {"a/x.jpg": b"abc", "a/deep/y.jpg": b"d", "b c/ä.jpg": b"efgh", "top": b"i"}
KINDS = ("local", "file", "memory", "zip", "zip folder")


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()


@pytest.fixture(params=KINDS)
def root(request: pytest.FixtureRequest, tmp_path: Path, memory: fsspec.AbstractFileSystem) -> str:
    """The same tree in each kind of storage."""
    for name, content in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        memory.pipe(f"/tree/{name}", content)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
            archive.writestr(f"in/{name}", content)
    return {
        "local": str(tmp_path / "tree"),
        "file": f"file://{tmp_path}/tree",
        "memory": "memory://tree",
        "zip": f"zip://::{tmp_path}/all.zip",
        "zip folder": f"zip://in::{tmp_path}/all.zip",
    }[request.param]


class TestEachKind:
    def test_reads(self, root: str) -> None:
        storage = Storage(root)
        for name, content in FILES.items():
            array = storage.read_bytes(name)
            assert (array.dtype, array.tobytes()) == (np.uint8, content)
            assert Storage(storage.path(name)).read_bytes("").tobytes() == content
            assert Storage("").read_bytes(storage.path(name)).tobytes() == content
            with storage.open_binary(name) as file:
                assert file.read() == content

    def test_lists(self, root: str) -> None:
        storage = Storage(root)
        expected = {("a", True), ("b c", True), ("top", False)}
        assert {tuple(entry) for entry in storage.list_folder()} - {("in", True)} == expected
        assert set(storage.list_folder("a")) == {FolderEntry("x.jpg", False), FolderEntry("deep", True)}
        assert set(Storage(storage.path("a")).list_folder()) == set(storage.list_folder("a", follows_links=False))

    def test_what_is_not_there_is_named(self, root: str) -> None:
        storage = Storage(root)
        for action in (storage.read_bytes, storage.open_binary):
            with pytest.raises(
                FileNotFoundError, match=r"The file '.*none.*' cannot be read: there is none"
            ) as caught:
                action("none")
            assert isinstance(caught.value, FileError)
        with pytest.raises(FileNotFoundError, match=r"The folder '.*none.*' cannot be read: there is none"):
            list(storage.list_folder("none"))
        with pytest.raises(NotADirectoryError, match=r"The folder '.*top.*' cannot be read"):
            list(storage.list_folder("top"))
        with pytest.raises(FileError, match=r"The file '.*a.*' cannot be read"):
            storage.read_bytes("a")

    def test_is_pickled_without_its_connection(self, root: str) -> None:
        storage = Storage(root)
        before = pickle.dumps(storage)
        storage.read_bytes("top")
        after = pickle.dumps(storage)
        assert after == before
        assert len(after) < 400
        assert pickle.loads(after) == storage
        assert pickle.loads(after).read_bytes("top").tobytes() == b"i"

    def test_a_fork_opens_its_own_file_system(self, root: str) -> None:
        storage = Storage(root)
        storage.read_bytes("top")
        pid = os.fork()
        if not pid:
            try:
                storage.read_bytes("top")
                os._exit(any(process != os.getpid() for process, *_ in storage._archives.values()))
            finally:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0


class TestLocal:
    def test_an_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "x").touch()
        for root in (str(tmp_path), f"file://{tmp_path}"):
            with pytest.raises(FileError, match="/x' is empty: it has 0 bytes"):
                Storage(root).read_bytes("x")
        with Storage(tmp_path).open_binary("x") as file:
            assert file.read() == b""

    def test_the_array_belongs_to_the_caller(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_bytes(b"abc")
        array = Storage(tmp_path).read_bytes("x")
        array[0] = 0
        assert (tmp_path / "x").read_bytes() == b"abc"

    def test_a_file_that_is_cut_short_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "x").write_bytes(b"a" * 1000)
        read = os.readv

        def cut_short(descriptor: int, buffers: list[memoryview]) -> int:
            os.truncate(tmp_path / "x", 400)
            return read(descriptor, buffers)

        monkeypatch.setattr(os, "readv", cut_short)
        with pytest.raises(FileError, match="it was cut short while it was read: 400 of 1000 bytes"):
            Storage(tmp_path).read_bytes("x")

    def test_reads_that_stop_early_go_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # One call of the system reads at most 2 GiB.
        content = bytes(range(256)) * 10
        (tmp_path / "x").write_bytes(content)
        read = os.readv
        monkeypatch.setattr(os, "readv", lambda descriptor, buffers: read(descriptor, [buffers[0][:100]]))
        assert Storage(tmp_path).read_bytes("x").tobytes() == content

    def test_a_pipe_does_not_hang(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "x")
        with pytest.raises(FileError, match="/x' cannot be read: it is no regular file"):
            Storage(tmp_path).read_bytes("x")

    def test_loops_of_links_do_not_hang(self, tmp_path: Path) -> None:
        (tmp_path / "self").symlink_to("self")
        (tmp_path / "folder").symlink_to(".")
        with pytest.raises(FileError, match="/self' cannot be read: Too many levels of symbolic links"):
            Storage(tmp_path).read_bytes("self")
        with pytest.raises(FileError, match=r"The link '.*/self' leads nowhere: Too many levels"):
            list(Storage(tmp_path).list_folder())
        listed = set(Storage(tmp_path).list_folder(follows_links=False))
        assert listed == {FolderEntry("self", False), FolderEntry("folder", False)}

    @pytest.mark.parametrize("name", ["\udcff\udcfe", "new\nline", " ", "ä" * 127, "x" * 255, "::", "%s{}"])
    def test_odd_names(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"abc")
        assert list(Storage(tmp_path).list_folder()) == [FolderEntry(name, False)]
        assert Storage(tmp_path).read_bytes(name).tobytes() == b"abc"

    def test_names_that_cannot_be(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="cannot be read: File name too long"):
            Storage(tmp_path).read_bytes("x" * 256)
        with pytest.raises(FileError, match="cannot be read: embedded null byte"):
            Storage(tmp_path).read_bytes("x\0")

    def test_home_and_current_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "x").write_bytes(b"abc")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert Storage("~").read_bytes("x").tobytes() == b"abc"
        monkeypatch.chdir(tmp_path)
        for root in ("", "."):
            assert Storage(root).read_bytes("x").tobytes() == b"abc"
            assert list(Storage(root).list_folder()) == [FolderEntry("x", False)]
        assert Storage("/none").read_bytes(str(tmp_path / "x")).tobytes() == b"abc"

    def test_a_file_that_vanishes_while_others_are_read(self, tmp_path: Path) -> None:
        storage = Storage(tmp_path)
        path = tmp_path / "x"
        end = time.monotonic() + 0.3

        def flicker() -> None:
            while time.monotonic() < end:
                path.write_bytes(b"a" * 5000)
                path.unlink()

        thread = threading.Thread(target=flicker)
        thread.start()
        outcomes = set()
        while time.monotonic() < end:
            try:
                outcomes.add(set(storage.read_bytes("x").tobytes()) == {97})
            except FileError:
                outcomes.add(None)
        thread.join()
        assert False not in outcomes


class TestUrls:
    @pytest.mark.parametrize(
        ("root", "name", "expected"),
        [
            ("s3://bucket", "a/b", "s3://bucket/a/b"),
            ("s3://bucket/", "b", "s3://bucket/b"),
            ("zip://::/x.zip", "a", "zip://a::/x.zip"),
            ("zip://in::s3://b/x.zip", "a", "zip://in/a::s3://b/x.zip"),
            ("simplecache::s3://b", "a", "simplecache::s3://b/a"),
            ("memory://", "a", "memory://a"),
        ],
    )
    def test_names_join_the_part_that_they_belong_to(self, root: str, name: str, expected: str) -> None:
        assert joined_url(root, name) == expected
        assert Storage(root).path(name) == expected
        folder, last = parent_of(expected)
        assert joined_url(folder, last) == expected

    def test_what_is_a_url(self) -> None:
        assert is_url("s3://a")
        assert is_url("simplecache::s3://a")
        assert not is_url("/a/b::c")
        assert not is_url("C:/a")

    def test_parents_of_local_paths(self) -> None:
        assert parent_of("/a/b c") == ("/a", "b c")
        assert parent_of("a") == ("", "a")

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("s3://b/*.mp4", ("s3://b", "*.mp4")),
            ("zip://a/*/[xy].mp4::s3://b/a.zip", ("zip://a::s3://b/a.zip", "*/[xy].mp4")),
            ("s3://b/a?.mp4", ("s3://b", "a?.mp4")),
            ("https://h/a.mp4?part=*", None),
            ("https://h/v/*.mp4?part=1", ("https://h/v?part=1", "*.mp4")),
            ("s3://b/a.mp4", None),
        ],
    )
    def test_patterns(self, url: str, expected: tuple[str, str] | None) -> None:
        assert split_pattern(url) == expected

    def test_secrets_are_not_told(self, memory: fsspec.AbstractFileSystem) -> None:
        memory.pipe("/a?token=hidden", b"")
        with pytest.raises(FileError, match=r"'memory://a\?token=\*\*\*' is empty"):
            Storage("memory://").read_bytes("memory://a?token=hidden")
        told = [Storage("https://me:hidden@h/a"), FileDataProvider("https://me:hidden@h/a", files=["b"])]
        assert "hidden" not in f"{told}"

    def test_a_name_may_be_a_url(self, tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
        memory.pipe("/x", b"abc")
        assert Storage(tmp_path).read_bytes("memory://x").tobytes() == b"abc"
        assert Storage(tmp_path).path("memory://x") == "memory://x"

    def test_unknown_protocols_and_options(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="'nowhere://x/a' cannot be read: Protocol not known: nowhere"):
            Storage("nowhere://x").read_bytes("a")
        (tmp_path / "x.zip").write_bytes(b"no archive")
        with pytest.raises(FileError, match=r"x.zip' cannot be read: File is not a zip file"):
            Storage(f"zip://::{tmp_path}/x.zip").read_bytes("a")

    def test_options_reach_the_file_system(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr("a", b"abc")
        storage = Storage("zip://", {"fo": str(tmp_path / "x.zip")})
        assert storage.read_bytes("a").tobytes() == b"abc"
        assert pickle.loads(pickle.dumps(storage)).read_bytes("a").tobytes() == b"abc"
        assert repr(storage) == "Storage('zip://')"  # options may hold a password

    def test_an_archive_without_its_mark(self) -> None:
        with pytest.raises(FileError, match=r"after '::', as in 'zip://::all\.zip', .* 'zip://train::all\.zip'\."):
            list(Storage("zip://all.zip").list_folder())

    def test_what_is_no_path(self) -> None:
        for path in (5, None, b"a"):
            with pytest.raises(SettingError, match="`root` must be a str or a Path"):
                Storage(path)  # type: ignore[arg-type]

    def test_without_fsspec_the_extra_is_named(self) -> None:
        script = """
            import sys
            sys.modules["fsspec"] = None
            from accvlab.dali_pipeline_framework.providers.files.storage import Storage
            try:
                Storage("s3://a").read_bytes("b")
            except ValueError as error:
                print(error)
        """
        done = run_process([sys.executable, "-c", textwrap.dedent(script)])
        assert done.stdout == (
            "'s3://a' is a URL: reading it needs fsspec. Install it with: pip install 'fsspec[http]'\n"
        )


# --- writing ------------------------------------------------------------------------------------------------


def _written_by_child(path: Path, parts: Callable[[], Iterator[bytes]], **how: Any) -> int:
    """Have a forked process write a file; returns how it ends."""
    pid = os.fork()
    if pid == 0:
        replace_file(str(path), parts(), **how)
        os._exit(0)
    return pid


def _ending_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("outlives_machine", [False, True])
def test_the_next_writer_removes_what_killed_ones_have_left(tmp_path: Path, outlives_machine: bool) -> None:
    path = tmp_path / "state.json"
    replace_file(str(path), [b"old"])
    others = ["state.json", ".state.json-0", ".state.json-backup", ".state.json-7.part.txt"]
    for name in others[1:]:
        (tmp_path / name).write_text("another file")

    def stop() -> Iterator[bytes]:
        yield bytes(2**20)
        os.kill(os.getpid(), signal.SIGSTOP)

    pids = [_written_by_child(path, stop, outlives_machine=outlives_machine) for _ in range(3)]
    for pid in pids:
        os.waitpid(pid, os.WUNTRACED)
    assert len(os.listdir(tmp_path)) == len(others) + 3
    replace_file(str(path), [b"new", b"er"], outlives_machine=outlives_machine)  # while they hold their files
    assert path.read_bytes() == b"newer"
    assert len(os.listdir(tmp_path)) == len(others) + 3
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        assert _ending_of(pid) == -signal.SIGKILL
    for left in tmp_path.glob(".state.json-*.part"):
        os.utime(left, (0, 0))
    replace_file(str(path), [b"x"], outlives_machine=outlives_machine)
    assert path.read_bytes() == b"x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_writers_of_a_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "index"

    def write_often(content: bytes) -> int:
        pid = os.fork()
        if pid == 0:
            for _ in range(examples(30, 200)):
                replace_file(str(path), [content] * 5)
            os._exit(0)
        return pid

    contents = [b"a" * 1000, b"b" * 5000, b"c"]
    pids = [write_often(content) for content in contents]
    seen = set()
    while pids:
        if path.exists():
            seen.add(path.read_bytes())
        pids = [pid for pid in pids if os.waitpid(pid, os.WNOHANG) == (0, 0)]
    assert seen <= {content * 5 for content in contents}
    assert os.listdir(tmp_path) == ["index"]


def test_a_writer_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / ("long name" * 20)
    replace_file(str(path), [b"old"])
    with pytest.raises(TypeError):
        replace_file(str(path), [b"new", "no bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


LONG = "folder/" * 20


def write_archive(path: Path, names: Iterable[str], kind: str) -> None:
    """Write an archive again in place, with files of 20,000 bytes, more than is buffered."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for name in names:
                zipped.writestr(name, f"{name[-5:]:20000}")
        return
    with tarfile.open(path, "w", format=getattr(tarfile, kind)) as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 20000
            archive.addfile(entry, io.BytesIO(f"{name[-5:]:20000}".encode()))


@pytest.mark.parametrize("kind", ["USTAR_FORMAT", "GNU_FORMAT", "PAX_FORMAT", "zip"])
@pytest.mark.parametrize("folder", ["", LONG])
def test_an_archive_that_is_written_again_in_place_is_an_error(tmp_path: Path, kind: str, folder: str) -> None:
    names = [f"{folder}{number}.bin" for number in range(4)]
    path = tmp_path / "all.archive"
    write_archive(path, names, kind)
    storage = Storage(f"{'zip' if kind == 'zip' else 'tar'}://::{path}")
    assert [storage.read_bytes(name).tobytes()[:5] for name in names] == [b"0.bin", b"1.bin", b"2.bin", b"3.bin"]
    write_archive(path, names[::-1], kind)
    for name in names:
        with pytest.raises(FileError, match=re.escape(name)):
            storage.read_bytes(name)
        with pytest.raises(FileError, match="written again after its list of members was read"):
            storage.open_blocks(name)
    assert Storage(storage.root).read_bytes(names[0]).tobytes()[:6] == b"0.bin "


def test_a_compressed_tar_file_that_is_written_again_in_place_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "all.tar.gz"

    def write(names: list[str]) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size = 200_000
                archive.addfile(entry, io.BytesIO(name.encode() + random.Random(name).randbytes(200_000)))
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(packed.getvalue())

    write(["cat", "dog"])
    os.utime(path, ns=(0, 0))
    storage = Storage(f"tar://::{path}")
    opened = storage.open_blocks("dog")
    assert storage.read_bytes("cat").tobytes()[:3] == b"cat"
    write(["dog", "cat"])
    message = "its archive was written again after its list of members was read. Make the provider anew"
    for read in (lambda: storage.read_bytes("cat"), lambda: storage.open_blocks("cat").read(3)):
        with pytest.raises(OSError, match=message):
            read()
    with pytest.raises(OSError, match=message):
        opened.read(3)
    assert Storage(storage.root).read_bytes("cat").tobytes()[:3] == b"cat"


def test_the_message_of_an_archive_that_was_written_again(tmp_path: Path) -> None:
    path = tmp_path / "all.tar"
    write_archive(path, ["cat.bin", "dog.bin"], "GNU_FORMAT")
    storage = Storage(f"tar://::{path}")
    assert storage.exists("dog.bin")
    write_archive(path, ["dog.bin", "cat.bin"], "GNU_FORMAT")
    message = "'dog.bin' is not at byte 20992 any more. Make the provider anew, and keep archives unchanged"
    with pytest.raises(FileError, match=message):
        storage.read_bytes("dog.bin")
