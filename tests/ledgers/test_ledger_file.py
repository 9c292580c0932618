"""The file of a ledger: what was written comes back, and damage is noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError
from accvlab.dali_pipeline_framework.ledgers.ledger_file import (
    LOOP,
    NEW,
    STATE,
    LedgerHeader,
    LedgerWriter,
    ledgers_in,
    read_ledger,
)
from accvlab.dali_pipeline_framework.ledgers.marks import DELIVERED, MASKED, PADDING, REPLACED

HEADER: dict[str, Any] = {
    "shard_id": 1,
    "num_shards": 3,
    "num_samples": 300,
    "batch_size": 4,
    "order": b"o" * 8,
    "launch": b"l" * 8,
}


def int64(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def written(folder: Path, **settings: Any) -> Path:
    """A ledger with two parts, and batches of all kinds."""
    writer = LedgerWriter(folder, LedgerHeader(**{**HEADER, **settings}))
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, int64(5, 299), None, None)
    writer.begin(LOOP, 1, 0)
    writer.note_batch(1, 0, None, None, None)
    writer.begin(STATE, 0, 1)
    marks = np.array([DELIVERED, PADDING, REPLACED, MASKED])
    writer.note_batch(0, 1, int64(1, 2, 3, 4), marks, int64(1, 2, 33, 4))
    writer.close()
    writer.close()
    return writer.path


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    ledger = read_ledger(written(tmp_path / "deep" / "er"))
    assert (ledger.header.shard_id, ledger.header.num_shards, ledger.header.num_samples) == (1, 3, 300)
    assert (ledger.header.order, ledger.header.launch) == (b"o" * 8, b"l" * 8)
    first, second = ledger.parts
    assert (first.why, first.start, second.why, second.start) == (NEW, (0, 0), STATE, (0, 1))
    assert first.epochs.tolist() == [0, 1]
    assert first.is_known.tolist() == [True, False]
    assert first.indices.tolist() == [5, 299]
    assert second.indices.tolist() == [1, 2, 3, 4]
    assert second.marks.tolist() == [DELIVERED, PADDING, REPLACED, MASKED]
    assert second.planned.tolist() == [1, 2, 33, 4]
    assert ledger.torn_bytes == 0
    assert first.start_ms <= first.end_ms <= second.start_ms


@pytest.mark.parametrize("num_samples", [-1, 1, 256, 257, 65536, 65537, 2**32, 2**32 + 1])
def test_indices_of_all_widths(tmp_path: Path, num_samples: int) -> None:
    last = num_samples - 1 if num_samples > 0 else 2**40
    writer = LedgerWriter(tmp_path, LedgerHeader(**{**HEADER, "num_samples": num_samples}))
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, int64(0, last), None, None)
    writer.close()
    assert read_ledger(writer.path).parts[0].indices.tolist() == [0, last]


def test_size(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert path.stat().st_size == 112 + 6 * 32 + 2 * 2 + 4 * (2 + 1 + 2)


def test_a_last_record_that_is_cut_is_left_out(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    file = tmp_path / "cut.ledger"
    last = len(whole) - 32 - 20
    for size in range(last + 1, len(whole)):
        file.write_bytes(whole[:size])
        ledger = read_ledger(file)
        assert (ledger.torn_bytes, len(ledger.parts[1].indices)) == (size - last, 0)
    file.write_bytes(whole + bytes(4096))
    assert read_ledger(file).torn_bytes == 4096


def test_damage_at_every_byte_is_noticed(tmp_path: Path) -> None:
    """It is refused, or what is behind it counts as incomplete; never other samples."""
    path = written(tmp_path)
    whole = path.read_bytes()
    expected = [part.indices.tolist() for part in read_ledger(path).parts]
    refusals = []
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            ledger = read_ledger(path)
        except FileError as error:
            refusals.append(str(error))
            continue
        assert ledger.torn_bytes > 0
        found = [part.indices.tolist() for part in ledger.parts]
        for one, other in zip(found, expected, strict=False):
            assert one == other[: len(one)]
    assert len(refusals) > 0.9 * len(whole)
    assert all(any(word in text for word in ("damaged", "no ledger", "version")) for text in refusals)
    # A whole record is taken out, or two change places.
    for broken in (whole[: 112 + 32] + whole[112 + 32 + 36 :], whole[:112] + whole[148:180] + whole[112:148]):
        path.write_bytes(broken)
        with pytest.raises(FileError, match="damaged at byte"):
            read_ledger(path)


def test_no_ledger(tmp_path: Path) -> None:
    file = tmp_path / "a.ledger"
    for content, match in (
        (b"", "is no ledger"),
        (b"PK\3\4" * 100, "is no ledger"),
        (b"accvlabL", r"cut short within its header \(8 of 112"),
        (b"accvlabL\2\0\0\0" + bytes(200), "version 2, this release of the package reads 1"),
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
    file.write_bytes((path.read_bytes() if is_valid else b"accvlabL\1\0\0\0") + tail)
    path.unlink()
    try:
        ledger = read_ledger(file)
    except FrameworkError:
        return
    assert [part.indices.tolist() for part in ledger.parts] == [[5, 299], [1, 2, 3, 4]]


def test_a_full_disk_leaves_whole_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accvlab.dali_pipeline_framework.ledgers import ledger_file

    writer = LedgerWriter(tmp_path, LedgerHeader(**HEADER))
    writer.begin(NEW, 0, 0)
    write = ledger_file.os.write
    with monkeypatch.context() as patch:
        patch.setattr(ledger_file.os, "write", lambda file, content: write(file, content[:10]))
        with pytest.raises(FileError, match="no space left"):
            writer.note_batch(0, 0, int64(1), None, None)
    writer.close()
    assert read_ledger(writer.path).torn_bytes == 0
