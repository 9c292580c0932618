"""The file of a ledger: what was written comes back, and damage is noticed."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from full_disks import fills_the_disk
from hypothesis import given
from hypothesis import strategies as st
from support.child_processes import run_process
from support.laws import spread

from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError
from accvlab.dali_pipeline_framework.ledgers import (
    NEW,
    STATE,
    LedgerPart,
    LedgerWriter,
    certify,
    ledgers_in,
    read_ledger,
)

ABOUT: dict[str, int | str] = {"shard": 1, "shards": 3, "num_samples": 300, "order": "0f"}
BATCHES: list[Any] = [((0, 0), [5, 299], []), ((1, 0), None, []), ((0, 1), [1, 3, 4], [[33, 3]])]


def written(folder: Path, **about: int) -> Path:
    """A ledger with two parts, and batches of all kinds."""
    writer = LedgerWriter(folder, {**ABOUT, **about})
    writer.begin(NEW, 0, 0)
    for place, samples, replaced in BATCHES:
        if place == (0, 1):
            writer.begin(STATE, 0, 1)
        writer.note_batch(*place, samples, **({"replaced": replaced} if replaced else {}))
    writer.close()
    writer.close()
    return Path(writer.path)


def batches_of(*parts: LedgerPart) -> list[Any]:
    return [
        (place, None if samples is None else samples.tolist(), replaced)
        for part in parts
        for place, samples, replaced in part.batches
    ]


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    first, second = read_ledger(written(tmp_path / "deep" / "er"))
    for part in (first, second):
        assert (part.shard, part.shards, part.num_samples, part.order) == (1, 3, 300, "0f")
    assert (first.begin, first.epoch, first.batch) == (NEW, 0, 0)
    assert (second.begin, second.epoch, second.batch) == (STATE, 0, 1)
    assert (batches_of(first), batches_of(second)) == (BATCHES[:2], BATCHES[2:])
    assert 1.6e18 < first.time_ns <= first.end_ns <= second.time_ns <= second.end_ns


def test_lines_are_json(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in written(tmp_path).read_text().splitlines()]
    assert [line.get("begin") for line in lines] == ["new", None, None, "state", None]
    assert [sorted(line) for line in lines[1:3]] == [["batch", "epoch", "samples", "time_ns"]] * 2
    assert [line["samples"] for line in (lines[1], lines[2], lines[4])] == [[5, 299], None, [1, 3, 4]]
    assert lines[4]["replaced"] == [[33, 3]]


@pytest.mark.parametrize("last", [0, 255, 2**32, 2**63 - 1])
def test_indices_of_all_sizes(tmp_path: Path, last: int) -> None:
    writer = LedgerWriter(tmp_path, ABOUT)
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, [0, last])
    writer.note_batch(0, 1, [], replaced=[[last, 0]])
    writer.close()
    (part,) = read_ledger(writer.path)
    assert batches_of(part) == [((0, 0), [0, last], []), ((0, 1), [], [[last, 0]])]


def test_a_last_line_that_is_cut_is_left_out(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    file = tmp_path / "cut.ledger"
    last = whole.rindex(b"\n", 0, -1) + 1
    for size in range(last, len(whole)):
        file.write_bytes(whole[:size])
        assert batches_of(*read_ledger(file)) == BATCHES[:2]


def test_lines_that_are_no_json_any_more_are_damage(tmp_path: Path) -> None:
    path = written(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines):
        for damaged in (b"\0" * len(line) + b"\n", line[: len(line) // 2] + b"\n", line[1:]):
            path.write_bytes(b"".join([*lines[:number], damaged, *lines[number + 1 :]]))
            with pytest.raises(FileError, match=rf"is damaged in line {number + 1}, or no ledger"):
                certify([path])


def test_a_line_that_was_taken_out_or_changed_speaks_against_exactness(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path, {**ABOUT, "shards": 1, "shard": 0, "num_samples": 4})
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, [0, 1])
    writer.note_batch(0, 1, [2, 3])
    writer.close()
    path = Path(writer.path)
    assert certify([path]).is_exact
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert certify([path]).problems == ("epoch 0: missing: 2, 3",)
    path.write_bytes(b"".join([*lines, lines[2]]))
    assert certify([path]).problems == ("epoch 0: delivered twice: 2, 3",)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b"[2,3]", b"[2,1]")]))
    assert certify([path]).problems == ("epoch 0: missing: 3", "epoch 0: delivered twice: 1")


def test_no_ledger(tmp_path: Path) -> None:
    file = tmp_path / "a.ledger"
    for content, match in (
        (b"", "is no ledger: it has no whole line"),
        (written(tmp_path / "whole").read_bytes()[:100], "is no ledger: it has no whole line"),
        (b"PK\3\4" * 100, "is no ledger: it has no whole line"),
        (b"accvlabL\2\0\0\0\n" * 9, "is damaged in line 1, or no ledger of this release"),
        (b'{"epoch":0}\n' * 9, "is damaged in line 1, or no ledger of this release"),
    ):
        file.write_bytes(content)
        with pytest.raises(FileError, match=match):
            read_ledger(file)
    with pytest.raises(FileNotFoundError, match="cannot be read"):
        read_ledger(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="has no ledgers"):
        ledgers_in([tmp_path / "empty"])


def test_a_folder_whose_name_is_a_pattern(tmp_path: Path) -> None:
    path = written(tmp_path / "run[1]*")
    assert len(ledgers_in([tmp_path / "run[1]*", path])) == 1


def in_lines(*lines: bytes | str) -> bytes:
    return b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
BEGIN = {"begin": NEW, "epoch": 0, "batch": 0, "time_ns": 1, **ABOUT}
BATCH = {"epoch": 0, "batch": 0, "time_ns": 2, "samples": [5, 299], "replaced": [[33, 3]]}


@given(st.dictionaries(st.sampled_from([*BEGIN, "end_ns", "batches", "path"]), _values, max_size=2), st.data())
def test_forged_values_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any], data: st.DataObject
) -> None:
    file = tmp_path_factory.getbasetemp() / "forged.ledger"
    batch = BATCH | data.draw(st.dictionaries(st.sampled_from([*BATCH]), _values, max_size=2))
    file.write_bytes(in_lines(*map(json.dumps, (BEGIN | values, batch))))
    try:
        certify([file], num_samples=300)
    except FrameworkError:
        return


@pytest.mark.parametrize("number", [10**4000, -(10**4000), 2**63, "1e308", "1e999", "NaN", "[" * 100_000])
def test_forged_numbers_are_read_or_refused(tmp_path: Path, number: int | str) -> None:
    file = tmp_path / "forged.ledger"
    for changed, name in ((BEGIN, "epoch"), (BEGIN, "num_samples"), (BEGIN, "shards"), (BATCH, "replaced")):
        lines = [json.dumps(line | ({name: "?"} if line is changed else {})) for line in (BEGIN, BATCH)]
        text = f"[[{number}, {number}]]" if name == "replaced" else str(number)
        file.write_bytes(in_lines(*(line.replace('"?"', text) for line in lines)))
        try:
            certify([file])
        except FrameworkError:
            continue


@pytest.mark.parametrize(
    ("lines", "damaged"),
    [
        ([BEGIN | {"batches": [5]}], 1),
        ([BEGIN | {"end_ns": "a"}], 1),
        ([BEGIN | {"path": "a"}], 1),
        ([BEGIN | {"epoch": None}], 1),
        ([BATCH, BEGIN], 1),
        ([BEGIN, BATCH | {"samples": [2**63]}], 2),
        ([BEGIN, BATCH | {"samples": "BQAA"}], 2),
        ([BEGIN, BATCH | {"samples": {}}], 2),
        ([BEGIN, BATCH | {"samples": [[1, 2]]}], 2),
        ([BEGIN, BATCH | {"samples": [1.0]}], 2),
        ([BEGIN, BATCH | {"replaced": [1]}], 2),
        ([BEGIN | {"shards": True}, BATCH], 1),
        ([BEGIN, BATCH, BATCH | {"more": 1}], 3),
    ],
)
def test_lines_of_another_form_are_refused(tmp_path: Path, lines: list[Any], damaged: int) -> None:
    file = tmp_path / "forged.ledger"
    file.write_bytes(in_lines(json.dumps(BEGIN), json.dumps(BATCH)))
    assert batches_of(*read_ledger(file)) == [((0, 0), [5, 299], [[33, 3]])]
    file.write_bytes(in_lines(*map(json.dumps, lines)))
    with pytest.raises(FileError, match=f"is damaged in line {damaged}, or no ledger"):
        read_ledger(file)


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, is_valid: bool
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    file = folder / "a.ledger"
    path = written(folder)
    file.write_bytes((path.read_bytes() if is_valid else b'{"begin": "new",') + tail)
    path.unlink()
    try:
        parts = read_ledger(file)
    except FrameworkError:
        return
    assert batches_of(*parts)[:3] == BATCHES


def test_many_batches(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path, ABOUT)
    writer.begin(NEW, 0, 0)
    sizes = [size % 211 for size in range(1000)] + [5000, 1, 3000]
    for batch, size in enumerate(sizes):
        writer.note_batch(0, batch, [*range(size)])
    (part,) = read_ledger(writer.path)  # before it is closed
    writer.close()
    assert batches_of(part) == [((0, batch), [*range(size)], []) for batch, size in enumerate(sizes)]


WRITING = """
import itertools, os, sys
from accvlab.dali_pipeline_framework.ledgers import NEW, LedgerWriter
about = {"shard": 0, "shards": 1, "num_samples": 10**6, "order": "o"}
writer = LedgerWriter(sys.argv[1], about)
writer.begin(NEW, 0, 0)
for batch in itertools.count():
    writer.note_batch(0, batch, [*range(batch, batch + 8)])
    os.write(1, b".")
"""


@spread("num_told", [1, 3000], 1)
def test_a_kill_loses_nothing(tmp_path: Path, num_told: int) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(sys.path)}) as process:
        assert process.stdout is not None
        told = process.stdout.read(num_told)
        process.kill()
        told += process.stdout.read()
    ((part,),) = ledgers_in([tmp_path])
    num_noted = len(part.batches)
    assert len(told) <= num_noted <= len(told) + 1
    expected = [((0, batch), [*range(batch, batch + 8)], []) for batch in range(num_noted)]
    assert batches_of(part) == expected


def test_a_forked_copy_of_the_process_notes_nothing(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path, ABOUT)
    writer.begin(NEW, 0, 0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        writer.note_batch(0, 77, [1])
        files = os.listdir("/proc/self/fd")
        writer.close()  # the number may be that of another file there
        os._exit(os.listdir("/proc/self/fd") != files)
    writer.note_batch(0, 0, [2])
    os.write(writing, b".")
    assert os.waitpid(child, 0)[1] == 0
    writer.close()
    (part,) = read_ledger(writer.path)
    assert batches_of(part) == [((0, 0), [2], [])]
    os.close(reading)
    os.close(writing)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = LedgerWriter(tmp_path, ABOUT)
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, [1])
    with fills_the_disk(monkeypatch), pytest.raises(OSError, match=r"No space left"):
        writer.note_batch(0, 1, [1])
    (part,) = read_ledger(writer.path)
    assert batches_of(part) == [((0, 0), [1], [])]
    writer.close()


def test_a_writer_that_is_not_closed_leaves_no_open_file(tmp_path: Path) -> None:
    num_open = len(os.listdir("/proc/self/fd"))
    path = _written_and_dropped(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == num_open
    (part,) = read_ledger(path)
    assert batches_of(part) == [((0, 0), [7], [])]


def _written_and_dropped(folder: Path) -> str:
    writer = LedgerWriter(folder, ABOUT)
    writer.begin(NEW, 0, 0)
    writer.note_batch(0, 0, [7])
    return writer.path


def test_a_limit_of_the_size_of_files_leaves_whole_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path)]
    done = run_process(
        command,
        env={"PYTHONPATH": ":".join(sys.path)},
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, 2**19)),
    )
    assert "OSError" in done.stderr
    ((part,),) = ledgers_in([tmp_path])
    assert len(part.batches) == len(done.stdout) > 3000
