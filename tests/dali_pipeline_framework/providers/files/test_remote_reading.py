"""Storage that fails, delays, and shortens; and a real HTTP server."""

from __future__ import annotations

import io
import random
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

import attrs
import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.file_server import FileServer

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.providers import FileDataProvider
from accvlab.dali_pipeline_framework.providers.files import remote_file, remote_reading
from accvlab.dali_pipeline_framework.providers.files.remote_reading import RemoteReading, within
from accvlab.dali_pipeline_framework.providers.files.storage import Storage

FAST = RemoteReading(attempts=4, first_wait_s=0.001, most_wait_s=0.002, timeout_s=30)
CONTENT = bytes(range(256)) * 8192  # 2 MiB


class UnreliableFileSystem(MemoryFileSystem):
    """A file system in memory; before each call, the next fault is done to it."""

    protocol = "unreliable"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults: ClassVar[list[Callable[[bytes], bytes]]] = []
    calls: ClassVar[list[str]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.replace("unreliable://", "memory://"))
        return stripped

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **arguments: Any) -> bytes:
        self.calls.append("cat_file")
        content: bytes = super().cat_file(path, start, end, **arguments)
        return self.faults.pop(0)(content) if self.faults else content

    def info(self, path: str, **arguments: Any) -> dict[str, Any]:
        self.calls.append("info")
        found: dict[str, Any] = super().info(path, **arguments)
        return found


fsspec.register_implementation("unreliable", UnreliableFileSystem, clobber=True)


@pytest.fixture
def store() -> Iterator[type[UnreliableFileSystem]]:
    file_system = UnreliableFileSystem()
    with file_system.open("/train/a.bin", "wb") as file:
        file.write(CONTENT)
    UnreliableFileSystem.faults.clear()
    UnreliableFileSystem.calls.clear()
    yield UnreliableFileSystem
    UnreliableFileSystem.store.clear()


def fails(error: Exception) -> Callable[[bytes], bytes]:
    def fault(content: bytes) -> bytes:
        raise error

    return fault


def cut(content: bytes) -> bytes:
    return content[:-7]


def rewritten(size: int) -> Callable[[bytes], bytes]:
    def fault(content: bytes) -> bytes:
        with UnreliableFileSystem().open("/train/a.bin", "wb") as file:
            file.write(b"n" * size)
        return content

    return fault


def of(store: Any, **changes: Any) -> Storage:
    return Storage("unreliable://train", {"reading": attrs.evolve(FAST, **changes)})


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (fails(ConnectionResetError("reset by peer")), r"train/a.bin' cannot be read: reset by peer"),
        (fails(TimeoutError("too slow")), "too slow"),
        (fails(OSError("503 Slow Down")), "503 Slow Down"),
        (fails(EOFError()), "EOFError"),
        (cut, rf"{len(CONTENT) - 7} bytes were read, but it has {len(CONTENT)}"),
    ],
)
def test_what_may_pass_is_tried_again(store: Any, fault: Any, message: str) -> None:
    store.faults[:] = [fault] * 3
    assert of(store).read_bytes("a.bin").tobytes() == CONTENT
    assert store.calls.count("cat_file") == 4
    store.faults[:] = [fault] * 4
    with pytest.raises(FileError, match=message):
        of(store).read_bytes("a.bin")


@pytest.mark.parametrize("error", [PermissionError(), FileNotFoundError(), ValueError("bad"), KeyError("k")])
def test_what_will_not_pass_is_tried_once(store: Any, error: Exception) -> None:
    store.faults[:] = [fails(error)] * 4
    with pytest.raises(FileError) as failed:
        of(store).read_bytes("a.bin")
    assert isinstance(failed.value, type(error)) == isinstance(error, OSError)
    assert store.calls.count("cat_file") == 1


def test_one_that_does_not_answer(store: Any) -> None:
    is_over = threading.Event()

    def hangs(content: bytes) -> bytes:
        is_over.wait(110)
        return content

    store.faults[:] = [hangs]
    assert of(store, timeout_s=0.1).read_bytes("a.bin").tobytes() == CONTENT
    store.faults[:] = [hangs] * 2
    with pytest.raises(TimeoutError, match=r"there was no answer within 0\.1 s"):
        of(store, timeout_s=0.1, attempts=2).read_bytes("a.bin")
    assert not is_over.is_set()
    is_over.set()


def test_waits_grow_and_differ_between_processes(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(remote_reading.time, "sleep", waits.append)
    # Of the system: other generators are forked with their state.
    monkeypatch.setattr(random.SystemRandom, "uniform", lambda self, low, high: high, raising=False)
    store.faults[:] = [fails(OSError("busy"))] * 4
    of(store, attempts=5, first_wait_s=0.5, most_wait_s=2).read_bytes("a.bin")
    assert waits == [0.5 + 0.5, 1 + 0.5, 2 + 0.5, 2 + 0.5]


def test_a_file_that_changes_while_it_is_read(store: Any) -> None:
    store.faults[:] = [rewritten(100)]
    assert of(store).read_bytes("a.bin").tobytes() == b"n" * 100  # the new one, as a whole
    store.faults[:] = [rewritten(size) for size in (1, 2, 3, 4)]
    with pytest.raises(FileError, match="changed while it was read"):
        of(store).read_bytes("a.bin")


def opened(remote: Storage, name: str) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(remote.open_blocks(name)))


def test_an_open_file_is_read_by_parts_that_are_tried_again(store: Any) -> None:
    store.faults[:] = [cut, fails(OSError("busy"))]
    with opened(of(store), "a.bin") as file:
        assert file.seek(-5, io.SEEK_END) == len(CONTENT) - 5
        assert file.read() == CONTENT[-5:]
        assert not store.faults
    with pytest.raises(FileNotFoundError, match="there is none"):
        opened(of(store), "none")


def test_an_open_file_that_changes_is_an_error(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_file, "CHECK_EACH_S", 0.0)
    for size in (len(CONTENT), 5):
        with opened(of(store), "a.bin") as file:
            file.read(1)
            rewritten(size)(b"")
            file.seek(0 if size == 5 else 1_500_000)
            with pytest.raises(OSError, match="changed while it was read"):
                file.read(2**19)


def test_settings() -> None:
    for wrong in ({"attempts": 0}, {"timeout_s": 0}, {"first_wait_s": -1}, {"most_wait_s": float("inf")}):
        with pytest.raises(SettingError, match=f"`{next(iter(wrong))}` must be"):
            RemoteReading(**wrong)
    with pytest.raises(SettingError, match=r"`storage_options\['reading'\]` must be a RemoteReading, got dict"):
        Storage("memory://x", {"reading": {}, "other": 1})
    assert Storage("memory://x", {"reading": FAST}) != Storage("memory://x")
    with pytest.raises(ZeroDivisionError):
        within(5, lambda: 1 // 0)


# --- a real server ---------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    with FileServer(tmp_path) as started:
        yield started


def test_over_http(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    server.faults[:] = ["503", "cut", "429"]
    remote = Storage(server.url, {"reading": FAST})
    assert remote.read_bytes("a.bin").tobytes() == CONTENT
    with pytest.raises(FileNotFoundError, match="there is none"):
        remote.read_bytes("none.bin")
    server.faults[:] = ["403"] + ["500"] * 9
    with pytest.raises(FileError, match="403"):
        remote.read_bytes("a.bin")
    assert len(server.faults) == 9  # it was asked once
    with pytest.raises(FileError, match="500"):
        remote.read_bytes("a.bin")
    assert len(server.faults) == 5
    server.faults.clear()
    with opened(remote, "a.bin") as file:
        file.seek(1_000_000)
        assert file.read(100) == CONTENT[1_000_000:1_000_100]
        assert server.ranges == [f"bytes={3 * 2**18}-{2**20 - 1}"]


def test_a_server_that_fails_does_not_say_that_there_is_no_file(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    remote = Storage(server.url, {"reading": FAST})
    assert remote.exists("a.bin")
    assert not remote.exists("none.bin")
    server.refused, server.lasting_fault = ("HEAD",), "500"
    with pytest.raises(FileError, match="500") as failed:
        remote.exists("a.bin")
    assert not isinstance(failed.value, FileNotFoundError)
    server.refused = ("HEAD", "GET")
    with pytest.raises(FileError, match="403"):
        remote.exists("a.bin")
    server.refused, server.lasting_fault = ("HEAD",), ""
    server.faults[:] = ["500", "503"]
    assert remote.exists("a.bin")  # it has passed
    nobody = Storage("http://127.0.0.1:9", {"reading": attrs.evolve(FAST, attempts=2)})
    with pytest.raises(FileError) as failed:
        nobody.exists("a.bin")
    assert not isinstance(failed.value, FileNotFoundError)


def test_a_server_that_sends_only_whole_files(server: FileServer, tmp_path: Path) -> None:
    """As ``python -m http.server``."""
    (tmp_path / "a.bin").write_bytes(CONTENT)
    (tmp_path / "list.txt").write_text("a.bin 3\n")
    (tmp_path / "empty").touch()
    server.serves_ranges = False
    remote = Storage(server.url, {"reading": FAST})
    assert remote.open_binary("a.bin").read() == CONTENT
    assert remote.open_binary("empty").read() == b""
    with opened(remote, "a.bin") as file, pytest.raises(io.UnsupportedOperation, match="only be read as a whole"):
        file.read(10)
    server.faults[:] = ["500", "cut"]
    options = {"reading": FAST}
    provider = FileDataProvider(server.url, file_list=f"{server.url}/list.txt", storage_options=options)
    assert provider.get_data(0)["data"].tobytes() == CONTENT
    assert provider.labels.tolist() == [3]
    server.serves_ranges, server.lasting_fault = True, "more"  # than was requested
    with opened(remote, "a.bin") as file, pytest.raises(OSError, match="it can only be read as a whole"):
        file.read(10)


@pytest.mark.parametrize(("fault", "reason"), [("stall", "there was no answer within 0.3 s"), ("503", "503")])
def test_an_archive_whose_server_fails(server: FileServer, tmp_path: Path, fault: str, reason: str) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("a.bin", CONTENT)
    hasty = RemoteReading(attempts=2, first_wait_s=0.001, timeout_s=0.3 if fault == "stall" else 30)
    url = f"zip://::{server.url}/all.zip"
    server.faults[:] = [fault] * 2
    with pytest.raises(FileError, match=rf"all\.zip' cannot be .*{reason}"):
        Storage(url, {"reading": hasty}).read_bytes("a.bin")
    server.faults[:] = [fault]  # where the machine is slow, others are late as well
    assert Storage(url, {"reading": attrs.evolve(hasty, attempts=9)}).read_bytes("a.bin").tobytes() == CONTENT
