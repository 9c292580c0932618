"""What other systems do to data sets: marks and line ends of texts, files of their own, compression."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from driving_support.lerobot import write_lerobot
from support.laws import spread

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.driving_data.datasets import (
    InfosProvider,
    KittiTrackingProvider,
    LeRobotProvider,
    NavsimProvider,
    NuScenesProvider,
)
from accvlab.driving_data.datasets.recognition import provider_of_folder
from accvlab.driving_data.testing import made_drive

_TEXTS = (".json", ".jsonl", ".txt", ".csv", ".yaml")


def written(root: Path, layout: str) -> Path:
    if layout == "lerobot v2.1":
        return write_lerobot(root / "training", "v2.1").parent
    return made_drive(root, layout)


def opened(root: Path, layout: str) -> Any:
    folder = root / "training"
    if layout == "lerobot v2.1":
        return LeRobotProvider(folder, fields=["action", "task"])
    if layout == "navsim":
        return NavsimProvider(root, "trainval", sensors={"cam_f0": [3]})
    return provider_of_folder({"kitti": folder, "py123d": root / "logs/made_train"}.get(layout, root))


@spread(
    "layout", ["nuscenes", "kitti", "argoverse", "py123d", "physical_ai", "lerobot", "lerobot v2.1", "navsim"], 7
)
def test_marks_and_line_ends_of_texts_and_other_files_change_nothing(tmp_path: Path, layout: str) -> None:
    root = written(tmp_path / "drive", layout)
    provider = opened(root, layout)
    expected = [str(provider.get_data(number)) for number in (0, len(provider) - 1)]
    for path in [*root.rglob("*")]:
        if path.is_dir():
            for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
                (path / name).write_bytes(b"\0\5\x16\7")
            continue
        path.with_name(f"._{path.name}").write_bytes(b"\0\5\x16\7")
        if path.suffix in _TEXTS:
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"))
    provider = opened(root, layout)
    assert [str(provider.get_data(number)) for number in (0, len(provider) - 1)] == expected


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'ab' * 32}\nsize 1890\n".encode()


@pytest.mark.parametrize(
    ("layout", "name", "make"),
    [
        ("nuscenes", "v1.0-mini/sample.json", lambda root: NuScenesProvider(root, "v1.0-mini")),
        ("kitti", "training/calib/0000.txt", lambda root: KittiTrackingProvider(root / "training")),
        ("infos", "infos.pkl", lambda root: InfosProvider(root / "infos.pkl", root)),
        ("argoverse", "train/log-1/annotations.feather", provider_of_folder),
    ],
)
def test_what_is_compressed_or_a_pointer_is_named(tmp_path: Path, layout: str, name: str, make: Any) -> None:
    path = made_drive(tmp_path / "drive", layout) / name
    for content, words in (
        (gzip.compress(path.read_bytes()), "it is compressed by gzip: unpack it"),
        (POINTER, "it is a pointer of Git LFS, .*`git lfs pull`"),
    ):
        path.write_bytes(content)
        with pytest.raises(FileError, match=rf"{path}' cannot be read: {words}"):
            make(tmp_path / "drive")


def test_other_encodings_are_named(tmp_path: Path) -> None:
    path = made_drive(tmp_path / "drive", "nuscenes") / "v1.0-mini/sample.json"
    path.write_text(json.dumps(json.loads(path.read_text())), "utf-16")
    with pytest.raises(FileError, match=rf"{path}' must be text \(UTF-8\): 'utf-8' codec can't decode"):
        NuScenesProvider(tmp_path / "drive", "v1.0-mini")


def test_images_that_are_pointers_are_named(tmp_path: Path) -> None:
    made_drive(tmp_path, "infos")
    for path in tmp_path.glob("samples/*/*.jpg"):
        path.write_bytes(POINTER)
    with pytest.raises(FileError, match=r"0\.jpg' cannot be read: it is a pointer of Git LFS, .*`git lfs pull`"):
        InfosProvider(tmp_path / "infos.pkl", tmp_path, boxes_convention="w,l,h,-yaw-pi/2").get_data(0)
