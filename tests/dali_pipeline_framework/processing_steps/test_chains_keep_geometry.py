"""Chains of steps keep images, matrices, points and boxes together: markers stay where points are projected to."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from affine_reference import numbers, ordered, resizings, transformations
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from marker_scenes import COLORS, REACH_IN_SIGMAS, SIGMA_PX, Scene, found_markers, make_scene, projected, rendered
from support.array_samples import sample_of
from support.arrays import encoded_image
from support.graphs import untraced
from support.laws import examples
from support.steps import as_published

from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    BEVBBoxesTransformer3D,
    HorizontalFlipper,
    ImageDecoder,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    for_each,
)
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import run_step

IN_PIXELS: Any = {
    "image_names": "image",
    "hw_names": "hw",
    "projection_names": ["intrinsics", "lidar2img"],
    "point_names": "points",
    "box_names": "boxes",
}
HALF_BOX_PX = 4.0
EPS = np.finfo(np.float32).eps
# Spots are symmetric, and so is the bilinear kernel, so resampling moves no center. What remains is rounding to
# levels and sampling of small spots: far less than the half pixel by which other conventions would differ.
TOLERANCE_PX = 0.1
TOLERANCE_OF_COPIES_PX = 0.02
LEAST_SIGMA_PX = 1.2
# The same chains in each run; failing ones are not made shorter, which takes minutes.
PHASES = [Phase.explicit, Phase.generate]


# --- scenes as samples ----------------------------------------------------------------------------------


def made_sample(scene: Scene, number: int, kind: str) -> SampleDataGroup:
    """A sample: ego frame, cameras, and some of the markers as annotation: none of them, four or all."""
    num_per_camera = (4, 0, len(COLORS))[number % 3]
    annotated = np.concatenate([camera.seen[:num_per_camera] for camera in scene.cameras])
    cameras = []
    for index, camera in enumerate(scene.cameras):
        lidar2img = camera.intrinsics @ camera.camera_from_ego[:3]
        points, _ = projected(lidar2img, scene.points[camera.seen[:num_per_camera]])
        if number % 2 == 0:  # matrices of both usual shapes
            lidar2img = np.concatenate([lidar2img, [[0, 0, 0, 1]]])
        image = rendered(scene, index)
        if kind == "encoded":
            image = encoded_image(image, "PNG")
        elif kind == "float":
            image = (image / 255).astype(np.float32)
        elif kind == "clip":
            image = np.stack([image, rendered(scene, index, 1)])
        fields = {
            "intrinsics": camera.intrinsics,
            "camera_from_ego": camera.camera_from_ego,
            "ego_from_camera": np.linalg.inv(camera.camera_from_ego),
            "lidar2img": lidar2img,
            "points": points,
            "boxes": np.concatenate([points - HALF_BOX_PX, points + HALF_BOX_PX], 1),
        }
        hw = np.array(camera.hw, np.int32)
        cameras.append({"image": image, "hw": hw} | {name: np.float32(value) for name, value in fields.items()})
    return sample_of(
        {
            "points3d": scene.points[annotated].astype(np.float32),
            "ego_to_world": scene.ego_to_world.astype(np.float32),
            "world_to_ego": np.linalg.inv(scene.ego_to_world).astype(np.float32),
            "cameras": cameras,
        }
    )


def run_chain(steps: list[Any], scenes: list[Scene], kind: str, seed: int) -> list[list[SampleDataGroup]]:
    """The samples after each step, as ``[sample][stage]``."""
    samples = [made_sample(scene, number, kind) for number, scene in enumerate(scenes)]
    stages = []
    for step in steps:
        with untraced():
            samples = [run.output for run in run_step(step, samples, seed=seed)]
        stages.append(samples)
    return [*map(list, zip(*stages, strict=True))]


# --- what must hold after each step ---------------------------------------------------------------------


@attrs.define
class Markers:
    """What is known of the markers of one camera after some steps.

    Attributes:
        is_whole: Whether no step so far has cut anything of them off.
        num_compared: How many have been compared with where their points are.
    """

    is_whole: np.ndarray = attrs.field(factory=lambda: np.ones(len(COLORS), bool))
    num_compared: int = 0

    def compare(self, camera: SampleDataGroup, linear: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
        """Find the markers in the image, and compare them with where their points are expected.

        Args:
            camera: Fields of the camera.
            linear: From the first image to this one, ``(2, 2)``.
            expected: Where the points are, ``(6, 2)``.
            tolerance: Pixels.
        """
        wh = camera["hw"][::-1]
        sigmas = SIGMA_PX * np.linalg.norm(linear, axis=1)
        reach = REACH_IN_SIGMAS * sigmas + 3
        is_inside = ((expected >= reach) & (expected <= wh - reach)).all(1)
        is_outside = ((expected < -reach) | (expected > wh + reach)).any(1)
        self.is_whole &= is_inside
        is_measurable = self.is_whole & bool(np.linalg.svd(SIGMA_PX * linear)[1].min() >= LEAST_SIGMA_PX)
        frames = camera["image"] if camera["image"].ndim == 4 else camera["image"][None]
        for shift, frame in enumerate(frames):
            assert frame.shape[:2] == tuple(camera["hw"])
            centers, amounts = (np.roll(found, shift, axis=0) for found in found_markers(frame))
            distances = np.linalg.norm(centers - expected, axis=1)[is_measurable]
            assert (distances <= tolerance).all(), (distances, expected)
            amount = 2 * np.pi * SIGMA_PX**2 * abs(np.linalg.det(linear))
            np.testing.assert_allclose(amounts[is_measurable], amount, rtol=0.1)
            assert (amounts[is_outside] < 0.01 * amount).all()
            self.num_compared += len(distances)


def check_scene(scene: Scene, states: list[SampleDataGroup], tolerance: float) -> list[Markers]:
    """Check all that a sample holds, after each step."""
    markers = [Markers() for _ in scene.cameras]
    in_world = scene.points @ scene.ego_to_world[:3, :3].T + scene.ego_to_world[:3, 3]
    for state in states:
        points = in_world @ state["world_to_ego"][:3, :3].T + state["world_to_ego"][:3, 3]
        num = len(state["points3d"]) // len(scene.cameras)
        annotated = np.concatenate([camera.seen[:num] for camera in scene.cameras])
        np.testing.assert_allclose(state["points3d"], points[annotated], atol=2e-3)
        assert_inverse(state["ego_to_world"], state["world_to_ego"])
        for camera, view, found in zip(state["cameras"].values(), scene.cameras, markers, strict=True):
            assert_inverse(camera["camera_from_ego"], camera["ego_from_camera"])
            expected, depths = projected(camera["lidar2img"], points[view.seen])
            assert (depths > 0).all()
            in_parts = camera["intrinsics"] @ camera["camera_from_ego"][:3].astype(float)
            np.testing.assert_allclose(projected(in_parts, points[view.seen])[0], expected, atol=0.02)
            linear = (camera["intrinsics"] @ np.linalg.inv(view.intrinsics))[:2, :2]
            found.compare(camera, linear, expected, tolerance)
            assert_annotation_fits(camera, linear, expected[:num])
    return markers


def assert_inverse(matrix: np.ndarray, inverse: np.ndarray) -> None:
    """The product is the identity, up to some roundings of float32.

    Small entries of a rotation are sums of products of large ones, and not more exact than those.
    """
    matrix, inverse = matrix.astype(float), inverse.astype(float)
    sizes = np.abs([matrix, inverse])
    sizes[:, :3, :3] = sizes[:, :3, :3].max((1, 2), keepdims=True)
    assert (np.abs(matrix @ inverse - np.eye(4)) <= 8 * EPS * (sizes[0] @ sizes[1])).all()


def assert_annotation_fits(camera: SampleDataGroup, linear: np.ndarray, expected: np.ndarray) -> None:
    """Points are where points in space are projected to, and boxes around them.

    A box may be larger than one around the first box, since each step makes it larger that turns it.
    """
    assert camera["points"].shape == expected.shape
    np.testing.assert_allclose(camera["points"], expected, atol=0.02)
    low, high = camera["boxes"][:, :2], camera["boxes"][:, 2:]
    np.testing.assert_allclose((low + high) / 2, expected, atol=0.02)
    assert (high - low >= 2 * HALF_BOX_PX * np.abs(linear).sum(1) - 0.02).all()


# --- chains ---------------------------------------------------------------------------------------------


probs = st.sampled_from([0.5, 1.0])
keys = st.sampled_from(["sample", "rig"])
output_sizes = st.sampled_from([(96, 144), (120, 160), (150, 110)])
affine = st.builds(
    lambda hw, resizing, steps, key: A(
        hw, *resizing, transformation_steps=steps, key=key, **as_published(IN_PIXELS)
    ),
    output_sizes,
    resizings,
    transformations(probs, 15, (0.75, 1.5), (40, 12)),
    keys,
)


in_pixels = {name: st.just(fields) for name, fields in IN_PIXELS.items()}


def resizers(is_encoded: bool) -> st.SearchStrategy[Any]:
    return st.builds(
        ImageResizer,
        output_hw=output_sizes,
        mode=st.sampled_from(["stretch", "pad", "crop"]),
        anchor=st.sampled_from(["center", "top_or_left", "bottom_or_right"]),
        is_encoded=st.just(is_encoded),
        **in_pixels,
    )


def crop_flippers(is_encoded: bool) -> st.SearchStrategy[Any]:
    return st.builds(
        ImageResizeCropFlipper,
        output_hw=output_sizes,
        scale_range=ordered(numbers(0.75, 1.5)),
        bottom_crop_range=st.tuples(st.just(0), numbers(0, 0.25)),
        is_kept_inside=st.booleans(),
        is_encoded=st.just(is_encoded),
        key=keys,
        **in_pixels,
    )


flippers = st.builds(HorizontalFlipper, prob=probs, key=keys, **in_pixels)
padders = st.builds(
    ImageToTileSizePadder, st.just("image"), st.sampled_from([32, (32, 16), (1, 50)]), hw_names=st.just("hw")
)
MATRICES = ["lidar2img", "camera_from_ego"], "ego_to_world", ["world_to_ego", "ego_from_camera"]
bev = st.builds(
    BEVBBoxesTransformer3D,
    *map(st.just, ("points3d", None, None, None, *MATRICES)),
    ordered(numbers(-3, 3)),
    st.integers(0, 2),
    ordered(numbers(0.875, 1.125)),
    st.lists(numbers(0, 3), min_size=3, max_size=3),
    flip_prob_x=probs,
    flip_prob_y=st.sampled_from([0.0, 0.5]),
    key=keys,
)
any_step = st.one_of(affine, affine, affine, resizers(False), crop_flippers(False), flippers, padders, bev)
chains = st.lists(any_step, min_size=1, max_size=4)


def wrapped(steps: list[Any], choices: list[bool]) -> list[Any]:
    """Steps applied to each camera alone, or to all cameras of a sample, as far as these have one size by then."""
    result, is_one_size = [], False
    for step, is_alone in zip(steps, choices, strict=False):
        must_be_alone = not (is_one_size or isinstance(step, ImageDecoder | ImageToTileSizePadder))
        is_wrapped = (must_be_alone or is_alone) and not isinstance(step, BEVBBoxesTransformer3D)
        result.append(for_each("cameras", step) if is_wrapped else step)
        is_one_size |= isinstance(step, A | ImageResizer | ImageResizeCropFlipper)
    return result


def checked_chain(steps: list[Any], choices: list[bool], kind: str, seed: int) -> int:
    """Check three scenes of two cameras each, of different image sizes; return how many markers were compared."""
    sizes = [[(90, 120), (120, 160)], [(120, 160), (100, 130)], [(110, 126), (90, 120)]]
    scenes = [make_scene(3 * seed + number, of_scene) for number, of_scene in enumerate(sizes)]
    found = run_chain(wrapped(steps, choices), scenes, kind, seed)
    markers = [check_scene(scene, states, TOLERANCE_PX) for scene, states in zip(scenes, found, strict=True)]
    return sum(each.num_compared for of_scene in markers for each in of_scene)


# Matrices of other image files are beside those that are named.
OF_OTHER_FILES = pytest.mark.filterwarnings("ignore:.* moves the pixels of")


IMAGES = st.tuples(st.sampled_from(["uint8", "float", "clip"]), chains)
FILES = st.tuples(
    st.just("encoded"),
    st.builds(
        lambda first, others: [first, *others],
        st.just(ImageDecoder("image", False)) | resizers(True) | crop_flippers(True),
        st.lists(affine | crop_flippers(False) | bev, max_size=1),
    ),
)


@OF_OTHER_FILES
@pytest.mark.parametrize(("cases", "num_examples"), [(IMAGES, examples(5, 30)), (FILES, examples(3, 6))])
def test_markers_stay_where_their_points_are_projected_to(cases: Any, num_examples: int) -> None:
    compared: list[int] = []

    @settings(max_examples=num_examples, deadline=None, derandomize=True, phases=PHASES)
    @given(cases, st.lists(st.booleans(), min_size=4, max_size=4), st.integers(0, 1000))
    def check(case: tuple[str, list[Any]], choices: list[bool], seed: int) -> None:
        compared.append(checked_chain(case[1], choices, case[0], seed))

    check()
    assert np.mean(compared) > 20


# --- where several operators do the same ----------------------------------------------------------------


@pytest.mark.parametrize("scale", [2.0, 0.8])
def test_no_operator_disagrees_by_a_fraction_of_a_pixel(scale: float) -> None:
    """Region of a resize, pasted region, warp, decoded part of a file: the same content at the same place."""
    hw = (round(120 * scale), round(160 * scale))
    arguments = {**IN_PIXELS, "output_hw": hw}
    published = {"resizing_mode": A.ResizingMode.STRETCH, **as_published(arguments)}
    steps = {
        "region": A(**published),
        "pasted": A(transformation_steps=[A.Translation(1, [0, 1e-6])], **published),
        "warp": A(transformation_steps=[A.Rotation(1, 1e-6)], **published),
        "resizer": ImageResizer(mode="stretch", **arguments),
        "crop": ImageResizeCropFlipper(scale_range=(scale, scale), flip_prob=0, **arguments),
        "encoded": ImageResizer(mode="crop", is_encoded=True, **arguments),
    }
    scenes = [make_scene(number, [(120, 160)]) for number in range(3)]
    for name, step in steps.items():
        kind = "encoded" if name == "encoded" else "uint8"
        for scene, states in zip(scenes, run_chain([step], scenes, kind, 0), strict=True):
            camera = states[0]["cameras"][0]
            centers, _ = found_markers(camera["image"])
            expected, _ = projected(camera["lidar2img"], scene.points)
            difference = centers - expected
            assert np.abs(difference.mean(0)).max() < TOLERANCE_OF_COPIES_PX, name
            assert np.abs(difference).max() < 2 * TOLERANCE_OF_COPIES_PX, name
