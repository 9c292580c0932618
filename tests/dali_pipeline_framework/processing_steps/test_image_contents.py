"""What the format of a chain knows of images, and which orders of steps are refused before anything runs."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import types
from nvidia.dali.pipeline import pipeline_def
from support.arrays import encoded_image, gradient
from support.frame_trees import write_frames
from support.random_steps import filled
from support.videos import make_video
from support.warnings_of_product import of_product
from support.windows import frame_clips, video_clips

from accvlab.dali_pipeline_framework.errors import FormatError, SettingError
from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.loader.state import fields_for_state
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
from accvlab.dali_pipeline_framework.providers import (
    ConcatDataProvider,
    FileDataProvider,
    FrameDataProvider,
)
from accvlab.dali_pipeline_framework.sample_data import ImageContent, LeafFormat
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

DECODE = ImageDecoder("image", False)
RANGE = ImageRange01Normalizer("image")
NORMALIZE = ImageMeanStdDevNormalizer("image", MEAN, STD_DEV)
TO_CHW = ImageMeanStdDevNormalizer("image", MEAN, STD_DEV, output_layout="CHW")
RESIZE = ImageResizer("image", output_hw=[4, 6])
RESIZE_ENCODED = ImageResizer("image", output_hw=[4, 6], is_encoded=True)
CROP = ImageResizeCropFlipper("image", output_hw=[4, 6], scale_range=(0.5, 1.0))
CROP_ENCODED = ImageResizeCropFlipper("image", output_hw=[4, 6], scale_range=(0.5, 1.0), is_encoded=True)
AFFINE = AffineTransformer([4, 6], AffineTransformer.ResizingMode.STRETCH, None, "image")
FLIP = HorizontalFlipper("image")
PAD = ImageToTileSizePadder("image", 32)
SIZE = TensorSizeAdder("image", "_hw")
DISTORT = PhotoMetricDistorter("image", [-32, 32], [-18, 18], [0.5, 1.5], [0.5, 1.5])
DISTORT_UNIT = PhotoMetricDistorter("image", [-0.1, 0.1], [-18, 18], [0.5, 1.5], [0.5, 1.5])
GRID = GridMasker("image")

FILE = {"image": (DT.UINT8, None, ENCODED_IMAGE)}
IMAGE = {"image": (DT.UINT8, 3, DECODED_IMAGE)}
UNDECLARED = {"image": (DT.UINT8, None, ImageContent())}
UNDECLARED_FLOAT = {"image": (DT.FLOAT, None, ImageContent())}
BYTES = {"image": (DT.UINT8, 1, ImageContent())}

# Steps that take pixels with channels last.
OF_PIXELS = {
    "affine": AFFINE,
    "crop": CROP,
    "flip": FLIP,
    "grid": GRID,
    "normalize": NORMALIZE,
    "resize": RESIZE,
}
OF_UINT8 = {"distort": DISTORT}
OF_ARRAYS = {"range": RANGE, "pad": PAD, "size": SIZE}


def blueprint_of(fields: dict[str, tuple[DT, int | None, ImageContent]]) -> SampleDataGroup:
    blueprint = SampleDataGroup()
    for name, (dtype, ndim, content) in fields.items():
        blueprint.add_data_field(name, dtype, ndim=ndim, content=content)
    return blueprint


def folded(fields: Any, steps: Sequence[PipelineStepBase]) -> SampleDataGroup:
    return chain_format(fields if isinstance(fields, SampleDataGroup) else blueprint_of(fields), steps)


def content_after(fields: Any, *steps: PipelineStepBase) -> ImageContent:
    leaf = folded(fields, steps).format.at(("image",))
    assert isinstance(leaf, LeafFormat)
    return leaf.content


def refused(fields: Any, *steps: PipelineStepBase) -> str:
    """The one problem of a chain."""
    with pytest.raises(FormatError) as caught:
        folded(fields, steps)
    [problem] = caught.value.problems
    return f"{problem.step}: {described_together([(problem.path, problem.message)])[0]}"


# --- orders that came out wrong, blamed another step, or ended in the engine ----------------------------------


class TestEncoded:
    @pytest.mark.parametrize("name", OF_PIXELS | OF_UINT8 | OF_ARRAYS)
    def test_no_step_of_pixels_takes_the_bytes_of_a_file(self, name):
        step = (OF_PIXELS | OF_UINT8 | OF_ARRAYS)[name]
        message = refused(FILE, step)
        assert message.startswith(
            f"step 0 ({type(step).__name__}): image: must be a decoded image, but holds the bytes of a "
            f"file. Put ImageDecoder before {type(step).__name__}"
        )
        assert ("`is_encoded=True`" in message) == (name in ("crop", "resize"))

    def test_bytes_are_known_by_their_one_dimension(self):
        assert refused(BYTES, RANGE) == (
            "step 0 (ImageRange01Normalizer): image: must be a decoded image, but holds the bytes of a "
            "file, as its "
            "type and ndim=1 show. Put ImageDecoder before ImageRange01Normalizer; or declare "
            "`content=ImageContent(is_encoded=False)` where it holds no file"
        )
        intensities = {"image": (DT.UINT8, 1, ImageContent(is_encoded=False))}
        assert content_after(intensities, RANGE).is_encoded is False
        vectors = {"image": (DT.FLOAT, 1, ImageContent())}
        assert folded(vectors, [RANGE]).field_types_flat == (DT.FLOAT,)

    @pytest.mark.parametrize(
        ("fields", "before"),
        [
            *((FILE, [DECODE]), (UNDECLARED, [DECODE]), (IMAGE, [])),
            *((UNDECLARED, [step]) for step in (*OF_PIXELS.values(), *OF_ARRAYS.values()) if step is not SIZE),
        ],
    )
    def test_an_image_is_decoded_once_and_before_all_else(self, fields, before):
        assert refused(fields, *before, DECODE) == (
            f"step {len(before)} (ImageDecoder): image: must hold the bytes of an image file, but is a decoded "
            "image. Images are decoded once, before anything is done to their pixels"
        )

    def test_the_size_does_not_tell_that_an_image_was_decoded(self):
        assert folded(UNDECLARED, [SIZE, DECODE])

    @pytest.mark.parametrize("step", [RESIZE_ENCODED, CROP_ENCODED])
    def test_a_decoded_image_is_not_decoded_by_the_step_that_resizes_it(self, step):
        assert refused(FILE, DECODE, step) == (
            f"step 1 ({type(step).__name__}): image: must hold the bytes of an image file, but is a decoded "
            f"image. Leave out `is_encoded=True`, or the step that decodes it"
        )
        assert content_after(FILE, step) == DECODED_IMAGE
        assert refused(FILE, step, DECODE).startswith("step 1 (ImageDecoder)")

    def test_decoded_images_are_known_by_their_dimensions(self):
        ndim = {"image": (DT.UINT8, 3, ImageContent())}
        assert "as its type and ndim=3 show" in refused(ndim, DECODE)

    def test_masks_are_decoded(self):
        fields = {**IMAGE, "mask": (DT.UINT8, None, ENCODED_IMAGE)}
        step = ImageResizer("image", output_hw=[4, 6], mask_names="mask")
        assert "mask: must be a decoded image" in refused(fields, step)

    def test_frames_of_a_sequence_are_decoded_once(self):
        frames = SampleDataGroup()
        frames.add_data_field_array("encoded", DT.UINT8, 2, ndim=1, content=ENCODED_IMAGE)
        sample = SampleDataGroup()
        sample.add_data_group_field("frames", frames)
        output = folded(sample, [ImageDecoder("frames", False)])
        leaf = output.format.at(("frames",))
        assert isinstance(leaf, LeafFormat)
        assert leaf.content == DECODED_CLIP
        decoded = SampleDataGroup()
        decoded.add_data_field_array("encoded", DT.UINT8, 2, ndim=3, content=DECODED_IMAGE)
        sample = SampleDataGroup()
        sample.add_data_group_field("frames", decoded)
        assert "frames: must be a data field with an encoded image, is a group" in refused(
            sample, ImageDecoder("frames", False)
        )


class TestRange:
    def test_values_are_not_recorded(self):
        assert content_after(FILE, DECODE, RANGE, DISTORT_UNIT) == ImageContent(is_encoded=False, layout="HWC")
        assert folded(FILE, [DECODE, NORMALIZE, RANGE, NORMALIZE, DISTORT])

    @pytest.mark.parametrize(
        ("sample", "before"), [(FILE, [DECODE]), (IMAGE, []), (UNDECLARED, []), (UNDECLARED, [RESIZE, FLIP])]
    )
    def test_fractions_are_not_for_images_in_0_255(self, sample, before):
        fractions = ImageMeanStdDevNormalizer("image", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        with pytest.warns(UserWarning, match="^ImageMeanStdDevNormalizer") as caught:
            assert content_after(sample, *before, fractions) == content_after(sample, *before, NORMALIZE)
        assert [str(each.message) for each in of_product(caught)] == [
            "ImageMeanStdDevNormalizer for 'image': `mean` 0.485 and `std_dev` 0.229 are for "
            "images with values 0..1, but the values are 0..255. Multiply both by 255: mean=[123.675, 116.28, "
            "103.53], std_dev=[58.395, 57.12, 57.375], or put ImageRange01Normalizer before."
        ]
        assert folded(sample, [*before, RANGE, fractions])  # a warning would be an error

    @pytest.mark.parametrize(
        ("mean", "std_dev"), [(0.5, 0.5), (0.449, [0.2, 0.2, 0.2]), ([0.4, 0.5, 0.6], 1.0), (1, 0.5)]
    )
    def test_fractions_of_other_forms(self, mean, std_dev):
        step = ImageMeanStdDevNormalizer("image", mean, std_dev)
        array = SampleDataGroup()
        array.add_data_group_field_array("images", blueprint_of(FILE), 2)
        with pytest.warns(UserWarning, match=f"`mean` {np.ravel(mean)[0]:g} and .*are for images") as caught:
            folded(array, [DataGroupArrayWithNameElementsAppliedStep(each, "images") for each in (DECODE, step)])
        assert len(of_product(caught)) == 1
        step = ImageMeanStdDevNormalizer("image", mean, std_dev)
        for content in (ImageContent(), ImageContent(is_encoded=False)):
            assert folded({"image": (DT.FLOAT, 3, content)}, [step])
            assert folded({"image": (DT.UINT16, 3, content)}, [step])

    @pytest.mark.parametrize(
        ("mean", "std_dev"),
        [(0, 1), (0.0, 255.0), ([103.5, 116.3, 123.7], 1), (1, 1), (0.5, 2), ([0.5, 0.5, 120], 0.5), (0, 1 / 2)],
    )
    def test_what_is_no_fraction(self, mean, std_dev):
        assert folded(IMAGE, [ImageMeanStdDevNormalizer("image", mean, std_dev)])

    @pytest.mark.parametrize("step", [GRID, RESIZE, AFFINE, FLIP, PAD])
    def test_other_steps_take_any_values(self, step):
        assert content_after(IMAGE, NORMALIZE, step) == content_after(IMAGE, NORMALIZE)


class TestLayout:
    @pytest.mark.parametrize("name", OF_PIXELS | OF_UINT8)
    def test_channels_are_last(self, name):
        step = (OF_PIXELS | OF_UINT8)[name]
        as_uint8 = ImageMeanStdDevNormalizer("image", 0.0, 1.0, DT.UINT8, output_layout="CHW")
        here = type(step).__name__
        assert refused(FILE, DECODE, as_uint8, step) == (
            f"step 2 ({here}): image: must have the layout HWC (clips: FHWC), but has CHW. "
            f"Put {here} before the step that changes it"
        )

    def test_height_and_width_are_padded_and_told_in_any_layout(self):
        sample = filled({"image": (DT.UINT8, np.full((40, 70, 3), 7, np.uint8))})
        run = run_step([TO_CHW, PAD, SIZE], sample)
        assert run.output["image"].shape == (3, 64, 96)
        assert run.output["image_hw"].tolist() == [64, 96]
        assert run.layouts["image"] == "CHW"
        np.testing.assert_array_equal(run.output["image"][:, 40:], 0)
        np.testing.assert_array_equal(run.output["image"][:, :, 70:], 0)
        inner = run.output["image"][:, :40, :70]
        np.testing.assert_array_equal(inner, run_step(TO_CHW, sample).output["image"])
        clip = filled({"image": (DT.UINT8, np.full((2, 40, 70, 3), 7, np.uint8))})
        to_fchw = ImageMeanStdDevNormalizer("image", 0.0, 255.0, output_layout="FCHW")
        assert run_step([to_fchw, PAD], clip, layouts={"image": "FHWC"}).output["image"].shape == (2, 3, 64, 96)

    def test_a_bare_pipeline_knows_them_as_well(self):
        @pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def graph():
            data = blueprint_of(UNDECLARED)
            data["image"] = fn.random.uniform(range=[0, 255], shape=[40, 70, 3], dtype=DT.UINT8)
            for step in (TO_CHW, PAD):
                data = step(data)
            return data["image"]

        pipeline = graph()
        pipeline.build()
        assert np.asarray(pipeline.run()[0].at(0)).shape == (3, 64, 96)

    def test_a_layout_without_height_and_width_is_refused(self):
        fields = {"image": (DT.UINT8, None, ImageContent(is_encoded=False, layout="HCW"))}
        assert "must have the layout HWC (clips: FHWC), but has HCW. " in refused(fields, PAD)

    def test_layouts_are_not_contradicted(self):
        assert refused(FILE, DECODE, AxesLayoutSetter("image", "CHW")) == (
            "step 1 (AxesLayoutSetter): image: has the layout HWC, so it cannot be "
            "given CHW: this step moves no data. Transpose it, e.g. by `output_layout` of "
            "ImageMeanStdDevNormalizer"
        )
        assert "has 3 dimension(s)" in refused(FILE, DECODE, AxesLayoutSetter("image", "FHWC"))
        assert "holds the bytes of a file" in refused(FILE, AxesLayoutSetter("image", "HWC"))
        assert content_after(FILE, DECODE, AxesLayoutSetter("image", "HWC")) == DECODED_IMAGE
        assert content_after(FILE, DECODE, AxesLayoutSetter("image", "")) == DECODED_IMAGE
        assert (
            content_after({"image": (DT.UINT8, 4, DECODED_CLIP)}, AxesLayoutSetter("image", "DHWC")).layout
            == "DHWC"
        )

    def test_a_layout_that_is_set_is_known(self):
        is_chw = AxesLayoutSetter("image", "CHW")
        assert content_after(UNDECLARED, is_chw) == ImageContent(layout="CHW")
        assert "but has CHW. " in refused(UNDECLARED, is_chw, RESIZE)

    def test_normalizers_cannot_add_axes(self):
        to_fchw = ImageMeanStdDevNormalizer("image", 0.0, 1.0, output_layout="FCHW")
        assert "has the layout HWC, which cannot become `output_layout` FCHW" in refused(IMAGE, to_fchw)

    def test_clips_have_channels_last(self):
        clip = {"image": (DT.UINT8, 4, DECODED_CLIP)}
        for step in (*OF_PIXELS.values(), *OF_UINT8.values()):
            assert content_after(clip, step).layout == "FHWC"


# --- nothing is refused of which nothing is known --------------------------------------------------------------


class Ours(PipelineStepBase):
    """Declares nothing, and changes images in place."""

    def __init__(self, change: Any = None) -> None:
        self._change = change

    def _process(self, data):
        data["image"] = self._change(data["image"])
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty):
        return data_empty


class OtherDoubler(Ours):
    def _process(self, data):
        data["other"] = data["other"] * 2.0
        return data


class TestUnknown:
    @pytest.mark.parametrize("name", OF_PIXELS | OF_UINT8 | OF_ARRAYS)
    def test_undeclared_fields_pass(self, name):
        step = (OF_PIXELS | OF_UINT8 | OF_ARRAYS)[name]
        assert folded(UNDECLARED, [step])
        assert folded(UNDECLARED_FLOAT, [step])

    def test_after_a_step_that_declares_nothing_nothing_is_known(self):
        assert not content_after(FILE, Ours()).is_known
        assert not content_after(FILE, DECODE, NORMALIZE, Ours()).is_known
        assert folded(FILE, [Ours(), RANGE])
        assert folded(BYTES, [Ours(), RANGE])
        assert folded(FILE, [DECODE, Ours(), DECODE])
        assert folded(IMAGE, [NORMALIZE, Ours(), DISTORT_UNIT])

    def test_it_runs(self):
        sample = filled({"image": (DT.UINT8, encoded_image(gradient(8, 12), "PNG"))})
        declared = blueprint_of({"image": (DT.UINT8, 1, ENCODED_IMAGE)})
        declared["image"] = sample["image"]
        decode = Ours(lambda encoded: fn.decoders.image(encoded, device="cpu"))
        output = run_step([decode, RANGE], declared).output["image"]
        np.testing.assert_array_equal(output, gradient(8, 12) * np.float32(1 / 255))

    def test_what_the_step_left_alone_is_known_again_in_the_graph(self):
        fields = {"image": (DT.UINT8, np.full((40, 70, 3), 7, np.uint8)), "other": (DT.FLOAT, [1.0])}
        run = run_step([TO_CHW, OtherDoubler(), PAD], filled(fields))
        assert run.output["image"].shape == (3, 64, 96)
        assert run.output["other"].tolist() == [2.0]
        with pytest.raises(FormatError, match="but has CHW") as caught:
            run_step([TO_CHW, OtherDoubler(), RESIZE], filled(fields))
        assert "step 2 (ImageResizer)" in "".join(getattr(caught.value, "__notes__", ["step 2 (ImageResizer)"]))
        changes = Ours(lambda image: image + 0.0)
        assert run_step([TO_CHW, changes, PAD], filled(fields)).output["image"].shape == (32, 64, 70)

    def test_changed_types_are_unknown(self):
        blueprint = blueprint_of(IMAGE)
        blueprint.change_type_of_data_and_remove_data("image", DT.UINT8)
        assert blueprint.format.at(("image",)) == leaf_format(DT.UINT8)

    def test_a_class_below_that_works_otherwise_declares_nothing(self):
        class Other(ImageRange01Normalizer):
            def _process(self, data):
                return super()._process(data)

        class Same(ImageRange01Normalizer):
            def _check_and_adjust_data_format_input_to_output(self, data_empty):
                return super()._check_and_adjust_data_format_input_to_output(data_empty)

        assert not content_after(IMAGE, Other("image")).is_known
        assert folded(FILE, [Other("image")])
        assert content_after(IMAGE, Same("image")) == ImageContent(is_encoded=False, layout="HWC")

    def test_steps_without_images_keep_what_is_known(self):
        steps = [UnneededFieldRemover(["other"]), PaddingToUniform(), SIZE]
        blueprint = blueprint_of(IMAGE)
        blueprint.add_data_field("other", DT.INT32)
        assert content_after(blueprint, *steps) == DECODED_IMAGE


# --- steps of users -----------------------------------------------------------------------------------------


@attrs.define(repr=False)
class Shifter(Ours):
    """Subtracts 128, and says that it moves the channels."""

    image_name: str = "image"

    def declare_images(self, data_empty):
        needs = ImageContent(is_encoded=False, layout="HWC")
        return [ImageUse(self.image_name, needs, lambda leaf: attrs.evolve(leaf.content, layout="CHW"))]

    def _process(self, data):
        image = fn.cast(data[self.image_name], dtype=DT.FLOAT) - 128.0
        data.change_type_of_data_and_remove_data(self.image_name, DT.FLOAT)
        data[self.image_name] = image
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty):
        data_empty.change_type_of_data_and_remove_data(self.image_name, DT.FLOAT)
        return data_empty


class Transposer(Ours):
    """Says that its output has another layout than it has."""

    def __init__(self, declared: str) -> None:
        self._declared = declared

    def declare_images(self, data_empty):
        return [ImageUse("image", leaves=ImageContent(layout=self._declared))]

    def _process(self, data):
        data["image"] = fn.transpose(data["image"], perm=[2, 0, 1])
        return data


class TestSteps:
    def test_own_steps_declare_what_they_need_and_leave(self):
        assert content_after(FILE, DECODE, Shifter()) == ImageContent(is_encoded=False, layout="CHW")
        assert "Put Shifter before the step that changes it" in refused(IMAGE, TO_CHW, Shifter())
        assert "Put PhotoMetricDistorter before the step that changes it" in refused(
            IMAGE, Shifter(), DISTORT_UNIT
        )
        assert "Put ImageDecoder before Shifter" in refused(FILE, Shifter())

    @pytest.mark.parametrize("declared", [{"changes_images": False}, {"reads_pixels": False}])
    def test_own_steps_declare_that_they_leave_images_alone(self, declared):
        assert content_after(IMAGE, type("Leaves", (Ours,), declared)()) == DECODED_IMAGE
        assert not content_after(IMAGE, Ours()).is_known

    @pytest.mark.parametrize("wrong", [5, "image", [ImageContent()]])
    def test_declarations_are_uses(self, wrong):
        class Wrong(Ours):
            def declare_images(self, data_empty):
                return wrong

            def _process(self, data):
                return data

            def _check_and_adjust_data_format_input_to_output(self, data_empty):
                return data_empty

        with pytest.raises(SettingError, match=r"Wrong.declare_images must return a list of ImageUse or None"):
            folded(IMAGE, [Wrong()])

    def test_functions_declare_what_they_leave(self):
        transposed = ImageContent(is_encoded=False, layout="CHW")
        step = LambdaStep(
            lambda image: fn.transpose(image, perm=[2, 0, 1]),
            input_names="image",
            output_types={"image": DT.UINT8},
            output_contents={"image": transposed},
        )
        assert content_after(IMAGE, step) == transposed
        assert "but has CHW. " in refused(IMAGE, step, RESIZE)
        silent = LambdaStep(lambda image: image, input_names="image", output_types={"image": DT.UINT8})
        assert not content_after(FILE, silent).is_known
        to_other = LambdaStep(lambda image: image, input_names="image", output_types={"other": DT.UINT8})
        assert content_after(FILE, to_other) == ENCODED_IMAGE

    def test_check_step_looks_at_declared_layouts(self):
        sample = filled({"image": (DT.UINT8, np.zeros((4, 6, 3), np.uint8))})
        check_step(Transposer("CHW"), sample, layouts={"image": "HWC"})
        with pytest.raises(AssertionError, match="image: layout CHW, the format says HWC"):
            check_step(Transposer("HWC"), sample, layouts={"image": "HWC"})

    def test_wrappers_pass_on_what_is_known(self):
        rig = SampleDataGroup()
        rig.add_data_group_field_array("cameras", blueprint_of(FILE), 2)
        each = [DataGroupArrayWithNameElementsAppliedStep(step, "cameras") for step in (DECODE, TO_CHW, FLIP)]
        leaf = folded(rig, each[:2]).format.at(("cameras", 1, "image"))
        assert isinstance(leaf, LeafFormat)
        assert leaf.content.layout == "CHW"
        with pytest.raises(FormatError) as caught:
            folded(rig, each)
        assert [problem.path for problem in caught.value.problems] == [("cameras", n, "image") for n in (0, 1)]
        assert "Put HorizontalFlipper before the step that changes it" in str(caught.value)

    def test_other_problems_are_told_as_well(self):
        step = ImageResizer("image", output_hw=[4, 6], box_names="boxes")
        with pytest.raises(FormatError) as caught:
            folded(FILE, [step])
        first, second = caught.value.problems
        assert first.path == ("image",)
        assert "no field has the name 'boxes'" in second.message

    def test_the_type_is_not_blamed_for_a_wrong_order(self):
        assert "must be UINT8" not in refused(UNDECLARED, RANGE, DECODE)


# --- what the providers and readers of the package declare ---------------------------------------------------


def declared_by(source: Any) -> dict[Any, ImageContent]:
    """The known contents of a provider or a reader, by the paths of fields."""
    is_provider = isinstance(source, DataProvider)
    structure = source.sample_data_structure if is_provider else source.used_sample_data_structure
    leaves = zip(structure.format.flat_paths, structure.format.flat_leaves, strict=True)
    return {path: leaf.content for path, leaf in leaves if leaf.content.is_known}


class TestInputs:
    def test_files_are_encoded(self, tmp_path):
        root = write_frames(tmp_path, {"stream": 3})
        encoded = {("data",): ENCODED_IMAGE}
        assert declared_by(FileDataProvider(root)) == encoded
        assert declared_by(FileReader(file_root=root)) == encoded
        assert [*declared_by(FrameDataProvider(root)).values()] == [ENCODED_IMAGE]
        assert [*declared_by(frame_clips(root, 3)).values()] == [ENCODED_IMAGE] * 3

    def test_frames_of_videos_and_sequences_are_clips(self, tmp_path):
        root = write_frames(tmp_path / "frames", {"stream": 3})
        assert declared_by(SequenceReader(file_root=root, sequence_length=2)) == {("frames",): DECODED_CLIP}
        path = make_video(tmp_path / "video.webm", 4)
        assert declared_by(video_clips(path, 2)) == {("frames",): DECODED_CLIP}
        assert [*declared_by(VideoFrameDataProvider(path)).values()] == [DECODED_IMAGE]


# --- the value, and the format that has it ---------------------------------------------------------------------


class TestContent:
    @pytest.mark.parametrize(
        "arguments",
        [
            {"is_encoded": 1},
            {"layout": ""},
            {"layout": "HWH"},
            {"layout": 3},
            {"is_encoded": True, "layout": "HWC"},
        ],
        ids=str,
    )
    def test_nonsense_is_refused(self, arguments):
        with pytest.raises(SettingError):
            ImageContent(**arguments)

    def test_it_fits_the_field(self):
        blueprint = SampleDataGroup()
        for arguments in ({"ndim": 3, "content": ENCODED_IMAGE}, {"ndim": 2, "content": DECODED_IMAGE}):
            with pytest.raises(SettingError, match=r"^image: ndim must fit the content"):
                blueprint.add_data_field("image", DT.UINT8, **arguments)
        with pytest.raises(SettingError, match="content must be an ImageContent"):
            blueprint.add_data_field("image", DT.UINT8, content="HWC")
        with pytest.raises(SettingError, match="a STRING field cannot hold an image"):
            blueprint.add_data_field("image", DT.STRING, content=ENCODED_IMAGE)
        blueprint.add_data_group_field("group", SampleDataGroup())
        with pytest.raises(SettingError, match="a group can have neither"):
            blueprint.change_type_of_data_and_remove_data("group", SampleDataGroup(), new_content=ENCODED_IMAGE)

    def test_it_survives_copies_and_pickling(self):
        known = content_after(FILE, DECODE, TO_CHW)
        blueprint = folded(FILE, [DECODE, TO_CHW])
        copies = [
            blueprint.get_empty_like_self(),
            blueprint.get_copy(),
            copy.deepcopy(blueprint),
            pickle.loads(pickle.dumps(blueprint)),
        ]
        outer = SampleDataGroup()
        outer.add_data_group_field_array("cameras", blueprint, 2)
        leaves = [each.format.at(("image",)) for each in copies] + [outer.format.at(("cameras", 1, "image"))]
        assert [leaf.content for leaf in leaves] == [known] * 5

    def test_plain_fields_are_pickled_as_before(self):
        assert leaf_format(DT.UINT8, ndim=3).__reduce__()[1] == (DT.UINT8.value, None, 3)

    def test_formats_match_whatever_is_known(self):
        known, unknown = blueprint_of(IMAGE), blueprint_of(UNDECLARED)
        assert known.format.matches(unknown.format)
        assert known.type_matches(unknown)
        assert known == unknown  # as samples
        assert known.format != unknown.format
        assert fields_for_state(known.format) == fields_for_state(unknown.format)

    def test_it_is_shown_where_it_is_known(self):
        assert folded(FILE, [DECODE, TO_CHW]).get_string_no_details() == (
            "{\n  image: DALIDataType.FLOAT   (decoded, CHW)\n}\n"
        )
        assert blueprint_of(FILE).get_string_no_details() == "{\n  image: DALIDataType.UINT8   (encoded)\n}\n"
        assert repr(blueprint_of(FILE).format.at(("image",))) == "LeafFormat(UINT8, content='encoded')"
        assert "(encoded)" not in str(blueprint_of(UNDECLARED))

    def test_concatenations_know_what_all_parts_know(self):
        @attrs.frozen
        class Provider(DataProvider):
            fields: Any

            @property
            def sample_data_structure(self):
                return blueprint_of(self.fields)

            def get_data(self, sample_index):
                return self.sample_data_structure

            def get_number_of_samples(self):
                return 1

        assert content_after(ConcatDataProvider([Provider(FILE)] * 2).sample_data_structure) == ENCODED_IMAGE
        mixed = ConcatDataProvider([Provider(FILE), Provider(UNDECLARED)])
        assert content_after(mixed.sample_data_structure) == ImageContent()

    def test_the_name_of_a_use_is_a_name(self):
        with pytest.raises(SettingError, match="`names` must be a name"):
            ImageUse(1.5)

    def test_messages_have_no_field_twice(self):
        with pytest.raises(FormatError) as caught:
            folded(FILE, [NORMALIZE, RANGE])
        assert len(re.findall("image: ", str(caught.value))) == 2


class Declares(Ours):
    """Leaves all nodes alone, and declares labels and a number of dimensions of one."""

    def _process(self, data):
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty):
        data_empty.change_type_of_data_and_remove_data("other", DT.FLOAT, {"car": 1}, new_ndim=1)
        return data_empty


class Sees(Ours):
    def _process(self, data):
        self.format = data.format
        return data


def test_what_a_step_declares_of_a_field_that_it_leaves_alone_stays_in_the_graph():
    fields = {"image": (DT.UINT8, np.full((4, 7, 3), 7, np.uint8)), "other": (DT.FLOAT, [1.0])}
    step = Sees()
    run_step([Declares(), step], filled(fields))
    for found in (step.format, folded(filled(fields), [Declares(), Sees()]).format):
        other = found.at(("other",))
        assert (dict(other.mapping), other.ndim) == ({"car": 1}, 1)
