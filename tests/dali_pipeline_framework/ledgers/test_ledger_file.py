"""The file of a ledger: what was written comes back, and damage is noticed."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.full_disks import fills_the_disk

from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError
from accvlab.dali_pipeline_framework.ledgers import appended_file
from accvlab.dali_pipeline_framework.ledgers.appended_file import AppendedFile
from accvlab.dali_pipeline_framework.ledgers.ledger_file import (
    LOOP,
    NEW,
    STATE,
    LedgerHeader,
    LedgerWriter,
    ledgers_in,
    read_ledger,
)
from accvlab.dali_pipeline_framework.ledgers.marks import DELIVERED, PADDING, REPLACED
from accvlab.dali_pipeline_framework.ledgers.packed_batch import AS_NEEDED, UNKNOWN, bytes_per_index, packed

HEADER: dict[str, Any] = {
    "shard_id": 1,
    "num_shards": 3,
    "num_samples": 300,
    "batch_size": 4,
    "order": b"o" * 8,
    "launch": b"l" * 8,
}


@pytest.fixture(params=[True, False], ids=["mapped", "written"])
def is_mapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether files are mapped into memory: as on disks that keep reserved room, or as on all others."""
    monkeypatch.setattr(appended_file, "_is_safe_to_map", lambda file: request.param)
    return bool(request.param)


def written(folder: Path, **settings: Any) -> Path:
    """A ledger with two parts, and batches of all kinds."""
    writer = LedgerWriter(folder, LedgerHeader(**{**HEADER, **settings}))
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, packed([5, 299], 2))
    writer.begin(LOOP, 1, 0)
    writer.note_batch(1, 0, None)
    writer.begin(STATE, 0, 1)
    marks = [DELIVERED, PADDING, REPLACED, DELIVERED]
    writer.note_batch(0, 1, packed([1, 2, 3, 4], 2, marks, [1, 2, 33, 4]))
    writer.close()
    writer.close()
    return writer.path


def test_what_was_written_comes_back(tmp_path: Path, is_mapped: bool) -> None:
    ledger = read_ledger(written(tmp_path / "deep" / "er"))
    assert (ledger.header.shard_id, ledger.header.num_shards, ledger.header.num_samples) == (1, 3, 300)
    assert (ledger.header.order, ledger.header.launch) == (b"o" * 8, b"l" * 8)
    first, second = ledger.parts
    assert (first.why, first.start, second.why, second.start) == (NEW, (0, 0), STATE, (0, 1))
    assert first.epochs.tolist() == [0, 1]
    assert first.is_known.tolist() == [True, False]
    assert first.indices.tolist() == [5, 299]
    assert second.indices.tolist() == [1, 2, 3, 4]
    assert second.marks.tolist() == [DELIVERED, PADDING, REPLACED, DELIVERED]
    assert second.planned.tolist() == [1, 2, 33, 4]
    assert ledger.torn_bytes == 0
    assert first.start_ms <= first.end_ms <= second.start_ms


@pytest.mark.parametrize("num_samples", [-1, 1, 256, 257, 65536, 65537, 2**32, 2**32 + 1])
def test_indices_of_all_widths(tmp_path: Path, num_samples: int) -> None:
    last = num_samples - 1 if num_samples > 0 else 2**40
    writer = LedgerWriter(tmp_path, LedgerHeader(**{**HEADER, "num_samples": num_samples}))
    writer.begin(NEW, 0, 0)
    width = bytes_per_index(num_samples) if num_samples > 0 else AS_NEEDED
    writer.note_batch(0, 0, packed([0, last], width))
    writer.note_batch(0, 1, packed([0, 1], width, [REPLACED, DELIVERED], [last, 1]))
    writer.close()
    (part,) = read_ledger(writer.path).parts
    assert part.indices.tolist() == [0, last, 0, 1]
    assert part.planned.tolist() == [0, last, last, 1]


def test_size(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert path.stat().st_size == 112 + 6 * 32 + 2 * 2 + 4 + 4 * (2 + 1 + 2) + 4


def test_a_last_record_that_is_cut_is_left_out(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    file = tmp_path / "cut.ledger"
    last = len(whole) - 32 - 20 - 4
    for size in range(last + 1, len(whole)):
        file.write_bytes(whole[:size])
        ledger = read_ledger(file)
        assert (ledger.torn_bytes, len(ledger.parts[1].indices)) == (size - last, 0)
        assert ledger.is_torn
    file.write_bytes(whole + bytes(4096))
    ledger = read_ledger(file)
    assert (ledger.torn_bytes, ledger.is_torn) == (4096, False)


def assert_damaged(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileError, match="damaged"):
        read_ledger(path)


def test_each_bit_that_changes_is_damage(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    # What is behind the last record of a file that was not closed are zeros, of which none may change either.
    for content, end in ((whole, len(whole)), (whole + bytes(4096), len(whole) + 100)):
        for position in range(end):
            for bit in range(8):
                changed = bytearray(content)
                changed[position] ^= 1 << bit
                assert_damaged(path, bytes(changed))


def test_damage_of_several_bits_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        assert_damaged(path, whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
    # A whole record is taken out, or two change places.
    for broken in (whole[: 112 + 32] + whole[112 + 32 + 40 :], whole[:112] + whole[144:184] + whole[112:144]):
        path.write_bytes(broken)
        with pytest.raises(FileError, match="damaged at byte"):
            read_ledger(path)


def test_no_ledger(tmp_path: Path) -> None:
    other = b"accvlabL\3\0\0\0" + bytes(96)
    file = tmp_path / "a.ledger"
    for content, match in (
        (b"", "is no ledger"),
        (b"PK\3\4" * 100, "is no ledger"),
        (b"accvlabL", r"cut short within its header \(8 of 112"),
        (b"accvlabL\3\0\0\0" + bytes(200), "is a ledger whose header is damaged"),
        (other + zlib.crc32(other).to_bytes(4, "little"), "version 3, this release of the package reads 2"),
    ):
        file.write_bytes(content)
        with pytest.raises(FileError, match=match):
            read_ledger(file)
    with pytest.raises(FileNotFoundError, match="cannot be read"):
        read_ledger(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="has no ledgers"):
        ledgers_in([tmp_path / "empty"])


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, is_valid: bool
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    file = folder / "a.ledger"
    path = written(folder)
    file.write_bytes((path.read_bytes() if is_valid else b"accvlabL\2\0\0\0") + tail)
    path.unlink()
    try:
        ledger = read_ledger(file)
    except FrameworkError:
        return
    assert [part.indices.tolist() for part in ledger.parts] == [[5, 299], [1, 2, 3, 4]]


def test_a_record_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    """Of a record in mapped memory the first bytes are written last; what stands behind it is damage."""
    path = written(tmp_path)
    whole = path.read_bytes()
    last = len(whole) - 32 - 20 - 4
    path.write_bytes(whole[:last] + bytes(8) + whole[last + 8 :] + bytes(4096))
    ledger = read_ledger(path)
    assert (len(ledger.parts[1].indices), ledger.is_torn) == (0, True)
    for num_zeros in (8, 32, 64):
        path.write_bytes(whole[:112] + bytes(num_zeros) + whole[112 + num_zeros :])
        with pytest.raises(FileError, match="damaged at byte 112"):
            read_ledger(path)


def test_indices_that_are_not_known_make_a_batch_unknown() -> None:
    assert packed([3, -1]) == UNKNOWN
    assert packed([])[1] == b""


def test_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool) -> None:
    """Also of records that are larger than a piece of the file, and across all its borders."""
    monkeypatch.setattr(appended_file, "_PIECE", 4096)
    writer = LedgerWriter(tmp_path, LedgerHeader(**{**HEADER, "num_samples": 10**6, "batch_size": 5000}))
    writer.begin(NEW, 0, 0)
    sizes = [size % 211 for size in range(1000)] + [5000, 1, 3000]
    for batch, size in enumerate(sizes):
        writer.note_batch(0, batch, packed(range(size), 4))
    assert read_ledger(writer.path).parts[0].batches.tolist() == [*range(len(sizes))]  # before it is closed
    writer.close()
    ledger = read_ledger(writer.path)
    assert (ledger.torn_bytes, writer.path.stat().st_size) == (
        0,
        112 + 32 + sum(32 + 4 * (size + (size > 0)) for size in sizes),
    )
    assert ledger.parts[0].indices.tolist() == [index for size in sizes for index in range(size)]


WRITING = """
import itertools, os, sys
from accvlab.dali_pipeline_framework.ledgers import appended_file
from accvlab.dali_pipeline_framework.ledgers.ledger_file import NEW, LedgerHeader, LedgerWriter
from accvlab.dali_pipeline_framework.ledgers.packed_batch import packed
appended_file._is_safe_to_map = lambda file: sys.argv[2] == "True"
writer = LedgerWriter(sys.argv[1], LedgerHeader(0, 1, 10**6, 8, b"o" * 8, b"l" * 8))
writer.begin(NEW, 0, 0)
for batch in itertools.count():
    writer.note_batch(0, batch, packed(range(batch, batch + 8), 4))
    os.write(1, b".")
"""


@pytest.mark.parametrize("num_told", [1, 3000])
def test_a_kill_loses_nothing(tmp_path: Path, is_mapped: bool, num_told: int) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path), str(is_mapped)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(sys.path)}) as process:
        assert process.stdout is not None
        told = process.stdout.read(num_told)
        process.kill()
        told += process.stdout.read()
    (ledger,) = ledgers_in([tmp_path])
    (part,) = ledger.parts
    num_noted = len(part.batches)
    assert len(told) <= num_noted <= len(told) + 1
    assert part.indices.tolist() == [index for batch in range(num_noted) for index in range(batch, batch + 8)]
    assert (ledger.torn_bytes > 0) is is_mapped
    if ledger.is_torn:  # killed between the rest of a record and its first bytes, which nobody was told of
        assert is_mapped
        assert num_noted == len(told)


def test_a_forked_copy_of_the_process_notes_nothing(tmp_path: Path, is_mapped: bool) -> None:
    writer = LedgerWriter(tmp_path, LedgerHeader(**HEADER))
    writer.begin(NEW, 0, 0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        writer.note_batch(0, 77, packed([1], 2))
        writer.close()
        os._exit(0)
    writer.note_batch(0, 0, packed([2], 2))
    os.write(writing, b".")
    assert os.waitpid(child, 0)[1] == 0
    writer.close()
    assert read_ledger(writer.path).parts[0].batches.tolist() == [0]
    os.close(reading)
    os.close(writing)


def test_a_full_disk_leaves_whole_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool
) -> None:
    monkeypatch.setattr(appended_file, "_PIECE", 4096)
    writer = LedgerWriter(tmp_path, LedgerHeader(**HEADER))
    writer.begin(NEW, 0, 0)
    num_in_page = (4096 - 112 - 32) // 38 if is_mapped else 0
    for batch in range(num_in_page):
        writer.note_batch(0, batch, packed([1], 2))
    with fills_the_disk(monkeypatch), pytest.raises(FileError, match=r"[Nn]o space left"):
        writer.note_batch(0, num_in_page, packed([1], 2))
    writer.note_batch(0, 1000, packed([1], 2))  # there is room again
    writer.close()
    ledger = read_ledger(writer.path)
    assert ledger.torn_bytes == 0
    assert ledger.parts[0].batches.tolist() == [*range(num_in_page), 1000]


def test_a_short_record_after_a_long_one_for_which_there_was_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool
) -> None:
    """What was mapped ends behind the file by then: to write there would end the process."""
    child = os.fork()
    if child == 0:
        file = AppendedFile(tmp_path / "a")
        file.append(b"1" * 4096)
        with fills_the_disk(monkeypatch), contextlib.suppress(OSError):
            file.append(b"2" * 2**20)
        file.append(b"3" * 8192)
        file.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / "a").read_bytes() == b"1" * 4096 + b"3" * 8192


def test_a_writer_that_is_not_closed_leaves_no_open_file(tmp_path: Path, is_mapped: bool) -> None:
    num_open = len(os.listdir("/proc/self/fd"))
    path = _written_and_dropped(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == num_open
    assert read_ledger(path).parts[0].indices.tolist() == [7]


def _written_and_dropped(folder: Path) -> Path:
    writer = LedgerWriter(folder, LedgerHeader(**HEADER))
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, packed([7], 2))
    return writer.path


def test_a_limit_of_the_size_of_files_leaves_whole_records(tmp_path: Path, is_mapped: bool) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path), str(is_mapped)]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": ":".join(sys.path)},
        timeout=60,
        capture_output=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, 2**19)),
    )
    assert b"cannot be written" in done.stderr
    (ledger,) = ledgers_in([tmp_path])
    assert ledger.torn_bytes in (0, 2**19 - 112 - 32 - 64 * len(done.stdout))
    assert len(ledger.parts[0].batches) == len(done.stdout) > 7000


@pytest.mark.parametrize(
    ("system", "is_safe"), [("ext4", True), ("tmpfs", True), ("xfs", False), ("btrfs", False), ("nfs4", False)]
)
def test_only_where_reserved_room_stays_files_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, is_safe: bool
) -> None:
    """On XFS a copy shares the room of a file until either is written, which then needs new room."""
    device = os.stat(tmp_path).st_dev
    mount = f"30 1 {os.major(device)}:{os.minor(device)} / / rw - {system} /dev/vda rw\n".encode()
    monkeypatch.setattr(Path, "read_bytes", lambda path: mount)
    with open(tmp_path / "a", "wb") as file:
        assert appended_file._is_safe_to_map(file.fileno()) is is_safe
