"""Reading and listing files, local and remote."""

from __future__ import annotations

import functools
import io
import os
import pickle
import random
import signal
import stat
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from support.laws import each_value
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError, MissingPackageError, SettingError
from accvlab.dali_pipeline_framework.providers.files.storage import (
    FolderEntry,
    Storage,
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
    def test_reads_and_lists(self, root: str) -> None:
        storage = Storage(root)
        for name, content in FILES.items():
            array = storage.read_bytes(name)
            assert (array.dtype, array.tobytes()) == (np.uint8, content)
            assert Storage(storage.path(name)).read_bytes("").tobytes() == content
            assert Storage("").read_bytes(storage.path(name)).tobytes() == content
            with storage.open_binary(name) as file:
                assert file.read() == content
        expected = {("a", True), ("b c", True), ("top", False)}
        assert {tuple(entry) for entry in storage.list_folder()} - {("in", True)} == expected
        assert set(storage.list_folder("a")) == {FolderEntry("x.jpg", False), FolderEntry("deep", True)}
        assert set(Storage(storage.path("a")).list_folder()) == set(storage.list_folder("a", follows_links=False))

    def test_what_is_not_there_is_named(self, root: str) -> None:
        storage = Storage(root)

        def listed(name: str) -> list[FolderEntry]:
            return list(storage.list_folder(name))

        for read, name, error, message in [
            (storage.read_bytes, "none", FileNotFoundError, r"The file '.*none.*' cannot be read: there is none"),
            (storage.open_binary, "none", FileNotFoundError, r"The file '.*none.*' cannot be read: there is none"),
            (storage.read_bytes, "a", OSError, r"The file '.*a.*' cannot be read"),
            (listed, "none", FileNotFoundError, r"The folder '.*none.*' cannot be read: there is none"),
            (listed, "top", NotADirectoryError, r"The folder '.*top.*' cannot be read"),
        ]:
            with pytest.raises(error, match=message) as caught:
                read(name)
            assert isinstance(caught.value, FileError)

    def test_is_pickled_without_its_connection_and_a_fork_opens_its_own(self, root: str) -> None:
        storage = Storage(root)
        before = pickle.dumps(storage)
        storage.read_bytes("top")
        after = pickle.dumps(storage)
        assert after == before
        assert len(after) < 400
        assert pickle.loads(after) == storage
        assert pickle.loads(after).read_bytes("top").tobytes() == b"i"
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

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"a" * 400, "it was cut short while it was read: 400 of 1000 bytes"),
            (b"b" * 1000, "it was changed while it was read: 1000 bytes before, 1000 after"),
        ],
    )
    def test_a_file_that_changes_while_it_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
    ) -> None:
        path, read = tmp_path / "x", os.readv
        path.write_bytes(b"a" * 1000)

        def changed(descriptor: int, buffers: list[memoryview]) -> int:
            path.write_bytes(content)
            os.utime(path, ns=(1, 1))
            return read(descriptor, buffers)

        monkeypatch.setattr(os, "readv", changed)
        with pytest.raises(FileError, match=message):
            Storage(tmp_path).read_bytes("x")

    def test_reads_that_stop_early_go_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # One call of the system reads at most 2 GiB.
        content = bytes(range(256)) * 10
        (tmp_path / "x").write_bytes(content)
        read = os.readv
        monkeypatch.setattr(os, "readv", lambda descriptor, buffers: read(descriptor, [buffers[0][:100]]))
        array = Storage(tmp_path).read_bytes("x")
        assert array.tobytes() == content
        assert array.flags.writeable

    def test_loops_of_links_do_not_hang(self, tmp_path: Path) -> None:
        (tmp_path / "self").symlink_to("self")
        (tmp_path / "folder").symlink_to(".")
        with pytest.raises(FileError, match=r"The link '.*/self' leads nowhere: Too many levels"):
            list(Storage(tmp_path).list_folder())
        listed = set(Storage(tmp_path).list_folder(follows_links=False))
        assert listed == {FolderEntry("self", False), FolderEntry("folder", False)}

    @pytest.mark.parametrize("name", ["\udcff\udcfe", "new\nline", "ä" * 127, "::", "%s{}"])
    def test_odd_names(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"abc")
        assert list(Storage(tmp_path).list_folder()) == [FolderEntry(name, False)]
        assert Storage(tmp_path).read_bytes(name).tobytes() == b"abc"

    def test_names_that_cannot_be(self, tmp_path: Path) -> None:
        for name, reason in (("x" * 256, "File name too long"), ("x\0", "embedded null byte")):
            with pytest.raises(FileError, match=f"cannot be read: {reason}"):
                Storage(tmp_path).read_bytes(name)

    def test_home_and_current_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "x").write_bytes(b"abc")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        for root, name in (("~", "x"), ("", "x"), (".", "x"), ("/none", str(tmp_path / "x"))):
            assert Storage(root).read_bytes(name).tobytes() == b"abc"
        assert list(Storage("").list_folder()) == [FolderEntry("x", False)]


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
            ("/a", "b c", "/a/b c"),
            ("", "a", "a"),
            ("/a", "memory://x", "memory://x"),
        ],
    )
    def test_names_join_the_part_that_they_belong_to(self, root: str, name: str, expected: str) -> None:
        assert Storage(root).path(name) == expected
        folder, last = parent_of(expected)
        assert Storage(folder).path(last) == expected
        assert "/" not in last

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("s3://b/*.mp4", ("s3://b", "*.mp4")),
            ("zip://a/*/[xy].mp4::s3://b/a.zip", ("zip://a::s3://b/a.zip", "*/[xy].mp4")),
            ("https://h/a.mp4?part=*", None),
            ("https://h/v/*.mp4?part=1", ("https://h/v?part=1", "*.mp4")),
            ("s3://b/a.mp4", None),
        ],
    )
    def test_patterns(self, url: str, expected: tuple[str, str] | None) -> None:
        assert split_pattern(url) == expected

    def test_a_name_may_be_a_url_whose_secrets_are_not_told(
        self, tmp_path: Path, memory: fsspec.AbstractFileSystem
    ) -> None:
        memory.pipe({"/x": b"abc", "/a?token=hidden": b""})
        assert Storage(tmp_path).read_bytes("memory://x").tobytes() == b"abc"
        with pytest.raises(FileError, match=r"'memory://a\?token=\*\*\*' is empty"):
            Storage("memory://").read_bytes("memory://a?token=hidden")

    def test_unknown_protocols_and_archives_that_are_none(self, tmp_path: Path) -> None:
        (tmp_path / "x.zip").write_bytes(b"no archive")
        for root, message in [
            ("nowhere://x", "'nowhere://x/a' cannot be read: Protocol not known: nowhere"),
            (f"zip://::{tmp_path}/x.zip", r"x.zip' cannot be read: File is not a zip file"),
            ("zip://all.zip", r"after '::', as in 'zip://::all\.zip/a', .* 'zip://train::all\.zip/a'\."),
        ]:
            with pytest.raises(FileError, match=message):
                Storage(root).read_bytes("a")

    def test_options_reach_the_file_system(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr("a", b"abc")
        storage = Storage("zip://", {"fo": str(tmp_path / "x.zip")})
        assert pickle.loads(pickle.dumps(storage)).read_bytes("a").tobytes() == b"abc"
        assert repr(storage) == "Storage('zip://')"  # options may hold a password

    def test_what_is_no_path(self) -> None:
        for path in (5, None, b"a"):
            with pytest.raises(SettingError, match="`root` must be a str or a Path"):
                Storage(path)  # type: ignore[arg-type]

    def test_without_fsspec_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "fsspec", None)
        rule = "'s3://a' is a URL: reading it needs fsspec. Install it with: pip install 'fsspec[http]'"
        assert str(assert_refused(lambda: Storage("s3://a"), rule, MissingPackageError)) == rule


# --- writing ------------------------------------------------------------------------------------------------


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

    pid = os.fork()
    if pid == 0:
        replace_file(str(path), stop(), outlives_machine=outlives_machine)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    assert len(os.listdir(tmp_path)) == len(others) + 1
    replace_file(str(path), [b"new", b"er"], outlives_machine=outlives_machine)  # while it holds its file
    assert path.read_bytes() == b"newer"
    assert len(os.listdir(tmp_path)) == len(others) + 1
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    for left in tmp_path.glob(".state.json-*.part"):
        os.utime(left, (0, 0))
    replace_file(str(path), [b"x"], outlives_machine=outlives_machine)
    assert path.read_bytes() == b"x"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert sorted(os.listdir(tmp_path)) == sorted(others)


def test_a_writer_that_fails_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / ("long name" * 20)
    replace_file(str(path), [b"old"])
    with pytest.raises(TypeError):
        replace_file(str(path), [b"new", "no bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


# --- archives that are written again --------------------------------------------------------------------


def write_archive(path: Path, names: list[str], kind: str) -> None:
    """Write an archive again in place, with files of 20,000 bytes, more than is buffered."""
    members = {name: f"{name[-5:]:5}".encode() + random.Random(name).randbytes(20_000) for name in names}
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as zipped:
            for name, content in members.items():
                zipped.writestr(name, content)
    else:
        format, mode = (tarfile.GNU_FORMAT, "w:gz") if kind == "gz" else (getattr(tarfile, kind), "w")
        with tarfile.open(fileobj=packed, mode=mode, format=format) as archive:  # type: ignore[call-overload]
            for name, content in members.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(packed.getvalue())


AGAIN = "its archive was written again after its list of members was read"


@each_value(kind=["USTAR_FORMAT", "GNU_FORMAT", "PAX_FORMAT", "zip", "gz"], folder=["", "folder/" * 20])
def test_an_archive_that_is_written_again_in_place_is_an_error(tmp_path: Path, kind: str, folder: str) -> None:
    names = [f"{folder}{number}.bin" for number in range(4)]
    path = tmp_path / {"zip": "all.zip", "gz": "all.tar.gz"}.get(kind, "all.tar")
    write_archive(path, names, kind)
    os.utime(path, ns=(0, 0))
    storage = Storage(f"{'zip' if kind == 'zip' else 'tar'}://::{path}")
    opened = storage.open_blocks(names[3])
    assert [storage.read_bytes(name).tobytes()[:5] for name in names] == [b"0.bin", b"1.bin", b"2.bin", b"3.bin"]
    write_archive(path, names[::-1], kind)
    for name in names:
        found = "" if kind == "gz" else f": {name!r} is not at byte ... any more"  # gz: not compared with headers
        for read in (storage.read_bytes, lambda name: storage.open_blocks(name).read(3)):
            rule = f"{AGAIN}{found}. Make the provider anew, and keep archives unchanged while they are in use"
            assert_refused(functools.partial(read, name), rule, OSError)
    with pytest.raises(OSError, match=rf"changed while it was read|{AGAIN}"):
        opened.read(3)
    assert Storage(storage.root).read_bytes(names[0]).tobytes()[:5] == b"0.bin"


def test_members_of_tar_files_are_found_with_any_fsspec(tmp_path: Path) -> None:
    write_archive(tmp_path / "all.tar", ["a/1.bin"], "PAX_FORMAT")
    storage = Storage(f"tar://::{tmp_path}/all.tar")
    assert storage.exists("a/1.bin")
    ((_, file_system),) = storage._archives.values()
    file_system.index = {path: found[:2] for path, found in file_system.index.items()}  # as before fsspec 2026.9
    assert storage.read_bytes("a/1.bin").tobytes()[:5] == b"1.bin"
