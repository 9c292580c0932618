"""Steps of the core on samples of a `DrivingProvider`, without names of fields; and what they warn of."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from nvidia.dali import types
from support.array_samples import group_of
from support.laws import some
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import (
    AffineTransformer,
    DataLoader,
    DataProvider,
    HorizontalFlipper,
    ImageDecoder,
    ImageResizeCropFlipper,
    ImageResizer,
    SampleDataGroup,
    UnneededFieldRemover,
    Windows,
    for_each,
    testing,
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
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_drive(tmp_path_factory.mktemp("drive"))


@pytest.fixture(scope="module")
def provider(root: Path) -> DrivingProvider:
    return DrivingProvider(root / "index", root, boxes_2d=True, lidar=True, num_ego_future_frames=2)


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


BOXES = dict.fromkeys(("centers", "sizes", "yaws"), DT.FLOAT)
REFUSED = [
    ("map_lines", {"points": DT.FLOAT}, "map_lines.points: does not follow the transformation: request no"),
    ("boxes", {**BOXES, "yaws": DT.FLOAT16}, "boxes.yaws: must be FLOAT or FLOAT64 ...got FLOAT16"),
]


@pytest.mark.parametrize(("name", "fields", "words"), REFUSED)
def test_what_would_not_follow_is_refused(name: str, fields: dict[str, Any], words: str) -> None:
    def change(given: dict[str, Any]) -> None:
        sample = group_of(**{name: group_of(**given)})
        moved().check_input_data_format_and_set_output_data_format(sample)

    assert_refused(lambda: change(fields), words, FormatError)
    if name == "boxes":  # without yaws, of other objects
        change({field: dtype for field, dtype in fields.items() if field != "yaws"})


@pytest.mark.parametrize(
    ("step", "settings", "change"),
    [
        (ImageResizeCropFlipper, {"scale_range": (0.5, 0.5), "flip_prob": 0}, np.diag([0.5, 0.5, 1])),
        (functools.partial(ImageResizer, "image"), {}, np.diag([0.5, 0.5, 1])),
        (functools.partial(HorizontalFlipper, "image"), None, np.array([[-1, 0, 160], [0, 1, 0], [0, 0, 1]])),
    ],
)
def test_intrinsics_follow_the_pixels(step: Any, settings: Any, change: Any, provider: DrivingProvider) -> None:
    settings = {"prob": 1} if settings is None else {"output_hw": [45, 80], **settings}
    before = provider.get_data(0)
    intrinsics = before["cameras"][0]["intrinsics"]
    for names, expected in (({}, change @ intrinsics), ({"projection_names": ()}, intrinsics)):
        output = run_step([ImageDecoder(), step(**names, **settings)], before, run="workers").output
        np.testing.assert_allclose(output["cameras"][0]["intrinsics"], expected)


def with_matrices(*names: str) -> SampleDataGroup:
    matrices = {name: (DT.FLOAT, {"ndim": 2}) for name in names}
    camera = group_of(image=(DT.UINT8, {"ndim": 3}), camera_from_reference=(DT.FLOAT64, {"ndim": 2}), **matrices)
    return group_of(cameras=(camera, 2))


def warned(step: Any, sample: SampleDataGroup, words: str) -> None:
    with pytest.warns(UserWarning, match=".*".join(map(re.escape, words.split("...")))):
        step.check_input_data_format_and_set_output_data_format(sample)


def resizer(**settings: Any) -> ImageResizer:
    return ImageResizer("image", output_hw=[4, 6], **settings)


@pytest.mark.parametrize("name", ["lidar2img", "projection", "cam_intrinsic", "image_from_ego", "ego_to_image"])
def test_a_matrix_to_pixels_that_was_not_given_is_a_warning(name: str) -> None:
    told = f"ImageResizer moves the pixels of ['image'], but not '{name}' beside them..."
    warned(resizer(), with_matrices(name), f"{told}Pass `projection_names=['{name}']`, or `projection_names=()`")
    for names in (name, ()):
        resizer(projection_names=names).check_input_data_format_and_set_output_data_format(with_matrices(name))
    resizer().check_input_data_format_and_set_output_data_format(with_matrices("weights"))
    published = AffineTransformer([4, 6], AffineTransformer.ResizingMode.STRETCH, None, "image")
    warned(published, with_matrices(name), "`projection_matrix_field_names=")


def test_each_matrix_that_stays_is_named_once() -> None:
    """Also next to matrices that are moved, given or by default: the advice names those, too."""
    told = "but not 'lidar2img' beside them...Pass `projection_names=['intrinsics', 'lidar2img']`"
    for settings in ({}, {"projection_names": "intrinsics"}):
        step, sample = resizer(**settings), with_matrices("intrinsics", "lidar2img")
        warned(step, sample.get_copy(), told)
        step.check_input_data_format_and_set_output_data_format(sample)  # a second warning would be an error


RESIZER = {"output_hw": [45, 80], "scale_range": (0.45, 0.6), "is_kept_inside": True}


# Windows that end with the moment, begin with it, or have matrices and boxes too.
WINDOWS: dict[str, dict[str, list[int]]] = {
    "earlier": {"image": [-1, 0]},
    "later": {"image": [0, 1]},
    "matrices": {name: [-1, 0] for name in ("image", "intrinsics", "camera_from_reference")},
    "boxes": {"image": [-1, 0], "boxes.centers": [-1, 0]},
}


@some("kind", ["provider", *WINDOWS], {0, 4})
def test_where_boxes_part_from_images(provider: DrivingProvider, kind: str) -> None:
    frames: DataProvider = provider
    if kind in WINDOWS:
        listed = ["boxes.centers"] if kind == "boxes" else ()
        frames = Windows(provider, WINDOWS[kind], unit="frames", edges="repeat", listed=listed)
    samples = [frames.get_data(number) for number in range(4)]
    good = [ImageDecoder(), for_each("cameras", ImageResizeCropFlipper(**RESIZER))]
    measured = where_boxes_part([sample.get_copy() for sample in samples], good)
    assert (measured.count > 1, measured.problem, [*measured.failures]) == (True, "", [])
    bad = [ImageDecoder(), for_each("cameras", ImageResizeCropFlipper(projection_names=(), **RESIZER))]
    problem = where_boxes_part([sample.get_copy() for sample in samples], bad).problem
    name = "DataGroupArrayWithNameElementsAppliedStep of ImageResizeCropFlipper"
    assert problem.startswith(f"after step 1, {name}: in")
    assert re.search(r"cameras\[0\]\.image the center of a box is at \(\d+, \d+\), but .* \d+ pixels off", problem)
    assert problem.endswith(" name them (`projection_names`).")


def test_check_says_where_boxes_part(
    root: Path, provider: DrivingProvider, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [ImageDecoder(), for_each("cameras", ImageResizeCropFlipper(**RESIZER))]
    bad = [ImageDecoder(), for_each("cameras", ImageResizeCropFlipper(projection_names=(), **RESIZER))]
    without_boxes = DrivingProvider(root / "index", root, boxes=False)
    monkeypatch.setattr(testing, "check_provider", lambda provider: "")  # as `test_command_line` has it
    not_measured = "Whether the steps keep boxes on their objects was not measured: "
    for source, steps, told in (
        (provider, good, r"The steps keep boxes on their objects: \d+ images\."),
        (provider, bad, "The steps part boxes and images, after step 1, "),
        (provider, [*good, UnneededFieldRemover(["intrinsics"])], f"{not_measured}.*intrinsics"),
        (provider, [], f"{not_measured}there are no steps"),
        (without_boxes, good, f"{not_measured}samples have no boxes"),
    ):
        loader = DataLoader(source, 1, steps=steps, ragged="list", num_workers=0)
        monkeypatch.setitem(sys.modules, "made", SimpleNamespace(loader=loader))
        assert main(["check", "made:loader"]) == (steps is bad)
        output = capsys.readouterr()
        assert re.search(told, output.err if steps is bad else output.out)
