"""What files of data sets may have and claim: more is refused before memory is reserved for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.optional_packages import has
from support.refusals import assert_too_large_a_file_is_refused, refusal

from accvlab.dali_pipeline_framework.limits import file_limits
from accvlab.driving_data.datasets.driving.arrow_files import ArrowFile, read_columns
from accvlab.driving_data.datasets.infos.info_files import plain_pickle
from accvlab.driving_data.datasets.kitti import read_rows
from accvlab.driving_data.datasets.lerobot.lerobot_files import LeRobotFiles
from accvlab.driving_data.datasets.nuscenes import tables
from accvlab.driving_data.datasets.nuscenes.nuscenes_provider import _messages
from accvlab.driving_data.datasets.nuscenes.splits import _scenes_in_file


def _open_pickle(path: Path) -> None:
    with plain_pickle(path):
        pass


READERS: dict[str, Callable[[Path], Any]] = {
    "table of nuScenes": lambda path: tables.read_table(path, "token"),
    "CAN messages": lambda path: _messages(path, {"pos": 3}),
    "split": _scenes_in_file,
    "KITTI": lambda path: read_rows(path, 12, "a pose"),
    "info pickle": _open_pickle,
    "LeRobot": lambda path: LeRobotFiles(path.parents[1]).info,
    "Feather": lambda path: read_columns(path, {"x": "number"}),
    "Arrow": lambda path: ArrowFile(str(path)),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(file_limits.UNPACKED_BYTES, "most", 1 << 20)
    return 1 << 20


@pytest.mark.parametrize("name", READERS)
def test_files_that_are_too_large(tmp_path: Path, name: str) -> None:
    assert_too_large_a_file_is_refused(tmp_path, READERS[name])


# --- tables of Arrow ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has("pyarrow"), reason="needs pyarrow")
class TestArrow:
    def write(self, path: Path, count: int = 1 << 20, **options: Any) -> Path:
        import pyarrow as pa
        import pyarrow.feather
        import pyarrow.parquet

        names = pa.array(["n"]).take(pa.array(np.zeros(count, int)))
        table = pa.table({"x": np.zeros(count), "name": names, "cells": [b"content"] * count})
        if path.suffix == ".parquet":
            pa.parquet.write_table(table, path, **options)
        else:
            pa.feather.write_feather(table, str(path), **options)
        return path

    @pytest.mark.parametrize(("columns", "of_feather"), [({"x": "number"}, 8 << 20), ({"name": "text"}, 5 << 20)])
    def test_a_table_that_unpacks_to_more(self, tmp_path: Path, columns: Any, of_feather: int, small: int) -> None:
        for name, count in (("a.parquet", 8 << 20), ("a.feather", of_feather)):
            path = self.write(tmp_path / name, compression="zstd")
            message = refusal(lambda path=path: read_columns(path, columns))
            assert repr(str(path)) in message
            assert f"unpacked it has {count} bytes, more than the limit of {small}" in message

    def test_a_log_that_unpacks_to_more(self, tmp_path: Path, small: int) -> None:
        whole = self.write(tmp_path / "a.arrow", compression="lz4", chunksize=1 << 20)
        parts = self.write(tmp_path / "b.arrow", compression="zstd", chunksize=1 << 14)
        assert ArrowFile(str(parts)).num_rows == 1 << 20
        for path, read in (
            (whole, lambda file: file.num_rows),
            (whole, lambda file: file.column("x")),
            (parts, lambda file: file.column("x")),  # of many batches
        ):
            message = refusal(lambda path=path, read=read: read(ArrowFile(str(path))))
            assert repr(str(path)) in message
            assert re.search(rf"unpacked it has \d+ bytes, more than the limit of {small}", message)


# --- text -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[" * 100_000, '[{"token": ' + "9" * 5000 + "}]", '[{"token": ' + "[" * 100_000])
def test_values_of_json_without_end(tmp_path: Path, text: str) -> None:
    path = tmp_path / "meta" / "info.json"
    path.parent.mkdir()
    path.write_text(text)
    for name in ("table of nuScenes", "CAN messages", "split", "LeRobot"):
        assert repr(str(path)) in refusal(lambda name=name: READERS[name](path))
