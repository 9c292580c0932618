"""The table of faults in the docs tells what a run finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_table import (
    FAULTS,
    NOT_RUN,
    NUM_SAME_CELLS,
    TABLE,
    Fault,
    _little_memory,
    cells,
    same_cells,
    seconds_of,
)

_OUT_OF_MEMORY = "memory ran out, which the kernel has counted"
WRITE = "run `tests/dali_pipeline_framework/faults/fault_table.py`, which writes the table"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, id=f"{fault.name}-{fault.told_policy}", marks=() if fault.is_quick else pytest.mark.wide
        )
        for fault in FAULTS
    ],
)
def test_a_run_finds_what_the_page_tells(fault: Fault, tmp_path: Path) -> None:
    found = fault.inject(tmp_path, fault.policy)
    if found is None:
        pytest.skip("a small /dev/shm, and a control group, need rights that this process does not have")
    row = cells(fault, found)
    if (
        _OUT_OF_MEMORY in row[2] and fault.inject is not _little_memory
    ):  # of another test: the kernel counts for all
        again = tmp_path / "again"
        again.mkdir()
        row = cells(fault, fault.inject(again, fault.policy))
    on_page = [each for each in TABLE.rows() if each[:2] == row[:2]]
    assert [same_cells(each) for each in on_page] == [same_cells(row)], WRITE
    if fault.limit_s is not None:
        assert seconds_of(row) <= 10 * fault.limit_s  # on a busy machine


def test_the_page_has_all_faults_and_none_took_longer_than_its_limit() -> None:
    rows = TABLE.rows()
    assert [row[:2] for row in rows] == [[fault.name, fault.told_policy] for fault in FAULTS], WRITE
    for row, fault in zip(rows, FAULTS, strict=True):
        if fault.limit_s is not None and row[2] != NOT_RUN:
            assert row[NUM_SAME_CELLS], row
            assert seconds_of(row) <= fault.limit_s, row
