"""Samples and batches as text that fits on a screen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import pipeline_def
from nvidia.dali.types import DALIDataType
from support.array_samples import group_of

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup, describe_batch


def rig_batch(num_cameras: int = 6) -> dict[str, Any]:
    def camera(number: int) -> dict[str, Any]:
        image = torch.zeros((4, 90, 160, 3), dtype=torch.uint8)
        image[0, 0, 0, 0] = 40 * number
        return {"image": image, "name": [f"CAM_{number}"] * 4, "intrinsics": torch.eye(3).repeat(4, 1, 1)}

    return {"cameras": {number: camera(number) for number in range(num_cameras)}}


def test_cameras_are_described_together() -> None:
    assert describe_batch(rig_batch()).splitlines() == [
        "cameras[0..5].image       uint8 (4, 90, 160, 3)  0 .. 200",
        "cameras[0..5].name        str 'CAM_0', 'CAM_1', 'CAM_2', 'CAM_3', 'CAM_4', 'CAM_5' (4,)",
        "cameras[0..5].intrinsics  float32 (4, 3, 3)  0 .. 1",
    ]


def test_times_are_shown_to_their_unit() -> None:
    batch = {"us": np.array([1714550000000250, 1714640002214000]), "s": np.array([1714550000.25, 1714640002.214])}
    assert [line.split()[-3:] for line in describe_batch(batch).splitlines()] == [
        ["1714550000000250", "..", "1714640002214000"],
        ["1714550000.25", "..", "1714640002.214"],
    ]


def test_what_differs_is_told_apart() -> None:
    batch = rig_batch(4)
    batch["cameras"][2]["image"] = batch["cameras"][2]["image"].float()
    assert [line.split("  ")[0] for line in describe_batch(batch).splitlines()] == [
        "cameras[0..1, 3].image",
        "cameras[0..3].name",
        "cameras[0..3].intrinsics",
        "cameras[2].image",
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
        (np.array(["a", "bc"]), "str 'a', 'bc' (2,)"),
        (np.array([True, False]), "bool (2,)  0 .. 1"),
        (np.float32(2.5), "float32 ()  2.5"),
        (np.float32(2.0**100), "float32 ()  1.267650600228e+30"),
        (7, "int 7"),
        ("x" * 1000, "str 'xxxxxxxxxxxx...xxxxxxxxxxxxx'"),
        (torch.zeros(2, dtype=torch.bfloat16), "bfloat16 (2,)"),
        ([np.zeros(2), "a"], "list (2,)"),
        ([["a", "b"], ["c"]], "str 2 x 'a', 'b', 'c' (1..2,)"),
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


def large_sample(num_fields: int = 40) -> SampleDataGroup:
    camera = group_of(image=DALIDataType.UINT8, intrinsics=DALIDataType.FLOAT, name=DALIDataType.STRING)
    boxes = group_of(**dict.fromkeys(("centers", "sizes", "yaws", "velocities", "categories"), DALIDataType.FLOAT))
    fields = {f"field_{number}": DALIDataType.INT32 for number in range(num_fields)}
    sample = group_of(cameras=(camera, 6), boxes=boxes, **fields)
    for number, each in enumerate(sample["cameras"].values()):
        each["image"] = np.zeros((900, 1600, 3), np.uint8)
        each["name"] = "CAM" * (number + 1)
    sample.set_do_convert(False)
    sample["field_0"] = np.int32(7)
    return sample


def test_many_fields_fit_on_a_screen() -> None:
    sample = large_sample()
    for text in (repr(sample), describe_batch(sample)):
        assert len(text.splitlines()) <= 40
        assert max(map(len, text.splitlines())) < 120
    lines = repr(sample).splitlines()
    assert [*lines[:4], lines[9]] == [
        "SampleDataGroup of 63 fields",
        "cameras[0..5].image       UINT8 (900, 1600, 3)  0",
        "cameras[0..5].intrinsics  FLOAT",
        "cameras[0..5].name        STRING 'CAM', 'CAMCAM', 'CAMCAMCAM', 'CAMCAMCAMCAM', … 6",
        "field_0                   INT32 ()  7",
    ]
    assert lines[-1].startswith("… and 10 more, of field_30, field_31")
    assert len(repr(large_sample(1)).splitlines()) == 10
    for num_fields in (40, 41):
        lines = describe_batch({f"f{n}": n for n in range(num_fields)}).splitlines()
        assert len(lines) == 40
        assert lines[-1].startswith("… and 2 more, of f39, f40") == (num_fields == 41)
