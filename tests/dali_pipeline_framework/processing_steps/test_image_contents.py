"""What the format of a chain knows of images, and which orders of steps are refused before anything runs.

Which step may be before which is in a table of the documentation, which is tested there.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import types
from step_runs import run_step as run_bare
from support.arrays import ArrayProvider
from support.frame_trees import write_frames
from support.public_steps import STEPS_ON_IMAGES
from support.random_steps import filled
from support.refusals import assert_refused
from support.steps import Doubler, KeepsFormat
from support.videos import make_video
from support.warnings_of_product import of_product
from support.windows import frame_clips, video_clips

from accvlab.dali_pipeline_framework.errors import FormatError
from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.pipeline.chain import chain_format
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    AxesLayoutSetter,
    DataGroupArrayWithNameElementsAppliedStep,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    ImageUse,
    LambdaStep,
    PaddingToUniform,
    PhotoMetricDistorter,
    PipelineStepBase,
    TensorSizeAdder,
    UnneededFieldRemover,
)
from accvlab.dali_pipeline_framework.providers import ConcatDataProvider, FileDataProvider, FrameDataProvider
from accvlab.dali_pipeline_framework.sample_data import ImageContent
from accvlab.dali_pipeline_framework.sample_data.formats import (
    DECODED_CLIP,
    DECODED_IMAGE,
    ENCODED_IMAGE,
    described_together,
    leaf_format,
)
from accvlab.dali_pipeline_framework.sources import FileReader, SequenceReader
from accvlab.dali_pipeline_framework.testing import check_step, run_step
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider

DT = types.DALIDataType
MEAN, STD_DEV = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]


def normalizer(layout: str) -> ImageMeanStdDevNormalizer:
    return ImageMeanStdDevNormalizer("image", 0.0, 1.0, DT.UINT8, output_layout=layout)


DECODE = ImageDecoder("image", False)
RANGE = ImageRange01Normalizer("image")
NORMALIZE = ImageMeanStdDevNormalizer("image", MEAN, STD_DEV)
TO_CHW, TO_FCHW = normalizer("CHW"), normalizer("FCHW")
RESIZE = ImageResizer("image", output_hw=[4, 6])
RESIZE_ENCODED = ImageResizer("image", output_hw=[4, 6], is_encoded=True)
CROP = ImageResizeCropFlipper("image", output_hw=[4, 6], scale_range=(0.5, 1.0))
CROP_ENCODED = ImageResizeCropFlipper("image", output_hw=[4, 6], scale_range=(0.5, 1.0), is_encoded=True)
AFFINE = AffineTransformer([4, 6], AffineTransformer.ResizingMode.STRETCH, None, "image")
FLIP = HorizontalFlipper("image")
PAD = ImageToTileSizePadder("image", 32)
SIZE = TensorSizeAdder("image", "_hw")
DISTORT = PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5])
GRID = GridMasker("image")
OF_HWC = [AFFINE, CROP, DISTORT, FLIP, GRID, NORMALIZE, RESIZE]

FILE = {"image": (DT.UINT8, None, ENCODED_IMAGE)}
IMAGE = {"image": (DT.UINT8, 3, DECODED_IMAGE)}
CLIP = {"image": (DT.UINT8, 4, DECODED_CLIP)}
UNDECLARED = {"image": (DT.UINT8, None, ImageContent())}
BYTES = {"image": (DT.UINT8, 1, ImageContent())}


def blueprint_of(fields: dict[str, tuple[DT, int | None, ImageContent]]) -> SampleDataGroup:
    blueprint = SampleDataGroup()
    for name, (dtype, ndim, content) in fields.items():
        blueprint.add_data_field(name, dtype, ndim=ndim, content=content)
    return blueprint


def folded(fields: Any, steps: Sequence[PipelineStepBase]) -> SampleDataGroup:
    return chain_format(fields if isinstance(fields, SampleDataGroup) else blueprint_of(fields), steps)


def content_after(fields: Any, *steps: PipelineStepBase) -> ImageContent:
    return folded(fields, steps).format.leaves[("image",)].content


def refused(fields: Any, *steps: PipelineStepBase) -> str:
    """The one problem of a chain."""
    with pytest.raises(FormatError) as caught:
        folded(fields, steps)
    [problem] = caught.value.problems
    return f"{problem.step}: {described_together([(problem.path, problem.message)])[0]}"


# --- orders that came out wrong, blamed another step, or ended in the engine ----------------------------------

IS_DECODED = "image: must hold the bytes of an image file, but is a decoded image. "
NOT_TWICE = "Images are decoded once, before anything is done to their pixels"
LEAVE_OUT = "Leave out `is_encoded=True`, or the step that decodes it"
ORDERS: list[tuple[Any, list[PipelineStepBase], str]] = [
    (UNDECLARED, [DECODE, DECODE], f"step 1 (ImageDecoder): {IS_DECODED}{NOT_TWICE}"),
    (UNDECLARED, [RANGE, DECODE], f"step 1 (ImageDecoder): {IS_DECODED}{NOT_TWICE}"),
    (FILE, [RESIZE_ENCODED, DECODE], f"step 1 (ImageDecoder): {IS_DECODED}{NOT_TWICE}"),
    (FILE, [DECODE, RESIZE_ENCODED], f"step 1 (ImageResizer): {IS_DECODED}{LEAVE_OUT}"),
    (FILE, [DECODE, CROP_ENCODED], f"step 1 (ImageResizeCropFlipper): {IS_DECODED}{LEAVE_OUT}"),
    ({"image": (DT.UINT8, 3, ImageContent())}, [DECODE], "looks decoded already, as its type and ndim=3 show"),
    (
        BYTES,
        [RANGE],
        "step 0 (ImageRange01Normalizer): image: must be a decoded image, but holds the bytes of a file, as its "
        "type and ndim=1 show. Put ImageDecoder before ImageRange01Normalizer; or declare "
        "`content=ImageContent(is_encoded=False)` where it holds no file",
    ),
    (
        {**IMAGE, "mask": (DT.UINT8, None, ENCODED_IMAGE)},
        [ImageResizer("image", output_hw=[4, 6], mask_names="mask")],
        "mask: must be a decoded image",
    ),
    (IMAGE, [normalizer("FCHW")], "has the layout HWC, which cannot become `output_layout` FCHW"),
    (
        {"image": (DT.UINT8, None, ImageContent(layout="HCW"))},
        [PAD],
        "must have the layout HWC (clips: FHWC), but",
    ),
    (
        FILE,
        [DECODE, AxesLayoutSetter("image", "CHW")],
        "step 1 (AxesLayoutSetter): image: has the layout HWC, so it cannot be given CHW: this step moves no data."
        " Transpose it, e.g. by `output_layout` of ImageMeanStdDevNormalizer",
    ),
    (FILE, [DECODE, AxesLayoutSetter("image", "FHWC")], "has 3 dimension(s)"),
    (FILE, [AxesLayoutSetter("image", "HWC")], "holds the bytes of a file"),
    (UNDECLARED, [AxesLayoutSetter("image", "CHW"), RESIZE], "but has CHW. "),
]


@pytest.mark.parametrize(("fields", "steps", "message"), ORDERS)
def test_orders_that_are_refused(fields: Any, steps: list[PipelineStepBase], message: str) -> None:
    assert message in refused(fields, *steps)


OF_PIXELS = [*OF_HWC, RANGE, PAD, SIZE]


def test_no_step_of_pixels_is_left_out() -> None:
    of_others = {"AxesLayoutSetter", "ImageDecoder", "VideoDecoder"}
    assert STEPS_ON_IMAGES - {type(step).__name__ for step in OF_PIXELS} == of_others, "add them to `OF_PIXELS`"


@pytest.mark.parametrize("step", OF_PIXELS, ids=lambda step: type(step).__name__)
def test_steps_of_pixels_take_no_files_and_what_is_unknown(step: PipelineStepBase) -> None:
    here = type(step).__name__
    message = refused(FILE, step)
    is_file = "image: must be a decoded image, but holds the bytes of a file. Put ImageDecoder before"
    assert message.startswith(f"step 0 ({here}): {is_file} {here}")
    assert ("`is_encoded=True`" in message) == (step in (CROP, RESIZE))
    assert folded({"image": (DT.FLOAT, None, ImageContent())}, [step])
    assert content_after(UNDECLARED, step) == ImageContent(is_encoded=None if step is SIZE else False)
    if step in OF_HWC:
        assert content_after(CLIP, step).layout == "FHWC"
        assert refused(FILE, DECODE, TO_CHW, step) == (
            f"step 2 ({here}): image: must have the layout HWC (clips: FHWC), but has CHW. "
            f"Put {here} before the step that changes it"
        )
    else:
        assert content_after(IMAGE, TO_CHW, step).layout == "CHW", "add it to `OF_HWC`"


KNOWN: list[tuple[Any, list[PipelineStepBase], ImageContent]] = [
    (FILE, [RESIZE_ENCODED], DECODED_IMAGE),
    (FILE, [CROP_ENCODED], DECODED_IMAGE),
    (UNDECLARED, [SIZE, DECODE], DECODED_IMAGE),  # the size does not tell that it was decoded
    ({"image": (DT.UINT8, 1, ImageContent(is_encoded=False))}, [RANGE], ImageContent(is_encoded=False)),
    ({"image": (DT.FLOAT, 1, ImageContent())}, [RANGE], ImageContent(is_encoded=False)),
    (FILE, [DECODE, NORMALIZE, RANGE, NORMALIZE, DISTORT], DECODED_IMAGE),  # no range of values is recorded
    (IMAGE, [NORMALIZE, GRID, RESIZE, AFFINE, FLIP, PAD], DECODED_IMAGE),
    (FILE, [DECODE, AxesLayoutSetter("image", "HWC")], DECODED_IMAGE),
    (FILE, [DECODE, AxesLayoutSetter("image", "")], DECODED_IMAGE),
    (CLIP, [AxesLayoutSetter("image", "DHWC")], ImageContent(is_encoded=False, layout="DHWC")),
    (UNDECLARED, [AxesLayoutSetter("image", "CHW")], ImageContent(layout="CHW")),
    (IMAGE, [PaddingToUniform(), SIZE, UnneededFieldRemover(["image_hw"])], DECODED_IMAGE),
]


@pytest.mark.parametrize(("fields", "steps", "content"), KNOWN)
def test_what_is_known_after_a_chain(fields: Any, steps: list[PipelineStepBase], content: ImageContent) -> None:
    assert content_after(fields, *steps) == content


def test_frames_of_a_sequence_are_decoded_once() -> None:
    def frames(ndim: int, content: ImageContent) -> SampleDataGroup:
        sample, group = SampleDataGroup(), SampleDataGroup()
        group.add_data_field_array("encoded", DT.UINT8, 2, ndim=ndim, content=content)
        sample.add_data_group_field("image", group)
        return sample

    assert content_after(frames(1, ENCODED_IMAGE), DECODE) == DECODED_CLIP
    message = refused(frames(3, DECODED_IMAGE), DECODE)
    assert "image: must be a data field with an encoded image, is a group" in message


def test_height_and_width_are_padded_and_told_in_any_layout() -> None:
    image = np.full((40, 70, 3), 7, np.uint8)
    sample = filled({"image": (DT.UINT8, image)})
    run = run_step([TO_CHW, PAD, SIZE], sample)
    expected = np.zeros((3, 64, 96), np.uint8)
    expected[:, :40, :70] = 7
    np.testing.assert_array_equal(run.output["image"], expected)
    assert run.output["image_hw"].tolist() == [64, 96]
    assert run.layouts["image"] == "CHW"
    clip = filled({"image": (DT.UINT8, np.stack([image] * 2))})
    assert run_step([TO_FCHW, PAD], clip, layouts={"image": "FHWC"}).output["image"].shape == (2, 3, 64, 96)
    [in_a_bare_pipeline] = run_bare([TO_CHW, PAD], [{"image": image}])
    np.testing.assert_array_equal(in_a_bare_pipeline["image"], expected)


# --- means and deviations of images in 0..1 --------------------------------------------------------------------


@pytest.mark.parametrize(("fields", "before"), [(FILE, [DECODE]), (UNDECLARED, [RESIZE, FLIP])])
def test_fractions_are_not_for_images_in_0_255(fields: Any, before: list[PipelineStepBase]) -> None:
    mean, std_dev = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    fractions = ImageMeanStdDevNormalizer("image", mean, std_dev)
    with pytest.warns(UserWarning, match="^ImageMeanStdDevNormalizer") as caught:
        assert content_after(fields, *before, fractions) == content_after(fields, *before, NORMALIZE)
    assert [str(each.message) for each in of_product(caught)] == [
        "ImageMeanStdDevNormalizer for 'image': `mean` 0.485 and `std_dev` 0.229 are for "
        "images with values 0..1, but the values are 0..255. Multiply both by 255: mean=[123.675, 116.28, "
        "103.53], std_dev=[58.395, 57.12, 57.375], or put ImageRange01Normalizer before."
    ]
    # Another warning would be an error.
    assert folded(fields, [*before, fractions])
    assert folded(fields, [*before, RANGE, ImageMeanStdDevNormalizer("image", mean, std_dev)])


@pytest.mark.parametrize(
    ("mean", "std_dev"), [(0.0, 255.0), (1, 1), (0.5, 2), ([0.5, 0.5, 120], 0.5), (0, 1 / 2), ([-0.5, 1, 1], 1)]
)
def test_what_is_no_fraction(mean: Any, std_dev: Any) -> None:
    assert folded(IMAGE, [ImageMeanStdDevNormalizer("image", mean, std_dev)])


@pytest.mark.parametrize("dtype", [DT.FLOAT, DT.UINT16])
def test_fractions_are_for_images_of_other_types(dtype: DT) -> None:
    fractions = ImageMeanStdDevNormalizer("image", 0.449, [0.2, 0.2, 0.2])
    assert folded({"image": (dtype, 3, ImageContent(is_encoded=False))}, [fractions])


# --- steps of users -----------------------------------------------------------------------------------------


class Ours(KeepsFormat):
    """Declares nothing, and changes images in place."""

    def __init__(self, change: Any = None) -> None:
        self._change = change

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data["image"] = self._change(data["image"])
        return data


def transposed(image: Any) -> Any:
    return fn.transpose(image, perm=[2, 0, 1])


@attrs.frozen(repr=False)
class Transposer(KeepsFormat):
    """Moves the channels, and says where to."""

    layout: str
    uses: Any = None

    def declare_images(self, data_empty: SampleDataGroup) -> Any:
        needs = ImageContent(is_encoded=False, layout="HWC")
        return self.uses or [ImageUse("image", needs, lambda leaf: attrs.evolve(leaf.content, layout=self.layout))]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data["image"] = transposed(data["image"])
        return data


class TestStepsOfUsers:
    def test_after_a_step_that_declares_nothing_nothing_is_known(self) -> None:
        assert not content_after(FILE, Ours()).is_known
        assert not content_after(FILE, DECODE, NORMALIZE, Ours()).is_known
        assert folded(BYTES, [Ours(), RANGE])
        assert folded(FILE, [DECODE, Ours(), DECODE])

    def test_what_the_step_left_alone_is_known_again_in_the_graph(self) -> None:
        sample = filled({"image": (DT.UINT8, np.full((40, 70, 3), 7, np.uint8)), "other": (DT.FLOAT, [1.0])})
        run = run_step([TO_CHW, Doubler("other"), PAD], sample)
        assert run.output["image"].shape == (3, 64, 96)
        assert run.output["other"].tolist() == [2.0]
        with pytest.raises(FormatError, match="but has CHW"):
            run_step([TO_CHW, Doubler("other"), RESIZE], sample)
        assert run_step([TO_CHW, Ours(fn.copy), PAD], sample).output["image"].shape == (32, 64, 70)

    def test_a_class_below_that_works_otherwise_declares_nothing(self) -> None:
        class Other(ImageRange01Normalizer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                return super()._process(data)

        class Same(ImageRange01Normalizer):
            def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> Any:
                return super()._check_and_adjust_data_format_input_to_output(data_empty)

        assert not content_after(IMAGE, Other("image")).is_known
        assert folded(FILE, [Other("image")])
        assert content_after(IMAGE, Same("image")) == DECODED_IMAGE

    def test_they_declare_what_they_need_and_leave(self) -> None:
        to_chw = Transposer("CHW")
        assert content_after(FILE, DECODE, to_chw) == ImageContent(is_encoded=False, layout="CHW")
        assert "Put Transposer before the step that changes it" in refused(IMAGE, TO_CHW, to_chw)
        assert "Put PhotoMetricDistorter before the step that changes it" in refused(IMAGE, to_chw, DISTORT)
        assert "Put ImageDecoder before Transposer" in refused(FILE, to_chw)

    def test_check_step_looks_at_declared_layouts(self) -> None:
        sample = filled({"image": (DT.UINT8, np.zeros((4, 6, 3), np.uint8))})
        check_step(Transposer("CHW"), sample, layouts={"image": "HWC"})
        with pytest.raises(AssertionError, match="image: layout CHW, the format says HWC"):
            check_step(Transposer("HWC"), sample, layouts={"image": "HWC"})

    @pytest.mark.parametrize("declared", [{"changes_images": False}, {"reads_pixels": False}])
    def test_they_declare_that_they_leave_images_alone(self, declared: dict[str, bool]) -> None:
        assert content_after(IMAGE, type("Leaves", (Ours,), declared)()) == DECODED_IMAGE

    @pytest.mark.parametrize("wrong", [5, "image", [ImageContent()]])
    def test_declarations_are_uses(self, wrong: Any) -> None:
        message = "Transposer.declare_images must return a list of ImageUse or None"
        assert_refused(lambda: folded(IMAGE, [Transposer("CHW", wrong)]), message)
        assert_refused(lambda: ImageUse(1.5), "`names` must be a name")

    def test_functions_declare_what_they_leave(self) -> None:
        content = ImageContent(is_encoded=False, layout="CHW")
        to_image: dict[str, Any] = {"input_names": "image", "output_types": {"image": DT.UINT8}}
        step = LambdaStep(transposed, output_contents={"image": content}, **to_image)
        assert content_after(IMAGE, step) == content
        assert "but has CHW. " in refused(IMAGE, step, RESIZE)
        assert not content_after(FILE, LambdaStep(transposed, **to_image)).is_known
        to_other = LambdaStep(transposed, input_names="image", output_types={"other": DT.UINT8})
        assert content_after(FILE, to_other) == ENCODED_IMAGE

    def test_wrappers_pass_on_what_is_known(self) -> None:
        rig = SampleDataGroup()
        rig.add_data_group_field_array("cameras", blueprint_of(FILE), 2)
        each = [DataGroupArrayWithNameElementsAppliedStep(step, "cameras") for step in (DECODE, TO_CHW, FLIP)]
        assert folded(rig, each[:2]).format.leaves[("cameras", 1, "image")].content.layout == "CHW"
        with pytest.raises(FormatError) as caught:
            folded(rig, each)
        assert [problem.path for problem in caught.value.problems] == [("cameras", n, "image") for n in (0, 1)]
        assert "Put HorizontalFlipper before the step that changes it" in str(caught.value)


# --- what the providers and readers of the package declare ---------------------------------------------------


def declared_by(source: Any) -> dict[Any, ImageContent]:
    """The known contents of a provider or a reader, by the paths of fields."""
    is_provider = isinstance(source, DataProvider)
    structure = source.sample_data_structure if is_provider else source.used_sample_data_structure
    return {path: leaf.content for path, leaf in structure.format.leaves.items() if leaf.content.is_known}


def test_providers_and_readers_declare_contents(tmp_path: Path) -> None:
    root = write_frames(tmp_path / "frames", {"stream": 3})
    encoded = {("data",): ENCODED_IMAGE}
    files = FileDataProvider(root, label_name=None, path_name=None, index_name=None)
    undeclared = ArrayProvider({"data": (DT.UINT8, [np.zeros(1, np.uint8)])})
    assert declared_by(files) == declared_by(ConcatDataProvider([files, files])) == encoded
    assert declared_by(ConcatDataProvider([files, undeclared])) == {}
    assert declared_by(FileReader(file_root=root)) == encoded
    assert [*declared_by(FrameDataProvider(root)).values()] == [ENCODED_IMAGE]
    assert [*declared_by(frame_clips(root, 3)).values()] == [ENCODED_IMAGE] * 3
    assert declared_by(SequenceReader(file_root=root, sequence_length=2)) == {("frames",): DECODED_CLIP}
    path = make_video(tmp_path / "video.webm", 4)
    assert declared_by(video_clips(path, 2)) == {("frames",): DECODED_CLIP}
    assert [*declared_by(VideoFrameDataProvider(path)).values()] == [DECODED_IMAGE]


# --- the value, and the format that has it ---------------------------------------------------------------------


class TestContent:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"is_encoded": 1}, "is_encoded"),
            ({"layout": ""}, "layout"),
            ({"layout": "HWH"}, "layout"),
            ({"layout": 3}, "layout"),
            ({"is_encoded": True, "layout": "HWC"}, "layout"),
        ],
        ids=str,
    )
    def test_nonsense_is_refused(self, arguments: Any, message: str) -> None:
        assert_refused(lambda: ImageContent(**arguments), message)

    @pytest.mark.parametrize(
        ("dtype", "arguments", "message"),
        [
            (DT.UINT8, {"ndim": 3, "content": ENCODED_IMAGE}, "image: ndim must fit the content"),
            (DT.UINT8, {"ndim": 2, "content": DECODED_IMAGE}, "image: ndim must fit the content"),
            (DT.UINT8, {"content": "HWC"}, "content must be an ImageContent"),
            (DT.STRING, {"content": ENCODED_IMAGE}, "a STRING field cannot hold an image"),
        ],
    )
    def test_it_fits_the_field(self, dtype: DT, arguments: Any, message: str) -> None:
        assert_refused(lambda: SampleDataGroup().add_data_field("image", dtype, **arguments), message)

    def test_a_group_has_none_and_a_changed_type_neither(self) -> None:
        group = blueprint_of(IMAGE)
        group.add_data_group_field("group", SampleDataGroup())
        change = group.change_type_of_data_and_remove_data
        message = "a group can have neither"
        assert_refused(lambda: change("group", SampleDataGroup(), new_content=ENCODED_IMAGE), message)
        change("image", DT.UINT8)
        assert group.format.at(("image",)) == leaf_format(DT.UINT8)

    def test_it_survives_copies_and_pickling(self) -> None:
        blueprint = folded(FILE, [DECODE, TO_CHW])
        copies = [
            blueprint.get_empty_like_self(),
            blueprint.get_copy(),
            copy.deepcopy(blueprint),
            pickle.loads(pickle.dumps(blueprint)),
        ]
        assert [content_after(each) for each in copies] == [ImageContent(is_encoded=False, layout="CHW")] * 4

    def test_it_is_shown_where_it_is_known(self) -> None:
        after = folded(FILE, [DECODE, ImageMeanStdDevNormalizer("image", 1, 1, output_layout="CHW")])
        assert after.get_string_no_details() == "{\n  image: DALIDataType.FLOAT   (decoded, CHW)\n}\n"
        assert "(encoded)" not in str(blueprint_of(UNDECLARED))
