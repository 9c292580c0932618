"""Divided steps, with pixels in the graph and all else on arrays, give what whole steps give in the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from nvidia.dali import fn, types
from support.array_samples import sample_of
from support.arrays import encoded_image, gradient
from support.graphs import untraced
from support.inputs import GivenBatch
from support.laws import examples
from support.public_steps import STEPS_ON_IMAGES
from support.random_steps import each_camera, filled
from support.refusals import assert_refused
from support.steps import KeepsFormat

from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import FieldValueError, FormatError, SourceError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.pipeline.chain import chain_format
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    ArrayStep,
    AxesLayoutSetter,
    CoordinateCropper,
    DataGroupInPathAppliedStep,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    LambdaStep,
    MapStep,
    PhotoMetricDistorter,
    PipelineStepBase,
    PointsInRangeCheck,
    PointsPadder,
    TensorSizeAdder,
    UnneededFieldRemover,
)
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import PixelChanges
from accvlab.dali_pipeline_framework.testing import StepRun, run_step

DT = types.DALIDataType
_FIELDS = {"hw": "hw_names", "matrix": "projection_names", "points": "point_names", "boxes": "box_names"}


def _named(fields: set[Any]) -> dict[str, Any]:
    """The arguments for what is given in the pixels of images, and is there."""
    names = {argument: name for name, argument in _FIELDS.items() if name in fields}
    return {**names, "mask_names": "mask"} if "mask" in fields else names


def _affine(fields: set[Any]) -> PipelineStepBase:
    kinds = AffineTransformer
    return AffineTransformer(
        [20, 30], kinds.ResizingMode.STRETCH, None, "image", **{
            {"hw_names": "image_hw_field_names", "projection_names": "projection_matrix_field_names",
             "point_names": "point_field_names"}.get(argument, argument): name
            for argument, name in _named(fields).items()
        },
        transformation_steps=[kinds.Rotation(0.7, -0.3, 0.3), kinds.UniformScaling(0.5, 0.8, 1.2)],
    )  # fmt: skip


def _sized(name: str, fields: set[Any]) -> PipelineStepBase:
    return TensorSizeAdder(name, f"_size{len(fields)}")


# For each step what makes it for the names of the fields that there are.
STEPS: dict[str, Callable[[set[Any]], PipelineStepBase]] = {
    "affine": _affine,
    "crop": lambda _: CoordinateCropper("points", [0, 0], [20, 15]),
    "flip": lambda fields: HorizontalFlipper("image", **_named(fields)),
    "grid": lambda _: GridMasker("image", prob=0.7, tile_range=(6, 12), angle_range=(0.0, 0.5)),
    "layout": lambda _: AxesLayoutSetter("image", "HWC"),
    "layout of points": lambda _: AxesLayoutSetter("points", "NC"),
    "mean": lambda _: ImageMeanStdDevNormalizer("image", [90, 100, 110], 50.0, output_layout="CHW"),
    "pad": lambda _: ImageToTileSizePadder("image", 16),
    "points": lambda _: PointsPadder("points", num_points=3, mask_name="is_point"),
    "range": lambda _: PointsInRangeCheck("points", "is_inside", [0, 0], [20, 15]),
    "range 0..1": lambda _: ImageRange01Normalizer("image"),
    "recolor": lambda _: PhotoMetricDistorter("image", [-30, 30], [-18, 18], [0.5, 1.5], [0.5, 1.5]),
    "remove image": lambda _: UnneededFieldRemover(["image"]),
    "remove": lambda _: UnneededFieldRemover(["boxes", "mask"]),
    "resize": lambda fields: ImageResizer("image", output_hw=[18, 24], mode="crop", **_named(fields)),
    "resize, crop": lambda fields: ImageResizeCropFlipper(
        "image", output_hw=[16, 24], scale_range=(0.6, 1.2), bottom_crop_range=(0.0, 0.3), **_named(fields)
    ),
    "size": lambda fields: _sized("image", fields),
    "size of mask": lambda fields: _sized("mask", fields),
    "map": lambda _: MapStep(np.negative, input_names="matrix", output_types={"matrix": DT.FLOAT}),
    "lambda": lambda _: LambdaStep(
        lambda image: fn.cast(image, dtype=DT.FLOAT), input_names="image", output_types={"image": DT.FLOAT}
    ),
}
CHANGE_SIZES = {"affine", "resize", "resize, crop"}
NEED_ONE_SIZE = {"affine", "flip", "resize", "resize, crop", "decode a region"}
DECODERS: dict[str, Callable[[set[Any]], PipelineStepBase]] = {
    "decode": lambda _: ImageDecoder("image", False),
    "decode a region": lambda fields: ImageResizer(
        "image", output_hw=[18, 26], mode="crop", is_encoded=True, **_named(fields)
    ),
}


def _rig(number: int, sizes: Sequence[tuple[int, int]], kind: str, has_mask: bool) -> SampleDataGroup:
    random = np.random.default_rng(number)
    cameras = []
    for camera, (height, width) in enumerate(sizes):
        image = gradient(height, width, camera + number)
        image[height // 3 :, width // 2 :] = random.integers(0, 256, (3,))
        corners = random.uniform(0, 10, (random.integers(0, 4), 2))
        fields = {
            "image": (DT.UINT8, image if kind == "array" else encoded_image(image, kind)),
            "hw": (DT.INT32, [height, width]),
            "matrix": (DT.FLOAT, random.uniform(-1, 1, (3, 3)).astype(np.float32)),
            "points": (DT.FLOAT, random.uniform(0, 20, (random.integers(0, 4), 2))),
            "boxes": (DT.FLOAT, np.concatenate([corners, corners + random.uniform(1, 15, corners.shape)], 1)),
        }
        if has_mask:
            fields["mask"] = (DT.UINT8, random.integers(0, 9, (height, width, 1)).astype(np.uint8))
        cameras.append(filled(fields))
    sample = filled({"index": (DT.INT64, number)})
    sample.add_data_group_field_array("cameras", cameras[0], len(cameras))
    for index, each in enumerate(cameras):
        sample["cameras"][index] = each
    return sample


def test_no_step_on_images_is_left_out() -> None:
    tried = {type(make({*_FIELDS})).__name__ for make in (*STEPS.values(), *DECODERS.values())}
    assert STEPS_ON_IMAGES - tried == {"VideoDecoder"}, "add them to `STEPS`"


@st.composite
def chains(
    draw: st.DrawFn, names: Sequence[str] = (*STEPS,)
) -> tuple[list[PipelineStepBase], list[SampleDataGroup]]:
    """Steps that fit each other, and samples of a rig of cameras for them."""
    num_cameras, has_one_size = draw(st.integers(1, 3)), draw(st.booleans())
    kind, has_mask = draw(st.sampled_from(["JPEG", "PNG", "array"])), draw(st.booleans())
    sizes = [(24, 36) if has_one_size else (24 + 2 * index, 36 - 3 * index) for index in range(num_cameras)]
    num_samples = draw(st.integers(1, 4))
    samples = [
        _rig(number, [*sizes[number % 2 :], *sizes][:num_cameras], kind, has_mask) for number in range(num_samples)
    ]
    wraps = st.sampled_from(["", "cameras", 0])
    wanted = draw(st.lists(st.tuples(st.sampled_from(names), wraps), max_size=5))
    decoder, where = draw(st.sampled_from([*DECODERS])), draw(st.sampled_from(["", "cameras", "each"]))
    places = [*range(num_cameras)] if where == "each" else [where]
    steps: list[PipelineStepBase] = []
    kinds: list[str] = []
    group, is_padded = samples[0].get_empty_like_self(), False
    for name, wrap in [*((decoder, place) for place in places if kind != "array"), *wanted]:
        fields = {part for path in group.format.flat_paths for part in path}
        make = DECODERS.get(name) or STEPS[name]
        if name in NEED_ONE_SIZE and is_padded:
            continue  # sizes and masks are no longer those of the images
        if name == "map" and not all(each.has_array_form for each in steps):
            continue
        if wrap == "" and name in NEED_ONE_SIZE and not has_one_size:
            wrap = "cameras"
        step = make(fields)
        if wrap != "":
            step = each_camera(step) if wrap == "cameras" else DataGroupInPathAppliedStep(step, ("cameras", wrap))
        try:
            group = chain_format(group, [step])
        except FormatError:
            continue  # it does not fit those before
        steps.append(step)
        kinds.append(name)
        is_padded = is_padded or name == "pad"
        has_one_size = has_one_size and not (name in CHANGE_SIZES and wrap == 0)
    event(", ".join(kinds[:2]))
    return steps, samples


def assert_same(found: Sequence[StepRun], expected: Sequence[StepRun], tolerance: float = 0.0) -> None:
    """Compare outputs; images may differ by a share of their range, but for a few pixels at edges."""
    for one, other in zip(found, expected, strict=True):
        assert one.output.format.flat_paths == other.output.format.flat_paths
        for path in one.output.format.flat_paths:
            value, wanted = one.output.get_item_in_path(path), other.output.get_item_in_path(path)
            if not tolerance or path[-1] != "image":
                np.testing.assert_array_equal(value, wanted, err_msg=str(path), strict=True)
                continue
            assert (value.shape, value.dtype) == (wanted.shape, wanted.dtype)
            white = 255 if wanted.dtype.kind in "iu" or not wanted.size else max(1, np.ptp(wanted))
            difference = np.abs(value.astype(float) - wanted) / white
            assert not value.size or np.quantile(difference, 0.9) <= tolerance, path


@settings(deadline=None, max_examples=examples(12, 200))
@given(
    case=chains(),
    folds=st.booleans(),
    has_conditionals=st.booleans(),
    seed=st.integers(0, 9),
    cut=st.integers(0, 5),
)
def test_divided_steps_give_what_whole_steps_give(
    case: tuple[list[PipelineStepBase], list[SampleDataGroup]],
    folds: bool,
    has_conditionals: bool,
    seed: int,
    cut: int,
) -> None:
    steps, samples = case
    how: dict[str, Any] = {"seed": seed, "fold_arrays": folds, "enable_conditionals": has_conditionals}
    with untraced():
        divided = run_step(steps, samples, run="pixels", **how)
        whole = run_step(steps, samples, run="graph", **how)
        assert_same(divided, whole)
        assert [run.layouts for run in divided] == [run.layouts for run in whole]
        assert [run.draws.keys() for run in divided] == [run.draws.keys() for run in whole]
        replayed = run_step(steps, samples, run="pixels", draws=[run.draws for run in whole], **how | {"seed": 77})
        assert_same(replayed, whole)
        if all(step.has_array_form for step in steps):
            tolerances = [step.image_tolerance for step in steps]
            in_graph = [step.with_run("graph") for step in steps[cut : cut + 1]]
            on_arrays = run_step([*steps[:cut], *in_graph, *steps[cut + 1 :]], samples, run="workers", seed=seed)
            assert_same(on_arrays, divided, 2 * sum(tolerances) + 0.02)


# --- cases by hand ---------------------------------------------------------------------------------------

_DECODER = ImageDecoder("image", False)
_RANGE_01 = ImageRange01Normalizer("image")


def rigs(kind: str = "JPEG", sizes: Sequence[tuple[int, int]] = ((8, 12), (8, 12))) -> list[SampleDataGroup]:
    return [_rig(number, sizes, kind, False) for number in range(2)]


def images(*pixels: np.ndarray) -> list[SampleDataGroup]:
    return [sample_of({"image": encoded_image(each), "other": encoded_image(each)}) for each in pixels]


def pair(steps: list[PipelineStepBase], samples: list[SampleDataGroup]) -> list[StepRun]:
    """Run divided and whole steps, compare, and return the result."""
    divided = run_step(steps, samples, run="pixels")
    assert_same(divided, run_step(steps, samples, run="graph"))
    return divided


def in_camera(step: PipelineStepBase, number: int) -> PipelineStepBase:
    return DataGroupInPathAppliedStep(step, ("cameras", number))


def where(steps: list[PipelineStepBase], samples: list[SampleDataGroup]) -> tuple[int, int | None]:
    """How many steps run in the workers, and the first that leaves its pixels to the graph."""
    array_steps = PipelineDefinition(GivenBatch(samples), steps).array_steps(has_gpu=False)
    return (0, None) if array_steps is None else (len(array_steps.steps), array_steps.first_deferred)


@pytest.mark.parametrize("run", ["pixels", "graph"])
def test_images_without_a_layout_go_with_those_that_a_step_has_given_one(run: str) -> None:
    sample, stretch = rigs("array", [(24, 33)] * 2)[0], _affine(set())
    steps = [in_camera(stretch, 0), _RANGE_01, each_camera(stretch)]
    (folded,), (single,) = (
        run_step(steps, [sample], run=run, fold_arrays=folds, seed=0) for folds in (True, False)
    )
    assert_same([folded], [single])
    assert folded.layouts["cameras[0].image"] == folded.layouts["cameras[1].image"] == "HWC"


@pytest.mark.parametrize(("kind", "step", "first"), [("JPEG", _DECODER, 0), ("array", _RANGE_01, 1)])
def test_elements_of_an_array_may_be_sent_in_different_forms(
    kind: str, step: PipelineStepBase, first: int
) -> None:
    steps = [in_camera(step.with_run("workers"), first), in_camera(step, 1 - first)]
    assert where(steps, rigs(kind)) == (2, 1)
    pair(steps, rigs(kind))


class Inverter(ArrayStep):
    """Decodes by a public step, and reads the pixels."""

    def __init__(self) -> None:
        self.decoder = ImageDecoder("image", False)

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        data = self.decoder(data)
        data["image"] = 255 - data["image"]
        return data

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return self.decoder.check_input_data_format_and_set_output_data_format(data_empty)


def inverted(image: np.ndarray) -> np.ndarray:
    return 255 - image


class ChecksMore(HorizontalFlipper):
    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return super()._check_and_adjust_data_format_input_to_output(data_empty)


class InGraph(HorizontalFlipper):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data["image"] = fn.flip(data["image"], horizontal=1)
        return data


_HALVED = LambdaStep(
    lambda image: fn.cast(image, dtype=DT.FLOAT), input_names="image", output_types={"image": DT.FLOAT}
)
_TOUCHES_ANOTHER = LambdaStep(fn.copy, input_names="other", output_types={"other": DT.UINT8})
_INVERTED = MapStep(inverted, input_names="image")
_FLIPPER = HorizontalFlipper("image", prob=1.0)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([Inverter(), _FLIPPER], (2, 1)),  # applies another step as it likes
        ([_DECODER, InGraph("image", prob=1.0), _FLIPPER], (1, 0)),
        ([_DECODER, ChecksMore("image", prob=1.0), _FLIPPER], (3, 0)),
        ([_DECODER, _HALVED, _FLIPPER], (1, 0)),
        ([_DECODER, _TOUCHES_ANOTHER, _FLIPPER], (1, 0)),
        ([_DECODER, _INVERTED, _FLIPPER], (3, 1)),
        ([_DECODER, _FLIPPER, _INVERTED], (3, 2)),
        ([_DECODER, _FLIPPER, UnneededFieldRemover(["image"])], (3, 0)),
        ([_DECODER, _FLIPPER.with_run("workers"), _RANGE_01], (3, 2)),
    ],
    ids=lambda value: ", ".join(type(step).__name__ for step in value) if isinstance(value, list) else None,
)
def test_where_a_chain_is_cut(steps: list[PipelineStepBase], expected: tuple[int, int]) -> None:
    samples = images(gradient(8, 12), gradient(10, 14, 1))
    assert where(steps, samples) == expected
    pair(steps, samples)


def test_cameras_of_different_sizes_are_mirrored_without_fields_in_pixels() -> None:
    samples = rigs("array", [(8, 12), (10, 14)])
    found = pair([_FLIPPER], samples)[0].output["cameras"][1]["image"]
    np.testing.assert_array_equal(found, samples[0]["cameras"][1]["image"][:, ::-1])


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (ImageDecoder("image"), "ImageDecoder cannot decode it. No image file ...begins with b'no image at '"),
        (ImageResizer("image", output_hw=[4, 6], is_encoded=True), "image: No image file"),
    ],
)
def test_a_file_that_is_no_image_is_blamed_on_the_decoder(step: PipelineStepBase, words: str) -> None:
    sample = sample_of({"image": np.frombuffer(b"no image at all", np.uint8)})
    steps = [step, ImageResizer("image", output_hw=[4, 6])]
    assert_refused(lambda: run_step(steps, sample, run="pixels"), words, FieldValueError)


@pytest.mark.parametrize(
    "decoder", [each_camera(_DECODER), ImageResizer("image", output_hw=[8, 8], is_encoded=True)]
)
def test_a_broken_file_is_named_with_its_field(decoder: PipelineStepBase) -> None:
    samples = rigs()
    samples[1]["cameras"][1]["image"] = samples[1]["cameras"][1]["image"][:200]
    words = "cameras[1].image: The JPEG file (200 bytes)"
    assert_refused(lambda: run_step([decoder], samples, run="workers"), words, FieldValueError)


class Declared(KeepsFormat):
    """Changes no pixels; says and notes what it is given."""

    has_array_form = True

    def __init__(self, change: Callable[[SampleDataGroup], None], types: PixelChanges | None = None) -> None:
        self.change, self.types = change, types or {}

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges:
        return self.types

    def graph(self, image: Any, *others: Any, **parameters: Any) -> Any:
        return image

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return data

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        self.change(data)
        return data


def set_to(name: str, value: Callable[[SampleDataGroup], Any]) -> Callable[[SampleDataGroup], None]:
    return lambda data: data.set_item_in_path((name,), value(data))


_FLOAT, _INT = {("image",): {"gain": DT.FLOAT}}, {("image",): {"gain": DT.INT32}}
_READS = "reads a value that stays in the graph: pixels...Return None in the former"
_CHANGES = "image: the graph is to change its pixels ..."
_NOTED = _CHANGES + "[[], ['{}']]...noted was {}...must set `image.changed"


def changed(*parameters: Any) -> Callable[[SampleDataGroup], None]:
    return set_to("image", lambda data: data["image"].changed(*parameters))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Declared(lambda data: data["image"].mean()), _READS),
        (Declared(lambda data: data["image"][0]), _READS),
        (Declared(lambda data: np.asarray(data["image"])), _READS),
        (Declared(lambda data: cv2.flip(data["image"], 1)), _READS),
        (Declared(lambda data: None, _FLOAT), _NOTED.format("float32", "[()]")),
        (Declared(changed(), _FLOAT), _NOTED.format("float32", "[(), ()]")),
        (Declared(changed(1.0, 2.0), _FLOAT), _NOTED.format("float32", "[(), (1.0, 2.0)]")),
        (Declared(changed(1.5), _INT), _NOTED.format("int32", "[(), (1.5,)]")),
        (Declared(set_to("image", lambda data: np.zeros((3, 3, 3), np.uint8))), _CHANGES),
        (Declared(set_to("other", lambda data: data["image"])), "other: holds the image of image: ...return None"),
    ],
)
def test_a_step_that_declares_otherwise_than_it_does_is_named(step: PipelineStepBase, words: str) -> None:
    words = f"Step 1 (Declared) on sample 0 failed...{words}"
    assert_refused(lambda: run_step([_DECODER, step], images(gradient(8, 12)), run="pixels"), words, SourceError)


@pytest.mark.parametrize("mode", ["stretch", "pad", "crop"])
def test_the_region_of_a_mask_is_that_of_the_decoded_image(mode: str) -> None:
    mask = (np.arange(41 * 63).reshape(41, 63, 1) % 7).astype(np.uint8)
    sample = sample_of({"image": encoded_image(gradient(41, 63)), "mask": mask})
    resizer = functools.partial(ImageResizer, "image", output_hw=[16, 20], mode=mode, mask_names="mask")
    (of_file,) = pair([resizer(is_encoded=True)], [sample])
    of_array = run_step([_DECODER, resizer()], sample)
    np.testing.assert_array_equal(of_file.output["mask"], of_array.output["mask"])
