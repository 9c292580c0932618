"""Chains of steps keep images, matrices, points and boxes together: markers stay where points are projected to."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from marker_scenes import (
    COLORS,
    REACH_IN_SIGMAS,
    SIGMA_PX,
    Scene,
    found_markers,
    make_scene,
    projected,
    rendered,
)
from support.arrays import DT, ArrayProvider, encoded_image
from support.laws import each_value, examples, some
from support.pipelines import make_iterator, shuffled
from support.steps import as_published

from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    BEVBBoxesTransformer3D,
    CoordinateCropper,
    DataGroupArrayWithNameElementsAppliedStep,
    HorizontalFlipper,
    ImageDecoder,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

Border = A.ShiftToAlignWithOriginalImageBorder.Border
CAMERA_FIELDS = (
    "image",
    "hw",
    "intrinsics",
    "camera_from_ego",
    "ego_from_camera",
    "lidar2img",
    "points",
    "boxes",
)
EGO_FIELDS = ("points3d", "ego_to_world", "world_to_ego")
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


def sample_of(scene: Scene, number: int, kind: str) -> dict[Any, Any]:
    """A sample: ego frame, cameras, and some of the markers as annotation: none of them, four or all."""
    num_per_camera = (4, 0, len(COLORS))[number % 3]
    annotated = np.concatenate([camera.seen[:num_per_camera] for camera in scene.cameras])
    sample: dict[Any, Any] = {
        "points3d": scene.points[annotated].astype(np.float32),
        "ego_to_world": scene.ego_to_world.astype(np.float32),
        "world_to_ego": np.linalg.inv(scene.ego_to_world).astype(np.float32),
        "cameras": {},
    }
    for index, camera in enumerate(scene.cameras):
        lidar2img = camera.intrinsics @ camera.camera_from_ego[:3]
        points, _ = projected(lidar2img, scene.points[camera.seen[:num_per_camera]])
        if number % 2 == 0:  # matrices of both usual shapes
            lidar2img = np.concatenate([lidar2img, [[0, 0, 0, 1]]])
        images = {
            "encoded": lambda at=index: encoded_image(rendered(scene, at), "PNG"),
            "uint8": lambda at=index: rendered(scene, at),
            "float": lambda at=index: (rendered(scene, at) / 255).astype(np.float32),
            "clip": lambda at=index: np.stack([rendered(scene, at, shift) for shift in (0, 1)]),
        }
        sample["cameras"][index] = {
            "image": images[kind](),
            "hw": np.array(camera.hw, np.int32),
            "intrinsics": camera.intrinsics.astype(np.float32),
            "camera_from_ego": camera.camera_from_ego.astype(np.float32),
            "ego_from_camera": np.linalg.inv(camera.camera_from_ego).astype(np.float32),
            "lidar2img": lidar2img.astype(np.float32),
            "points": points.astype(np.float32),
            "boxes": np.concatenate([points - HALF_BOX_PX, points + HALF_BOX_PX], 1).astype(np.float32),
        }
    return sample


def columns(samples: list[dict[Any, Any]]) -> dict[Any, Any]:
    """The samples as the fields of an `ArrayProvider`."""
    types = {np.uint8: DT.UINT8, np.float32: DT.FLOAT, np.int32: DT.INT32}
    return {
        name: columns([sample[name] for sample in samples])
        if isinstance(value, dict)
        else (types[value.dtype.type], [sample[name] for sample in samples])
        for name, value in samples[0].items()
    }


class Snapshot(PipelineStepBase):
    """Keeps the fields of a scene as they are at this place of the chain, under other names."""

    def __init__(self, stage: int) -> None:
        self._stage = stage

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in self._paths(data):
            value, dtype = data.get_item_in_path(path), data.get_type_of_item_in_path(path)
            parent = data.get_parent_of_path(path)
            parent.add_data_field(f"{path[-1]} {self._stage}", dtype)
            parent[f"{path[-1]} {self._stage}"] = value
        return data

    def _paths(self, data: SampleDataGroup) -> list[Any]:
        return [path for name in CAMERA_FIELDS + EGO_FIELDS for path in data.find_all_occurrences(name)]

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        for path in self._paths(data_empty):
            dtype = data_empty.get_type_of_item_in_path(path)
            data_empty.get_parent_of_path(path).add_data_field(f"{path[-1]} {self._stage}", dtype)
        return data_empty


def run_chain(steps: list[Any], scenes: list[Scene], kind: str, seed: int) -> list[list[dict[str, Any]]]:
    """The fields after each step, as ``[sample][stage]``; stage 0 is the input."""
    chain: list[PipelineStepBase] = []
    for stage, step in enumerate(steps):
        chain += [step, Snapshot(stage + 1)]
    samples = [sample_of(scene, number, kind) for number, scene in enumerate(scenes)]
    source = shuffled(ArrayProvider(columns(samples)), len(scenes), seed=seed)
    with make_iterator(source, chain, iterator={"ragged": "list"}, py_num_workers=0, num_threads=1) as iterator:
        batch = next(iter(iterator))

    def at(number: int, stage: int) -> dict[str, Any]:
        state = {name: batch[f"{name} {stage}"][number] for name in EGO_FIELDS}
        cameras = {
            index: {name: fields[f"{name} {stage}"][number] for name in CAMERA_FIELDS}
            for index, fields in batch["cameras"].items()
        }
        return {**state, "cameras": cameras}

    return [
        [sample, *(at(number, stage + 1) for stage in range(len(steps)))] for number, sample in enumerate(samples)
    ]


# --- what must hold after each step ---------------------------------------------------------------------


@attrs.define
class Markers:
    """What is known of the markers of one camera after some steps.

    Attributes:
        is_whole: Whether no step so far has cut anything of them off.
        num_compared: How many have been compared with where their points are.
        worst_px: The greatest distance.
    """

    is_whole: np.ndarray = attrs.field(factory=lambda: np.ones(len(COLORS), bool))
    num_compared: int = 0
    worst_px: float = 0.0

    def compare(self, camera: dict[str, Any], linear: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
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
            self.worst_px = max(self.worst_px, distances.max(initial=0))


def check_scene(scene: Scene, states: list[dict[str, Any]], steps: list[Any], tolerance: float) -> list[Markers]:
    """Check all that a sample holds, after each step."""
    markers = [Markers() for _ in scene.cameras]
    in_world = scene.points @ scene.ego_to_world[:3, :3].T + scene.ego_to_world[:3, 3]
    for before, state, step in zip(states[:-1], states[1:], steps, strict=True):
        points = in_world @ state["world_to_ego"][:3, :3].T + state["world_to_ego"][:3, 3]
        num = len(state["points3d"]) // len(scene.cameras)
        annotated = np.concatenate([camera.seen[:num] for camera in scene.cameras])
        np.testing.assert_allclose(state["points3d"], points[annotated], atol=2e-3)
        assert_inverse(state["ego_to_world"], state["world_to_ego"])
        for index, camera in state["cameras"].items():
            assert_inverse(camera["camera_from_ego"], camera["ego_from_camera"])
            seen, given = scene.cameras[index].seen, scene.cameras[index]
            expected, depths = projected(camera["lidar2img"], points[seen])
            assert (depths > 0).all()
            in_parts = camera["intrinsics"] @ camera["camera_from_ego"][:3].astype(float)
            np.testing.assert_allclose(projected(in_parts, points[seen])[0], expected, atol=0.02)
            linear = (camera["intrinsics"] @ np.linalg.inv(given.intrinsics))[:2, :2]
            markers[index].compare(camera, linear, expected, tolerance)
            if isinstance(step, CoordinateCropper):
                corners = step._limits.minimum, step._limits.maximum
                np.testing.assert_array_equal(camera["boxes"], before["cameras"][index]["boxes"].clip(*corners))
            else:
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


def assert_annotation_fits(camera: dict[str, Any], linear: np.ndarray, expected: np.ndarray) -> None:
    """Points are where points in space are projected to, and boxes around them.

    A box may be larger than one around the first box, since each step makes it larger that turns it.
    """
    assert camera["points"].shape == expected.shape
    np.testing.assert_allclose(camera["points"], expected, atol=0.02)
    low, high = camera["boxes"][:, :2], camera["boxes"][:, 2:]
    np.testing.assert_allclose((low + high) / 2, expected, atol=0.02)
    assert (high - low >= 2 * HALF_BOX_PX * np.abs(linear).sum(1) - 0.02).all()


# --- chains ---------------------------------------------------------------------------------------------


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=16)


def limits(values: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.tuples(values, values).map(sorted)


def pair_limits(values: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.tuples(limits(values), limits(values)).map(lambda axes: [*map(list, zip(*axes, strict=True))])


probs = st.sampled_from([0.5, 1.0])
keys = st.sampled_from(["sample", "rig"])
output_sizes = st.sampled_from([(96, 144), (120, 160), (150, 110)])
axis_steps = st.one_of(
    st.builds(lambda prob, two: A.Translation(prob, *two), probs, pair_limits(numbers(-15, 15))),
    st.builds(lambda prob, two: A.UniformScaling(prob, *two), probs, limits(numbers(0.75, 1.5))),
    st.builds(lambda prob, two: A.NonUniformScaling(prob, *two), probs, pair_limits(numbers(0.75, 1.5))),
    st.builds(lambda prob, signs: A.NonUniformScaling(prob, signs), probs, st.sampled_from([(-1, 1), (1, -1)])),
    st.builds(A.ShiftInsideOriginalImage, probs, st.booleans(), st.booleans()),
    st.builds(A.ShiftToAlignWithOriginalImageBorder, probs, st.sampled_from(Border)),
)
turning_steps = st.one_of(
    st.builds(lambda prob, two: A.Rotation(prob, *two), probs, limits(numbers(-40, 40))),
    st.builds(lambda prob, two: A.Shearing(prob, *two), probs, pair_limits(numbers(-12, 12))),
)


def with_selections(steps: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    options = st.tuples(st.lists(steps, max_size=2), st.lists(steps, max_size=2))
    return steps | st.builds(lambda prob, both: A.Selection(prob, [0.4, 0.6], both), probs, options)


transformations = st.tuples(
    st.lists(with_selections(axis_steps), max_size=3), st.lists(with_selections(turning_steps), max_size=1)
).map(lambda two: two[0] + two[1])
affine = st.builds(
    lambda hw, resizing, steps, key: A(
        hw, *resizing, transformation_steps=steps, key=key, **as_published(IN_PIXELS)
    ),
    output_sizes,
    st.sampled_from(
        [(A.ResizingMode.STRETCH, None)]
        + [(mode, anchor) for mode in (A.ResizingMode.PAD, A.ResizingMode.CROP) for anchor in A.ResizingAnchor]
    ),
    transformations,
    keys,
)


def resizers(is_encoded: bool) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda hw, mode, anchor: ImageResizer(
            output_hw=hw, mode=mode, anchor=anchor, is_encoded=is_encoded, **IN_PIXELS
        ),
        output_sizes,
        st.sampled_from(["stretch", "pad", "crop"]),
        st.sampled_from(["center", "top_or_left", "bottom_or_right"]),
    )


def crop_flippers(is_encoded: bool) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda hw, scales, bottom, is_inside, key: ImageResizeCropFlipper(
            output_hw=hw,
            scale_range=tuple(scales),
            bottom_crop_range=(0, bottom),
            is_kept_inside=is_inside,
            is_encoded=is_encoded,
            key=key,
            **IN_PIXELS,
        ),
        output_sizes,
        limits(numbers(0.75, 1.5)),
        numbers(0, 0.25),
        st.booleans(),
        keys,
    )


flippers = st.builds(lambda prob, key: HorizontalFlipper(prob=prob, key=key, **IN_PIXELS), probs, keys)
padders = st.builds(
    lambda tile: ImageToTileSizePadder("image", tile, hw_names="hw"),
    st.sampled_from([32, (32, 16), (1, 50)]),
)
bev = st.builds(
    lambda angles, axis, scales, translation, flips, key: BEVBBoxesTransformer3D(
        "points3d",
        None,
        None,
        None,
        ["lidar2img", "camera_from_ego"],
        "ego_to_world",
        ["world_to_ego", "ego_from_camera"],
        angles,
        axis,
        scales,
        translation,
        flip_prob_x=flips[0],
        flip_prob_y=flips[1],
        key=key,
    ),
    limits(numbers(-3, 3)),
    st.integers(0, 2),
    limits(numbers(0.875, 1.125)),
    st.lists(numbers(0, 3), min_size=3, max_size=3),
    st.tuples(probs, st.sampled_from([0.0, 0.5])),
    keys,
)
croppers = st.builds(
    lambda low, extent: CoordinateCropper("boxes", low * 2, np.add(low, extent).tolist() * 2),
    st.sampled_from([[0, 0], [10, 20]]),
    st.sampled_from([[50, 40], [160, 120]]),
)
any_step = st.one_of(affine, affine, affine, resizers(False), crop_flippers(False), flippers, padders, bev)
chains = st.lists(any_step, min_size=1, max_size=4)


def wrapped(steps: list[Any], choices: list[bool]) -> list[Any]:
    """Steps applied to each camera alone, or to all cameras of a sample, as far as these have one size by then."""
    result, is_one_size = [], False
    for step, is_alone in zip(steps, choices, strict=False):
        is_indifferent = isinstance(step, CoordinateCropper | ImageDecoder | ImageToTileSizePadder)
        must_be_alone = not (is_one_size or is_indifferent or isinstance(step, BEVBBoxesTransformer3D))
        is_wrapped = must_be_alone or (is_alone and not isinstance(step, BEVBBoxesTransformer3D))
        result.append(DataGroupArrayWithNameElementsAppliedStep(step, "cameras") if is_wrapped else step)
        is_one_size |= isinstance(step, A | ImageResizer | ImageResizeCropFlipper)
    return result


def scenes_of(seed: int) -> list[Scene]:
    """Three scenes of two cameras each; image sizes differ between cameras and samples."""
    sizes = [[(90, 120), (120, 160)], [(120, 160), (100, 130)], [(110, 126), (90, 120)]]
    return [make_scene(3 * seed + number, of_scene) for number, of_scene in enumerate(sizes)]


def checked_chain(
    steps: list[Any], choices: list[bool], kind: str, seed: int, tolerance: float = TOLERANCE_PX
) -> list[Markers]:
    scenes = scenes_of(seed)
    found = run_chain(wrapped(steps, choices), scenes, kind, seed)
    return [
        markers
        for scene, states in zip(scenes, found, strict=True)
        for markers in check_scene(scene, states, steps, tolerance)
    ]


# Matrices of other image files are beside those that are named.
OF_OTHER_FILES = pytest.mark.filterwarnings("ignore:.* moves the pixels of")


@OF_OTHER_FILES
def test_markers_stay_where_their_points_are_projected_to() -> None:
    compared: list[int] = []

    @settings(max_examples=examples(5, 30), deadline=None, derandomize=True, phases=PHASES)
    @given(
        chains,
        st.one_of(st.just([]), croppers.map(lambda step: [step])),
        st.lists(st.booleans(), min_size=6, max_size=6),
        st.sampled_from(["uint8", "float", "clip"]),
        st.integers(0, 1000),
    )
    def check(steps: list[Any], last: list[Any], choices: list[bool], kind: str, seed: int) -> None:
        markers = checked_chain(steps + last, choices, kind, seed)
        compared.append(sum(each.num_compared for each in markers))

    check()
    assert np.mean(compared) > 20


@OF_OTHER_FILES
def test_markers_of_image_files_stay_where_their_points_are_projected_to() -> None:
    compared: list[int] = []

    @settings(max_examples=examples(3, 6), deadline=None, derandomize=True, phases=PHASES)
    @given(
        st.just(ImageDecoder("image", False)) | resizers(True) | crop_flippers(True),
        st.lists(affine | crop_flippers(False) | bev, max_size=1),
        st.lists(st.booleans(), min_size=2, max_size=2),
        st.integers(0, 1000),
    )
    def check(first: Any, others: list[Any], choices: list[bool], seed: int) -> None:
        markers = checked_chain([first, *others], choices, "encoded", seed)
        compared.append(sum(each.num_compared for each in markers))

    check()
    assert np.mean(compared) > 20


# --- where nothing is interpolated, and where two operators do the same ---------------------------------


STRETCHED = (A.ResizingMode.STRETCH, None)
CROPPED = (A.ResizingMode.CROP, A.ResizingAnchor.CENTER)
MOVES = [A.Translation(1, [7, -5]), A.NonUniformScaling(1, [-1, 1])]


@each_value(
    kind=["uint8", "float", "clip"],
    step=[
        HorizontalFlipper(prob=1, **IN_PIXELS),
        ImageToTileSizePadder("image", 64, hw_names="hw"),
        ImageResizeCropFlipper(output_hw=(100, 160), scale_range=(1, 1), flip_prob=1, **IN_PIXELS),
        ImageResizer(output_hw=(100, 160), mode="crop", anchor="bottom_or_right", **IN_PIXELS),
        A((140, 160), A.ResizingMode.PAD, A.ResizingAnchor.CENTER, **as_published(IN_PIXELS)),
        A((120, 160), *STRETCHED, transformation_steps=MOVES, **as_published(IN_PIXELS)),
    ],
)
def test_pixels_that_are_only_moved_keep_their_markers_exactly(step: Any, kind: str) -> None:
    scenes = [make_scene(number, [(120, 160)] * 2) for number in range(3)]
    for scene, states in zip(scenes, run_chain([step], scenes, kind, 0), strict=True):
        for markers in check_scene(scene, states, [step], TOLERANCE_OF_COPIES_PX):
            assert markers.num_compared > 0


@some("scale", [1.0, 0.5, 2.0, 0.8], {2, 3})
def test_no_operator_disagrees_by_a_fraction_of_a_pixel(scale: float) -> None:
    """Region of a resize, pasted region, warp, decoded part of a file: the same content at the same place."""
    hw = (round(120 * scale), round(160 * scale))
    arguments = {**IN_PIXELS, "output_hw": hw}
    published = as_published(arguments)
    steps = {
        "region": A(resizing_mode=STRETCHED[0], **published),
        "pasted": A(resizing_mode=STRETCHED[0], transformation_steps=[A.Translation(1, [0, 1e-6])], **published),
        "warp": A(resizing_mode=STRETCHED[0], transformation_steps=[A.Rotation(1, 1e-6)], **published),
        "resizer": ImageResizer(mode="stretch", **arguments),
        "crop": ImageResizeCropFlipper(scale_range=(scale, scale), flip_prob=0, **arguments),
        "encoded": ImageResizer(mode="crop", is_encoded=True, **arguments),
    }
    scenes = [make_scene(number, [(120, 160)]) for number in range(3)]
    for name, step in steps.items():
        kind = "encoded" if name == "encoded" else "uint8"
        for scene, states in zip(scenes, run_chain([step], scenes, kind, 0), strict=True):
            camera = states[1]["cameras"][0]
            centers, _ = found_markers(camera["image"])
            expected, _ = projected(camera["lidar2img"], scene.points)
            difference = centers - expected
            assert np.abs(difference.mean(0)).max() < TOLERANCE_OF_COPIES_PX, name
            assert np.abs(difference).max() < 2 * TOLERANCE_OF_COPIES_PX, name
