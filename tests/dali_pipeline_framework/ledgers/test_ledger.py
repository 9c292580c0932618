"""The file of a ledger: what was written comes back, and damage is noticed."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.interrupts import is_interrupted
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import ledgers as ledger_module
from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError
from accvlab.dali_pipeline_framework.ledgers import LedgerLine, LedgerWriter, certify, ledger_lines

ABOUT: dict[str, Any] = {"shard": (1, 3), "num_samples": 300, "order": "0f"}
BATCHES: list[Any] = [((0, 0), [5, 299], {}), ((1, 0), None, {}), ((0, 1), [1, 3, 4], {33: 3})]


def written(folder: Path) -> Path:
    """A ledger of two loops, and batches of all kinds."""
    writer = LedgerWriter(str(folder), ABOUT)
    writer.begin_loop(None)
    for place, samples, replaced in BATCHES:
        if place == (0, 1):
            writer.close()  # as at the end of a loop
            writer.begin_loop((0, 1))
        writer.note(*place, samples, [*replaced.items()])
    writer.close()
    writer.close()
    return Path(writer.path)


def begun(folder: Path, **about: Any) -> LedgerWriter:
    writer = LedgerWriter(str(folder), {**ABOUT, **about})
    writer.begin_loop(None)
    return writer


def batches_of(lines: list[LedgerLine]) -> list[Any]:
    return [
        ((line.epoch, line.batch), None if line.samples is None else [*line.samples], line.replaced)
        for line in lines
    ]


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    lines = ledger_lines([written(tmp_path / "deep" / "er")])
    assert batches_of(lines) == BATCHES
    assert [(line.shard, line.num_samples, line.order) for line in lines] == [((1, 3), 300, "0f")] * 3
    assert [line.state for line in lines] == [None, None, (0, 1)]
    first, second, third = lines
    assert 1.6e18 < first.loop == second.loop < first.time_ns < second.time_ns < third.loop < third.time_ns
    _, of_json = map(json.loads, Path(third.path).read_text().splitlines()[1:])
    where = {"epoch": 0, "batch": 1, "state": [0, 1], "shard": [1, 3], "num_samples": 300, "order": "0f"}
    times = {"time_ns": third.time_ns, "loop": third.loop}
    assert of_json == {**where, **times, "samples": [1, 3, 4], "replaced": [[33, 3]]}


def test_a_last_line_that_is_cut_is_left_out(tmp_path: Path) -> None:
    whole = written(tmp_path).read_bytes()
    file = tmp_path / "cut.ledger"
    last = whole.rindex(b"\n", 0, -1) + 1
    for size in range(last, len(whole)):
        file.write_bytes(whole[:size])
        assert batches_of(ledger_lines([file])) == BATCHES[:2]
    file.write_bytes(whole[:10])  # killed at its first batch
    assert len(ledger_lines([tmp_path])) == 3


def test_no_ledger(tmp_path: Path) -> None:
    file = tmp_path / "a.ledger"
    for content in (b"accvlabL\2\0\0\0\n" * 9, b'{"epoch":0}\n' * 9, b"\0" * 50 + b"\n", b"7\n", b"[]\n"):
        file.write_bytes(content)
        words = "a.ledger' is damaged in line 1, or no ledger of this release"
        assert_refused(lambda: ledger_lines([file]), words, FileError)
    assert_refused(lambda: ledger_lines([tmp_path / "none"]), "cannot be read", FileNotFoundError)
    (tmp_path / "empty").mkdir()
    for content in (b"", b"PK\3\4" * 100):
        (tmp_path / "b.ledger").write_bytes(content)
        words = "must be ledgers, or folders of them, with at least one line"
        assert_refused(lambda: certify([tmp_path / "empty", tmp_path / "b.ledger"]), words)


def test_a_folder_whose_name_is_a_pattern(tmp_path: Path) -> None:
    path = written(tmp_path / "run[1]*")
    (tmp_path / "link").symlink_to(path)
    assert len(ledger_lines([tmp_path / "run[1]*", path, tmp_path / "link"])) == 3


def in_lines(*lines: str) -> bytes:
    return b"".join(line.encode() + b"\n" for line in lines)


LINE: dict[str, Any] = {"epoch": 0, "batch": 0, "time_ns": 2, "loop": 1, "state": [0, 0], **ABOUT}
LINE |= {"samples": [5, 299], "replaced": [[33, 3]]}
FORGED: list[dict[str, Any]] = [
    *({"path": "a"}, {"more": 1}, {"epoch": None}, {"batch": 1.0}, {"time_ns": "a"}, {"loop": [5]}),
    *({"state": value} for value in ([0], 0)),
    *({"shard": value} for value in ([0, 1, 2], {"0": 1})),
    {"num_samples": None},
    *({"samples": value} for value in ([2**63], "BQAA", {"5": 1}, [[1, 2]], [1.0])),
    *({"replaced": value} for value in ([1], None)),
]


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_lines_of_another_form_are_refused(tmp_path: Path, forged: Any) -> None:
    file = tmp_path / "forged.ledger"
    file.write_bytes(in_lines(json.dumps(LINE)))
    assert batches_of(ledger_lines([file])) == [((0, 0), [5, 299], {33: 3})]
    file.write_bytes(in_lines(json.dumps(LINE), json.dumps(LINE | forged), json.dumps(LINE)))
    assert_refused(lambda: ledger_lines([file]), "is damaged in line 2, or no ledger", FileError)


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, is_valid: bool
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    file = folder / "a.ledger"
    path = written(folder)
    file.write_bytes((path.read_bytes() if is_valid else b'{"epoch": 0,') + tail)
    path.unlink()
    try:
        lines = ledger_lines([file])
    except FrameworkError:
        return
    assert batches_of(lines)[:3] == BATCHES * is_valid


def test_batches_of_any_size_are_in_the_file_before_it_is_closed_and_no_file_stays_open(tmp_path: Path) -> None:
    num_open = len(os.listdir("/proc/self/fd"))
    batches = [[], [7], [*range(5000)], [0, 255, 2**32], [2**63 - 1]]
    writer = begun(tmp_path)
    for batch, samples in enumerate(batches):
        writer.note(0, batch, samples)
    assert batches_of(ledger_lines([tmp_path])) == [((0, batch), each, {}) for batch, each in enumerate(batches)]
    del writer
    assert len(os.listdir("/proc/self/fd")) <= num_open  # others may be closed meanwhile


def test_a_ledger_goes_on_after_its_close_was_interrupted_at_any_moment(tmp_path: Path) -> None:
    for moment in itertools.count():
        writer = begun(tmp_path / str(moment))
        writer.note(0, 0, [1])
        was_interrupted = is_interrupted(writer.close, moment, ledger_module)
        writer.note(0, 1, [2])
        writer.close()
        assert [line.batch for line in ledger_lines([writer.path])] == [0, 1]
        if not was_interrupted:
            break
    assert moment > 20


WRITING = """
import itertools, os, sys
from accvlab.dali_pipeline_framework.ledgers import LedgerWriter
writer = LedgerWriter(sys.argv[1], {"shard": (0, 1), "num_samples": 10**6, "order": "o"})
writer.begin_loop(None)
for batch in itertools.count():
    writer.note(0, batch, [*range(batch, batch + 8)])
    os.write(1, b".")
"""


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": ":".join(sys.path)}) as process:
        assert process.stdout is not None
        told = process.stdout.read(1)
        process.kill()
        told += process.stdout.read()
    lines = ledger_lines([tmp_path])
    assert len(told) <= len(lines) <= len(told) + 1
    assert batches_of(lines) == [((0, batch), [*range(batch, batch + 8)], {}) for batch in range(len(lines))]
