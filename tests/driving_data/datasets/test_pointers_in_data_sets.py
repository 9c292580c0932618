"""Files in place of which there are pointers of Git LFS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.driving_data.datasets import ArrowLogProvider, InfosProvider, LeRobotProvider, NuScenesProvider
from accvlab.driving_data.testing import made_drive

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 1890\n"
TABLES = (
    *("attribute", "calibrated_sensor", "category", "ego_pose", "instance", "log", "map", "sample"),
    *("scene", "sensor", "sample_annotation", "sample_data", "visibility"),
)
DATA_SETS: dict[str, Callable[[Path], object]] = {
    "infos.pkl": lambda root: InfosProvider(root / "infos.pkl", root),
    "v1.0-mini/sample.json": lambda root: NuScenesProvider(root, "v1.0-mini"),
    "meta/info.json": lambda root: LeRobotProvider(root),
    "log/sync.arrow": lambda root: ArrowLogProvider(root / "log"),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(POINTER)
    for table in TABLES if path.suffix == ".json" else ():
        path.with_name(f"{table}.json").write_text(POINTER)
    with pytest.raises(
        FileError,
        match=rf"{path.parent}/\w+{path.suffix}' cannot be read: it is a pointer of Git LFS, .*`git lfs pull`",
    ):
        DATA_SETS[name](tmp_path)


def test_of_images_that_a_pickle_names(tmp_path: Path) -> None:
    made_drive(tmp_path, "infos")
    for path in tmp_path.glob("samples/*/*.jpg"):
        path.write_text(POINTER)
    with pytest.raises(FileError, match=r"0\.jpg' cannot be read: it is a pointer of Git LFS, .*`git lfs pull`"):
        InfosProvider(tmp_path / "infos.pkl", tmp_path, boxes_convention="w,l,h,-yaw-pi/2").get_data(0)
