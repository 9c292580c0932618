"""Samples and batches as text that fits on a screen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.loader import LoaderReport
from accvlab.dali_pipeline_framework.sample_data import describe_batch


def rig_batch(num_cameras: int = 6) -> dict[str, Any]:
    def camera(number: int) -> dict[str, Any]:
        image = torch.zeros((4, 90, 160, 3), dtype=torch.uint8)
        image[0, 0, 0, 0] = 40 * number
        return {"image": image, "name": [f"CAM_{number}"] * 4, "intrinsics": torch.eye(3).repeat(4, 1, 1)}

    return {"cameras": {number: camera(number) for number in range(num_cameras)}}


def test_cameras_are_described_together() -> None:
    assert describe_batch(rig_batch()).splitlines() == [
        "cameras[0..5].image       uint8 (4, 90, 160, 3)  0 .. 200",
        "cameras[0..5].name        str (4,)",
        "cameras[0..5].intrinsics  float32 (4, 3, 3)  0 .. 1",
    ]


def test_named_cameras_too() -> None:
    cameras = rig_batch(3)["cameras"]
    named = {"front": cameras[0], "left": cameras[1], "right": cameras[2], "speed": np.float32([1, -2])}
    assert describe_batch(named).splitlines()[0].split() == [
        *("{front,", "left,", "right}.image", "uint8", "(4,", "90,", "160,", "3)", "0", "..", "80"),
    ]
    assert describe_batch(named).splitlines()[-1].split() == ["speed", "float32", "(2,)", "-2", "..", "1"]


def test_what_differs_is_told_apart() -> None:
    batch = rig_batch(4)
    batch["cameras"][2]["image"] = batch["cameras"][2]["image"].float()
    lines = describe_batch(batch).splitlines()
    assert [line.split()[0] for line in lines[::3]] == [
        "cameras[0..1].image",
        "cameras[2].image",
        "cameras[3].image",
    ]
    other_sizes = {"images": [np.zeros((20, 30)), np.zeros((10, 30))], "none": None, "no": [], "flag": True}
    assert describe_batch(other_sizes).splitlines() == [
        "images  float64 2 x (10..20, 30)  0",
        "none    not set",
        "no      list (0,)",
        "flag    bool True",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1.5, np.nan, -3]), "float64 (3,)  -3 .. 1.5"),
        (torch.tensor([np.nan, np.nan]), "float32 (2,)"),
        (np.zeros((0, 4), np.int64), "int64 (0, 4)"),
        (np.zeros((1234567, 2)), "float64 (1234567, 2)  0"),
        (np.array(["a", "bc"]), "str (2,)"),
        (np.array([True, False]), "bool (2,)"),
        (np.float32(2.5), "float32 ()  2.5"),
        (7, "int 7"),
        ("x" * 1000, "str 'xxxxxxxxxxxx...xxxxxxxxxxxxx'"),
        (torch.zeros(2, dtype=torch.bfloat16), "bfloat16 (2,)"),
        ([np.zeros(2), "a"], "list (2,)"),
        ([["a", "b"], ["c"]], "str 2 x (1..2,)"),
        (object, "type"),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert describe_batch({"a": value}) == f"a  {text}"


def test_tensor_lists_of_dali() -> None:
    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return fn.constant(idata=[1, 2, 3], dtype=types.INT32)

    assert describe_batch({"a": pipeline().run()[0]}) == "a  INT32 2 x (3,)"


class TestManyFields:
    def group(self, num_fields: int = 40) -> SampleDataGroup:
        camera, boxes, sample = SampleDataGroup(), SampleDataGroup(), SampleDataGroup()
        for name, dtype in (
            ("image", DALIDataType.UINT8),
            ("intrinsics", DALIDataType.FLOAT),
            ("name", DALIDataType.STRING),
        ):
            camera.add_data_field(name, dtype)
        for name in ("centers", "sizes", "yaws", "velocities", "categories"):
            boxes.add_data_field(name, DALIDataType.FLOAT)
        sample.add_data_group_field_array("cameras", camera, 6)
        sample.add_data_group_field("boxes", boxes)
        for number in range(num_fields):
            sample.add_data_field(f"field_{number}", DALIDataType.INT32)
        for number, each in enumerate(sample["cameras"].values()):
            each["image"] = np.zeros((900, 1600, 3), np.uint8)
            each["name"] = "CAM" * (number + 1)
        return sample

    def test_fit_on_a_screen(self) -> None:
        sample = self.group()
        for text in (repr(sample), describe_batch(sample)):
            assert len(text.splitlines()) <= 40
            assert max(map(len, text.splitlines())) < 120
        lines = repr(sample).splitlines()
        assert lines[:4] == [
            "SampleDataGroup with 63 data fields",
            "cameras[0..5].image       UINT8 (900, 1600, 3)",
            "cameras[0..5].intrinsics  FLOAT",
            "cameras[0..5].name        STRING 'CAM', 'CAMCAM', 'CAMCAMCAM', 'CAMCAMCAMCAM', … 6",
        ]
        assert lines[-1].startswith("… and 10 more, of field_30, field_31")
        assert len(repr(self.group(1)).splitlines()) == 10

    def test_exactly_what_fits_is_listed(self) -> None:
        for num_fields in (39, 40, 41):
            lines = describe_batch({f"f{n}": n for n in range(num_fields)}).splitlines()
            assert len(lines) == min(num_fields, 40)
            assert lines[-1].startswith("… and 2 more, of f39, f40") == (num_fields == 41)


def test_repr_of_a_report_is_its_table() -> None:
    assert repr(LoaderReport()) == str(LoaderReport())
