"""Steps that change pixels: what they make of arrays is what they make of images in a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.array_samples import sample_of
from support.arrays import DT
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import (
    AxesLayoutSetter,
    DataGroupArrayWithNameElementsAppliedStep,
    GridMasker,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    PhotoMetricDistorter,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES, get_dali_type_for_numpy_type
from accvlab.dali_pipeline_framework.testing import run_step

Draw = Callable[[st.SearchStrategy[Any]], Any]
# A step, the types of images that it works on, and their numbers of channels.
Case = tuple[PipelineStepBase, Sequence[Any], Sequence[int]]

PIXEL_TYPES = (np.uint8, np.float32)
NUMBERS = [NUMPY_TYPES[dtype] for dtype in NUMPY_TYPES if dtype != DT.BOOL]
PROB = st.sampled_from([0.0, 0.5, 1.0])


def limits(low: float, high: float, *others: float) -> st.SearchStrategy[list[float]]:
    number = st.one_of(st.floats(low, high, width=32), st.sampled_from([low, high, *others]))
    return st.lists(number, min_size=2, max_size=2).map(sorted)


def distort(draw: Draw) -> Case:
    dtype = draw(st.sampled_from(PIXEL_TYPES))
    most = 64 if dtype == np.uint8 else 0.25
    probabilities = draw(st.tuples(*[PROB] * 5))
    ranges = [limits(-most, most, 0), limits(-40, 40, 0), limits(0, 2, 0.5, 1), limits(0, 2, 1)]
    step = PhotoMetricDistorter("image", *map(draw, ranges), *probabilities, is_bgr=draw(st.booleans()))
    return step, [dtype], [3]


def normalize(draw: Draw) -> Case:
    num_channels, is_one = draw(st.sampled_from([1, 3, 4])), draw(st.booleans())
    number = st.lists(st.floats(-300, 300), min_size=num_channels, max_size=num_channels)
    mean, std_dev = draw(number), [0.1 + abs(value) for value in draw(number)]
    output_type = get_dali_type_for_numpy_type(np.dtype(draw(st.sampled_from(NUMBERS))))
    step = ImageMeanStdDevNormalizer(
        "image",
        mean[0] if is_one else mean,
        std_dev,
        output_type,
        output_layout=draw(st.sampled_from(["", "CHW"])),
    )
    return step, NUMBERS, [num_channels]


def mask(draw: Draw) -> Case:
    step = GridMasker(
        "image",
        prob=draw(PROB),
        tile_range=tuple(map(int, draw(limits(1, 30)))),
        ratio_range=tuple(draw(limits(0, 1, 0.5))),
        angle_range=tuple(draw(st.one_of(st.just([0.0, 0.0]), limits(-7, 7)))),
    )
    return step, PIXEL_TYPES, [1, 3, 4]


def pixels(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return generator.random(shape).astype(dtype)
    levels = generator.integers(0, 256, shape)
    return (levels if np.iinfo(dtype).max > 200 else levels // 2).astype(dtype)


def assert_forms_agree(step: PipelineStepBase, images: Sequence[np.ndarray], seed: int) -> None:
    samples = [sample_of({"image": image, "other": image}) for image in images]
    steps = [step]
    if "output_layout='F" in repr(step):  # which DALI can only give where it knows another one
        steps.insert(0, AxesLayoutSetter("image", "FHWC"))
    in_graph = run_step(steps, samples, seed=seed)
    in_workers = run_step(steps, samples, draws=[run.draws for run in in_graph], run="workers")
    for image, one, other in zip(images, in_graph, in_workers, strict=True):
        expected, found = one.output["image"], other.output["image"]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        white = 255.0 if expected.dtype.kind in "iu" else 1.0
        difference = np.abs(found.astype(np.float64) - expected).max(initial=0)
        tolerance = step.image_tolerance * white
        assert difference <= tolerance, f"{difference} > {tolerance}"
        assert (other.output["other"] == image).all()


# --- the law --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [distort, normalize, mask])
@settings(max_examples=examples(6, 16), deadline=None)
@given(data=st.data(), seed=st.integers(0, 99))
def test_both_forms_agree(make: Callable[[Draw], Case], data: st.DataObject, seed: int) -> None:
    step, *choices = make(data.draw)
    dtype, num_channels = (data.draw(st.sampled_from(each)) for each in choices)
    side = st.integers(0 if make is not mask else 1, 40)
    sizes = data.draw(st.lists(st.tuples(side, side), min_size=1, max_size=4))
    generator = np.random.default_rng(seed)
    images = [pixels(generator, (*size, num_channels), dtype) for size in sizes]
    note = data.draw(st.sampled_from(["as they are", "parts of larger ones", "mirrored"]))
    assert_forms_agree(step, [_stored(image, note) for image in images], seed)


def _stored(image: np.ndarray, how: str) -> np.ndarray:
    """The same image, in another order in memory."""
    if how == "mirrored":
        return np.ascontiguousarray(image[:, ::-1])[:, ::-1]
    if how == "as they are":
        return image
    return np.pad(image, [(2, 1), (3, 0), (1, 1)])[2:-1, 3:, 1:-1]


CLIP_STEPS = [
    PhotoMetricDistorter("image", [-9, 9], [-18, 18], [0.5, 1.5], [0.5, 1.5]),
    ImageMeanStdDevNormalizer("image", [124, 116, 104], [58, 57, 57], output_layout="FCHW"),
    ImageMeanStdDevNormalizer("image", [124, 116, 104], 57, DT.FLOAT16, output_layout="FCHW"),
    ImageMeanStdDevNormalizer("image", 124, 57),
    ImageRange01Normalizer("image"),
    GridMasker("image", prob=1, tile_range=(4, 9), angle_range=(-1, 1)),
    AxesLayoutSetter("image", "FHWC"),
]


@pytest.mark.parametrize("step", CLIP_STEPS, ids=lambda step: type(step).__name__)
def test_clips(step: PipelineStepBase) -> None:
    generator = np.random.default_rng(0)
    clips = [pixels(generator, (frames, 20, 24, 3), np.uint8) for frames in (1, 3)]
    assert_forms_agree(step, clips, 5)
    if "F" in repr(step):  # which names the axis of frames
        return
    [run] = run_step([step], [sample_of({"image": clips[1]})], run="workers")
    for number, frame in enumerate(clips[1]):
        [alone] = run_step([step], [sample_of({"image": frame})], draws=[run.draws], run="workers")
        assert (alone.output["image"] == run.output["image"][number]).all()


def test_levels_at_which_roundings_differ() -> None:
    """Halves are rounded away from 0 by DALI, and to even numbers by OpenCV."""
    levels = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
    half = PhotoMetricDistorter(
        "image", [0, 0], [0, 0], [0.5, 0.5], [1, 1], prob_contrast_aug=1, prob_swap_channels=0
    )
    [run] = run_step(half, [sample_of({"image": levels, "other": levels})], run="workers")
    assert (run.output["image"] == (levels.astype(int) + 1) // 2).all()
    assert_forms_agree(half, [levels], 0)


# --- details --------------------------------------------------------------------------------------------


def test_what_is_not_changed_is_not_copied() -> None:
    image = np.full((6, 8, 3), 9, np.uint8)
    for step in (
        GridMasker("image", prob=0),
        PhotoMetricDistorter("image", [-9, 9], [-9, 9], [0.5, 1], [0.5, 1], *[1e-30] * 5),
        AxesLayoutSetter("image", "HWC"),
    ):
        sample = sample_of({"image": image, "other": image})
        assert np.shares_memory(step(sample)["image"], sample["image"]), step


def test_an_image_that_cannot_be_changed_is_named_in_the_sample() -> None:
    cameras = [{"image": np.zeros(shape, np.uint8)} for shape in ((4, 4, 3), (4, 4))]
    with pytest.raises(FieldValueError, match=r"^cameras\[1\]\.image: "):
        DataGroupArrayWithNameElementsAppliedStep(GridMasker("image"), "cameras")(sample_of({"cameras": cameras}))
