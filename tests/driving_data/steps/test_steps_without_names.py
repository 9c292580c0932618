"""Steps of the core on samples of a `DrivingProvider`, without names of fields; and what they warn of."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import types
from support.laws import each_value

from accvlab.dali_pipeline_framework import (
    AffineTransformer,
    BEVBBoxesTransformer3D,
    DataGroupInPathAppliedStep,
    DataProvider,
    HorizontalFlipper,
    ImageDecoder,
    ImageResizeCropFlipper,
    ImageResizer,
    SampleDataGroup,
    UnneededFieldRemover,
    Windows,
    for_each,
)
from accvlab.dali_pipeline_framework.errors import FormatError
from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.command_line import main
from accvlab.driving_data.contract.step_geometry import where_boxes_part
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.steps import SceneTransformer
from accvlab.driving_data.testing import made_drive

DT = types.DALIDataType


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> DrivingProvider:
    root = made_drive(tmp_path_factory.mktemp("drive"))
    settings: dict[str, Any] = {
        "boxes_2d": True,
        "lidar": True,
        "num_future_frames": 2,
        "num_ego_future_frames": 2,
    }
    settings["num_future_frames"] = 0  # no tracks
    return DrivingProvider(root / "index", root, **settings)


def moved() -> SceneTransformer:
    return SceneTransformer(rotation_range=[0.2, 0.4], scaling_range=[1.1, 1.2], translation_max_abs=[1, 2, 0.5])


def projected(sample: SampleDataGroup, points: np.ndarray) -> np.ndarray:
    camera = sample["cameras"][0]
    matrix = camera["intrinsics"] @ camera["camera_from_reference"][:3]
    pixels = points.reshape(-1, 3).astype(np.float64) @ matrix[:, :3].T + matrix[:, 3]
    return np.asarray(pixels[:, :2] / pixels[:, 2:])


def test_all_that_is_in_the_reference_frame_follows(provider: DrivingProvider) -> None:
    before = provider.get_data(1)
    after = run_step(moved(), before, run="workers").output
    assert np.abs(after["boxes"]["centers"] - before["boxes"]["centers"]).max() > 1
    for name, dtype in (("camera_from_reference", np.float64), ("intrinsics", np.float64)):
        assert after["cameras"][0][name].dtype == dtype
    np.testing.assert_allclose(
        projected(after, after["boxes"]["centers"]), projected(before, before["boxes"]["centers"]), atol=1e-3
    )
    for field in ("centers", "boxes", "depths"):  # in pixels: they stay
        np.testing.assert_array_equal(
            after["cameras"][0]["boxes_2d"][field], before["cameras"][0]["boxes_2d"][field]
        )

    def in_world(sample: SampleDataGroup, points: np.ndarray) -> np.ndarray:
        matrix = sample["ego"]["world_from_reference"]
        return points.reshape(-1, 3).astype(np.float64) @ matrix[:3, :3].T + matrix[:3, 3]

    for points in (lambda one: one["boxes"]["centers"], lambda one: one["ego"]["future_positions"]):
        np.testing.assert_allclose(in_world(after, points(after)), in_world(before, points(before)), atol=1e-4)
    ego = [one["ego"]["ego_from_reference"] @ np.append(one["boxes"]["centers"][0], 1) for one in (before, after)]
    np.testing.assert_allclose(ego[1], ego[0], atol=1e-4)
    lidar = [one["ego"]["world_from_reference"] @ one["lidar"]["reference_from_lidar"] for one in (before, after)]
    np.testing.assert_allclose(lidar[1], lidar[0], atol=1e-9)
    np.testing.assert_allclose(after["boxes"]["sizes"] / before["boxes"]["sizes"], 1.15, atol=0.051)


def test_map_lines_would_not_follow() -> None:
    sample = SampleDataGroup()
    lines = SampleDataGroup()
    lines.add_data_field("points", DT.FLOAT, ndim=2)
    sample.add_data_group_field("map_lines", lines)
    with pytest.raises(FormatError, match=r"map_lines\.points: does not follow the transformation: request no"):
        moved().check_input_data_format_and_set_output_data_format(sample)


@pytest.mark.parametrize(("name", "dtype"), [("centers", DT.INT32), ("yaws", DT.FLOAT16), ("sizes", DT.INT64)])
def test_fields_of_boxes_of_other_types_are_refused(name: str, dtype: types.DALIDataType) -> None:
    sample, boxes = SampleDataGroup(), SampleDataGroup()
    for field in ("centers", "sizes", "yaws"):
        boxes.add_data_field(field, dtype if field == name else DT.FLOAT)
    sample.add_data_group_field("boxes", boxes)
    with pytest.raises(FormatError, match=rf"boxes\.{name}: must be FLOAT or FLOAT64 .*, got {dtype.name}"):
        moved().check_input_data_format_and_set_output_data_format(sample)
    boxes.remove_field("yaws")  # of other objects
    others = SampleDataGroup()
    others.add_data_group_field("boxes", boxes)
    moved().check_input_data_format_and_set_output_data_format(others)


@pytest.mark.parametrize("make", [ImageResizeCropFlipper, ImageResizer, HorizontalFlipper])
def test_intrinsics_follow_the_pixels(make: Any, provider: DrivingProvider) -> None:
    settings: dict[str, Any] = {
        ImageResizeCropFlipper: {"output_hw": [45, 80], "scale_range": (0.5, 0.5), "flip_prob": 0},
        ImageResizer: {"output_hw": [45, 80]},
        HorizontalFlipper: {"prob": 1},
    }[make]
    names = () if make is ImageResizeCropFlipper else ("image",)
    before = provider.get_data(0)
    scale = np.diag([-1 if make is HorizontalFlipper else 0.5, 1 if make is HorizontalFlipper else 0.5, 1])
    expected = scale @ before["cameras"][0]["intrinsics"]
    if make is HorizontalFlipper:
        expected[0, 2] += 160
    output = run_step([ImageDecoder(), make(*names, **settings)], before, run="workers").output
    np.testing.assert_allclose(output["cameras"][0]["intrinsics"], expected)
    kept = run_step([ImageDecoder(), make(*names, projection_names=(), **settings)], before, run="workers").output
    np.testing.assert_array_equal(kept["cameras"][0]["intrinsics"], before["cameras"][0]["intrinsics"])


def with_matrix(name: str) -> SampleDataGroup:
    camera, sample = SampleDataGroup(), SampleDataGroup()
    camera.add_data_field("image", DT.UINT8, ndim=3)
    camera.add_data_field(name, DT.FLOAT, ndim=2)
    camera.add_data_field("camera_from_reference", DT.FLOAT64, ndim=2)
    sample.add_data_group_field_array("cameras", camera, 2)
    return sample


@pytest.mark.parametrize("name", ["lidar2img", "projection", "cam_intrinsic", "image_from_ego", "ego_to_image"])
def test_a_matrix_to_pixels_that_was_not_given_is_a_warning(name: str) -> None:
    step = ImageResizer("image", output_hw=[4, 6])
    told = re.escape(f"ImageResizer moves the pixels of ['image'], but not '{name}' beside them")
    with pytest.warns(
        UserWarning, match=told + rf".*Pass `projection_names=\['{name}'\]`, or `projection_names=\(\)`"
    ):
        step.check_input_data_format_and_set_output_data_format(with_matrix(name))
    for names in (name, ()):
        given = ImageResizer("image", output_hw=[4, 6], projection_names=names)
        given.check_input_data_format_and_set_output_data_format(with_matrix(name))
    step.check_input_data_format_and_set_output_data_format(with_matrix("weights"))
    published = AffineTransformer([4, 6], AffineTransformer.ResizingMode.STRETCH, None, "image")
    with pytest.warns(UserWarning, match="`projection_matrix_field_names="):
        published.check_input_data_format_and_set_output_data_format(with_matrix(name))


def test_each_matrix_that_stays_is_named_once() -> None:
    """Also next to matrices that are moved, given or by default: the advice names those, too."""

    def given() -> SampleDataGroup:
        sample = with_matrix("intrinsics")
        for camera in sample["cameras"].values():
            camera.add_data_field("lidar2img", DT.FLOAT, ndim=2)
        return sample

    advice = re.escape("Pass `projection_names=['intrinsics', 'lidar2img']`")
    for settings in ({}, {"projection_names": "intrinsics"}):
        step = ImageResizer("image", output_hw=[4, 6], **settings)
        with pytest.warns(UserWarning, match=rf"but not 'lidar2img' beside them.*{advice}"):
            step.check_input_data_format_and_set_output_data_format(given())
        step.check_input_data_format_and_set_output_data_format(given())  # a second warning would be an error
    ImageResizer(
        "image", output_hw=[4, 6], projection_names=()
    ).check_input_data_format_and_set_output_data_format(given())


RESIZER = {"output_hw": [45, 80], "scale_range": (0.45, 0.6), "is_kept_inside": True}


def windows_of(provider: DrivingProvider, kind: str) -> DataProvider:
    """The provider, or windows of it that end with the moment, begin with it, or have matrices and boxes too."""
    if kind == "provider":
        return provider
    offsets = [0, 1] if kind == "later" else [-1, 0]
    names = ["image", "intrinsics", "camera_from_reference"] if kind == "matrices" else ["image"]
    fields = {f"cameras.{name}": offsets for name in names} | (
        {"boxes.centers": [-1, 0]} if kind == "boxes" else {}
    )
    return Windows(
        provider, fields, unit="frames", edges="repeat", listed=["boxes.centers"] if kind == "boxes" else ()
    )


@each_value(kind=["provider", "earlier", "later", "matrices", "boxes"], is_decoded=[False, True])
def test_where_boxes_part_from_images(provider: DrivingProvider, kind: str, is_decoded: bool) -> None:
    frames = windows_of(provider, kind)
    samples = [frames.get_data(number) for number in range(4)]
    decode = [ImageDecoder()]
    if is_decoded:
        samples, decode = [run_step(ImageDecoder(), sample).output for sample in samples], []
    good = [*decode, for_each("cameras", ImageResizeCropFlipper(**RESIZER))]
    measured = where_boxes_part([sample.get_copy() for sample in samples], good)
    assert (measured.count > 1, measured.problem, [*measured.failures]) == (True, "", [])
    bad = [*decode, for_each("cameras", ImageResizeCropFlipper(projection_names=(), **RESIZER))]
    problem = where_boxes_part([sample.get_copy() for sample in samples], bad).problem
    name = "DataGroupArrayWithNameElementsAppliedStep of ImageResizeCropFlipper"
    assert problem.startswith(f"after step {len(decode)}, {name}: in")
    assert re.search(r"cameras\[0\]\.image the center of a box is at \(\d+, \d+\), but .* \d+ pixels off", problem)
    assert problem.endswith(" name them (`projection_names`).")


def test_a_step_that_parts_boxes_from_images_is_named_with_its_settings(provider: DrivingProvider) -> None:
    name = "data_field_names_proj_matrices_and_extrinsics"
    names = ("centers", "velocities", None, "yaws", None, None, None)
    turned = BEVBBoxesTransformer3D(*names, [0.3, 0.4], 2, None, None)
    steps = [ImageDecoder(), moved(), DataGroupInPathAppliedStep(turned, "boxes")]
    problem = where_boxes_part(map(provider.get_data, range(4)), steps).problem
    assert problem.startswith("after step 2, DataGroupInPathAppliedStep of BEVBBoxesTransformer3D: in cameras[")
    assert problem.endswith(f" name them (`{name}`).")


def test_what_cannot_be_measured_is_told(provider: DrivingProvider) -> None:
    steps = [ImageDecoder(), UnneededFieldRemover(unneeded_field_names=["intrinsics"])]
    measured = where_boxes_part(map(provider.get_data, range(4)), steps)
    assert (measured.count, measured.problem, len(measured.failures)) == (0, "", 4)
    assert all("intrinsics" in failure for failure in measured.failures)


def test_check_says_where_boxes_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = """
        from accvlab.dali_pipeline_framework import (
            DataLoader, ImageDecoder, ImageResizeCropFlipper, UnneededFieldRemover, Windows, for_each
        )
        from accvlab.driving_data.datasets import DrivingProvider
        from accvlab.driving_data.testing import made_drive

        def make(without=(), windows=None, steps=None, boxes=True, **settings):
            root = made_drive({root!r})
            step = ImageResizeCropFlipper(output_hw=[45, 80], scale_range=(0.45, 0.5), **settings)
            steps = [ImageDecoder(), for_each("cameras", step), UnneededFieldRemover(without)][:steps]
            provider = DrivingProvider(root / "index", root, boxes=boxes)
            if windows:
                provider = Windows(provider, windows, unit="frames", edges="repeat")
            return DataLoader(provider, 1, steps=steps, ragged="list", num_workers=0)

        WINDOWS = {"cameras.image": [-1, 0]}
        good = lambda: make()
        forgot = lambda: make(projection_names=())
        windows = lambda: make(windows=WINDOWS)
        forgot_in_windows = lambda: make(windows=WINDOWS, projection_names=())
        unmeasured = lambda: make(["intrinsics"])
        no_steps = lambda: make(steps=0)
        no_boxes = lambda: make(boxes=False)
    """
    path = tmp_path / "loaders.py"
    path.write_text(textwrap.dedent(script.replace("{root!r}", repr(str(tmp_path / "drive")))))
    for name in ("good", "windows"):
        assert main(["check", f"{path}:{name}"]) == 0
        assert re.search(r"The steps keep boxes on their objects: \d+ images\.", capsys.readouterr().out)
    for name in ("forgot", "forgot_in_windows"):
        assert main(["check", f"{path}:{name}"]) != 0
        assert "The steps part boxes and images, after step 1, " in capsys.readouterr().err
    whys = {"unmeasured": ".*intrinsics", "no_steps": "there are no steps", "no_boxes": "samples have no boxes"}
    for name, why in whys.items():
        assert main(["check", f"{path}:{name}"]) == 0
        told = f"Whether the steps keep boxes on their objects was not measured: {why}"
        assert re.search(told, capsys.readouterr().out)
