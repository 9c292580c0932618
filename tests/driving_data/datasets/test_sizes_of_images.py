"""Images of another size than their calibration is for, or that are turned on decoding, are a warning."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.argoverse import ArgoverseData
from driving_support.arrow_logs import ArrowLog
from driving_support.nuscenes_data import changed_table
from driving_support.physical_ai import FRONT, unpacked, write_published
from PIL import Image
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework import Windows
from accvlab.driving_data.datasets import (
    ArgoverseProvider,
    ArrowLogProvider,
    DrivingProvider,
    NuScenesProvider,
    PhysicalAiProvider,
)
from accvlab.driving_data.testing import made_drive


def argoverse(root: Path, scale: int) -> DrivingProvider:
    import pyarrow as pa
    import pyarrow.feather as feather

    path = ArgoverseData().write(root) / "calibration/intrinsics.feather"
    columns = feather.read_table(path).to_pydict()
    columns |= {name: [scale * value for value in columns[name]] for name in ("width_px", "height_px")}
    feather.write_feather(pa.table(columns), str(path))
    return ArgoverseProvider(root, cameras=["ring_front_center"])


def py123d(root: Path, scale: int) -> DrivingProvider:
    log = ArrowLog()
    for name in ("width", "height"):
        log.camera_metadata["pcam_f0"][name] *= scale
    log.write(root)
    return ArrowLogProvider(root)


def nuscenes(root: Path, scale: int) -> DrivingProvider:
    made_drive(root, "nuscenes")
    with changed_table(root, "sample_data") as records:
        for record in records:
            record |= {"width": scale * record["width"], "height": scale * record["height"]}
    return NuScenesProvider(root, "v1.0-mini", cameras=["CAM_FRONT"])


def physical_ai(root: Path, scale: int) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    unpacked(write_published(root / "published"), root / "unpacked")
    for path in root.glob("unpacked/calibration/camera_intrinsics/*.parquet"):
        columns = pq.read_table(path).to_pydict()
        columns |= {name: [scale * value for value in columns[name]] for name in ("width", "height")}
        pq.write_table(pa.table(columns), path)
    return PhysicalAiProvider(root / "unpacked", cameras=[FRONT], lenses=True)


def windows_of_encoded(root: Path, scale: int) -> Any:
    physical_ai(root, scale)
    provider = PhysicalAiProvider(root / "unpacked", cameras=[FRONT], lenses=True, images="encoded")
    return Windows(provider, {"cameras.image": [0, 1]}, unit="frames", edges="repeat")


CASES: dict[Callable[[Path, int], Any], str] = {
    argoverse: "'ring_front_center' in ...is 64 x 48 pixels ...an image of 128 x 96.",
    py123d: "'pcam_f0' in ...is 64 x 48 pixels ...an image of 128 x 96.",
    nuscenes: "'CAM_FRONT' in ...is 160 x 90 pixels ...an image of 320 x 180.",
    physical_ai: f"'{FRONT}' in ...is 96 x 64 pixels ...an image of 192 x 128.",
    windows_of_encoded: f"'{FRONT}' in ...is 96 x 64 pixels ...an image of 192 x 128.",
}


@pytest.mark.parametrize("make", CASES)
def test_of_another_size_than_the_calibration(tmp_path: Path, make: Callable[[Path, int], Any]) -> None:
    make(tmp_path / "right", 1).get_data(0)  # warnings are errors
    provider = make(tmp_path / "wrong", 2)
    with pytest.warns(UserWarning, match=f"image of {CASES[make].replace('...', '.*')}") as caught:
        list(map(provider.get_data, range(len(provider))))
    assert len(of_product(caught)) == 1


def test_of_16_bits(tmp_path: Path) -> None:
    root = made_drive(tmp_path / "drive", "index")
    for path in sorted(root.glob("FRONT/*.jpg")):
        Image.fromarray(np.full((90, 160), 1500, np.uint16)).save(path, "PNG")
    provider = DrivingProvider(root / "index", root)
    with pytest.warns(UserWarning, match="images of 'FRONT' are gray of 16 bits, as those of depth: "):
        provider.get_data(0)


def test_that_is_turned_on_decoding(tmp_path: Path) -> None:
    root = made_drive(tmp_path / "drive", "index")
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x112] = 6
    Image.fromarray(np.zeros((90, 160, 3), np.uint8)).save(file, "JPEG", exif=exif)
    for path in sorted(root.glob("FRONT/*.jpg")):
        path.write_bytes(file.getvalue())
    provider = DrivingProvider(root / "index", root)
    words = "image of 'FRONT' in the frame 'frame 0' is turned when it is decoded, by its EXIF orientation 6, but"
    with pytest.warns(UserWarning, match=words) as caught:
        list(map(provider.get_data, (0, 5)))
    assert len(of_product(caught)) == 1
    DrivingProvider(root / "index", root, cameras=["REAR"]).get_data(0)  # without a warning
