"""Decoding against another decoder, and what happens with files that are no images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arrays import DT, ArrayProvider, decoded_by_pillow, encoded_image, gradient
from support.loaders import make_loader
from support.pipelines import indices, make_iterator, shuffled
from support.samplers import EpochSampler
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework import DataLoader, TorchDatasetProvider
from accvlab.dali_pipeline_framework.errors import FormatError, GraphError, SourceError
from accvlab.dali_pipeline_framework.inputs import SamplerInputIterable
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    ImageDecoder,
    ImageRange01Normalizer,
    ImageResizer,
    PipelineStepBase,
)

SIZES = [(1, 1), (8, 8), (17, 33), (48, 64), (97, 131), (375, 500)]


def decoded(images: list[np.ndarray], **step: Any) -> list[np.ndarray]:
    provider = ArrayProvider({"image": (DT.UINT8, images)})
    steps = [ImageDecoder("image", **step)]  # on the CPU, as there is no `device_id`
    with make_iterator(shuffled(provider, 1), steps, py_num_workers=0) as iterator:
        batches = [batch["image"] for batch in iterator]
    assert all(batch.shape[0] == 1 and batch.dtype == np.uint8 for batch in batches)
    return [batch[0] for batch in batches]


def gray_levels_off(found: np.ndarray, expected: np.ndarray) -> int:
    assert found.shape == expected.shape
    return int(np.abs(found.astype(int) - expected.astype(int)).max())


class TestPixels:
    @pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
    @pytest.mark.parametrize("subsampling", [0, 2], ids=["444", "420"])
    def test_jpeg_is_close_to_pillow(self, size: tuple[int, int], subsampling: int) -> None:
        original = gradient(*size, phase=2)
        encoded = encoded_image(original, subsampling=subsampling)
        [found] = decoded([encoded])
        assert gray_levels_off(found, decoded_by_pillow(encoded)) <= 5
        if subsampling == 0:
            assert gray_levels_off(found, original) <= 5

    def test_jpeg_with_noise_is_close_to_pillow(self) -> None:
        encoded = encoded_image(np.random.default_rng(0).integers(0, 256, (64, 80, 3), np.uint8))
        [found] = decoded([encoded])
        assert gray_levels_off(found, decoded_by_pillow(encoded)) <= 5

    @pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
    def test_png_is_exact(self, size: tuple[int, int]) -> None:
        original = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
        [found] = decoded([encoded_image(original, "PNG")])
        assert (found == original).all()
        assert found.shape == (*size, 3)

    @pytest.mark.parametrize("kind", ["BMP", "TIFF"])
    def test_other_lossless_kinds_are_exact(self, kind: str) -> None:
        original = np.random.default_rng(2).integers(0, 256, (19, 23, 3), np.uint8)
        [found] = decoded([encoded_image(original, kind)])
        assert (found == original).all()

    @pytest.mark.parametrize("kind", ["JPEG", "PNG"])
    def test_gray_gets_three_equal_channels(self, kind: str) -> None:
        original = gradient(20, 30)[..., 0]
        [found] = decoded([encoded_image(original, kind, **({"subsampling": -1} if kind == "JPEG" else {}))])
        assert found.shape == (20, 30, 3)
        assert (found[..., 0] == found[..., 1]).all()
        assert (found[..., 0] == found[..., 2]).all()
        assert gray_levels_off(found[..., 0], original) <= (5 if kind == "JPEG" else 0)

    def test_alpha_is_dropped(self) -> None:
        color = gradient(20, 30)
        alpha = np.full((20, 30, 1), 77, np.uint8)
        [found] = decoded([encoded_image(np.concatenate([color, alpha], -1), "PNG")])
        assert (found == color).all()

    @pytest.mark.parametrize("kind", ["JPEG", "PNG"])
    def test_bgr_is_the_reverse(self, kind: str) -> None:
        images = [encoded_image(gradient(48, 64, phase), kind) for phase in range(3)]
        rgb, bgr = decoded(images), decoded(images, as_bgr=True)
        allowed = 5 if kind == "JPEG" else 0  # another code path with its own rounding
        assert max(gray_levels_off(b, a[..., ::-1]) for a, b in zip(rgb, bgr, strict=True)) <= allowed
        assert gray_levels_off(rgb[0], bgr[0]) > 100

    def test_the_layout_is_hwc(self) -> None:
        provider = ArrayProvider({"image": (DT.UINT8, [encoded_image(gradient(8, 9))] * 2)})
        pipeline = PipelineDefinition(shuffled(provider, 2), [ImageDecoder("image", False)]).get_dali_pipeline(
            num_threads=1, py_num_workers=0
        )
        [images] = pipeline.run()
        assert (images.layout(), images.dtype, images.shape()) == ("HWC", DT.UINT8, [(8, 9, 3)] * 2)
        pipeline.close()


class TestFields:
    @staticmethod
    def images(count: int, phase: int = 0) -> list[np.ndarray]:
        return [gradient(8, 12, phase + index) for index in range(count)]

    @pytest.mark.parametrize("name", ["image", "front view", "img", 3])
    def test_may_have_any_name(self, name: str | int) -> None:
        originals = self.images(2)
        provider = ArrayProvider({name: (DT.UINT8, [encoded_image(image, "PNG") for image in originals])})
        with make_iterator(shuffled(provider, 2), [ImageDecoder(name, False)], py_num_workers=0) as iterator:
            [batch] = iterator
        assert (batch[name] == np.stack(originals)).all()

    @pytest.mark.parametrize("arguments", [{"py_num_workers": 0}, {"py_num_workers": 2}], ids=["here", "workers"])
    def test_of_several_cameras_at_several_depths(self, arguments: dict[str, Any]) -> None:
        originals = {camera: self.images(4, camera) for camera in range(4)}
        png = {camera: [encoded_image(image, "PNG") for image in images] for camera, images in originals.items()}
        fields = {
            "image": (DT.UINT8, png[0]),
            "index": (DT.INT64, [*range(4)]),
            "cameras": {0: {"image": (DT.UINT8, png[1])}, 1: {"sub": {"image": (DT.UINT8, png[2])}}},
            "raw": (DT.UINT8, [[index, index] for index in range(4)]),
            "thumbnail": (DT.UINT8, png[3]),
        }
        steps = [ImageDecoder("image", False)]
        with make_iterator(shuffled(ArrayProvider(fields), 2), steps, **arguments) as iterator:
            batches = [*iterator]
        for number, batch in enumerate(batches):
            samples = slice(2 * number, 2 * number + 2)
            assert (batch["image"] == np.stack(originals[0][samples])).all()
            assert (batch["cameras"][0]["image"] == np.stack(originals[1][samples])).all()
            assert (batch["cameras"][1]["sub"]["image"] == np.stack(originals[2][samples])).all()
            assert batch["raw"].tolist() == [[2 * number] * 2, [2 * number + 1] * 2]
            assert batch["index"].tolist() == [2 * number, 2 * number + 1]
            assert batch["thumbnail"].ndim == 2  # not decoded

    @pytest.mark.parametrize(
        "step", [ImageDecoder("image", False), ImageResizer("image", output_hw=[4, 5], is_encoded=True)], ids=repr
    )
    def test_dimensions_are_declared(self, step: PipelineStepBase) -> None:
        blueprint = SampleDataGroup()
        blueprint.add_data_field("image", DT.UINT8, ndim=1)
        declared = step.check_input_data_format_and_set_output_data_format(blueprint)
        assert [leaf.ndim for leaf in declared.format.flat_leaves] == [3]
        normalized = ImageRange01Normalizer("image").check_input_data_format_and_set_output_data_format(declared)
        assert [leaf.ndim for leaf in normalized.format.flat_leaves] == [3]


NO_IMAGES = {
    "text": np.frombuffer(b"this is no image at all", np.uint8),
    "zeros": np.zeros(100, np.uint8),
}


class TestFilesThatAreNoImages:
    BAD = 6

    def provider(self, bad: np.ndarray) -> ArrayProvider:
        images = [encoded_image(gradient(8, 8))] * 8
        front = [*images]
        front[self.BAD] = bad
        fields = {
            "index": (DT.INT64, [*range(8)]),
            "cameras": {0: {"image": (DT.UINT8, images)}, 1: {"image": (DT.UINT8, front)}},
        }
        return ArrayProvider(fields)

    def test_an_iterable_names_sample_and_field(self) -> None:
        source = SamplerInputIterable(self.provider(NO_IMAGES["zeros"]), EpochSampler(8, 4))
        with make_loader(source, steps=[ImageDecoder("image", False)]) as loader:
            epoch = iter(loader)
            assert next(epoch)["index"].tolist() == [0, 1, 2, 3]
            with pytest.raises(GraphError, match=rf"\n  - sample {self.BAD}, field cameras\[1\]\.image: "):
                next(epoch)

    def test_nothing_is_delivered_after_the_failure(self) -> None:
        provider = self.provider(NO_IMAGES["zeros"])
        steps = [ImageDecoder("image", False)]
        with make_iterator(shuffled(provider, 1), steps, py_num_workers=0) as iterator:
            epoch = iter(iterator)
            assert indices(epoch, self.BAD) == [[index] for index in range(self.BAD)]
            for _ in range(3):
                with pytest.raises(GraphError, match=f"sample {self.BAD}, field"):
                    next(epoch)

    def test_in_a_shuffled_later_epoch_on_a_shard(self) -> None:
        order = np.random.default_rng(21 + 2).permutation(8)
        shard = order[4:].tolist()
        images = [encoded_image(gradient(8, 8))] * 8
        bad = shard[3]
        images[bad] = NO_IMAGES["zeros"]
        provider = BadInEpochTwo({"index": (DT.INT64, [*range(8)]), "image": (DT.UINT8, images)}, bad)
        data_input = shuffled(provider, 2, shuffle=True, shard_id=1, num_shards=2)
        with make_iterator(data_input, [ImageDecoder("image", False)], py_num_workers=0) as iterator:
            for _ in range(2):
                assert len(indices(iterator, 1)) == 1
            provider.is_bad = True
            with pytest.raises(GraphError) as caught:
                [indices(iterator) for _ in range(40)]
        assert caught.value.sample_indices == (bad,)

    def test_nothing_is_printed_or_warned_by_python(
        self, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
    ) -> None:
        with (
            make_iterator(shuffled(self.provider(NO_IMAGES["text"])), [ImageDecoder("image", False)]) as iterator,
            pytest.raises(GraphError),
        ):
            indices(iterator)
        assert capfd.readouterr().out == ""
        assert of_product(recwarn) == []


class BadInEpochTwo(ArrayProvider):
    """Has a bad image only once it is told so."""

    def __init__(self, fields: Any, bad: int) -> None:
        super().__init__(fields)
        self.bad = bad
        self.is_bad = False

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        if sample_index == self.bad and not self.is_bad:
            sample["image"] = encoded_image(gradient(8, 8))
        return sample


DECODED_ALREADY = r"looks decoded already: .* has the shape \({}\). Leave out ImageDecoder, or `is_encoded`"


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("shape", [(6, 8, 3), (6, 8)], ids=str)
@pytest.mark.parametrize(
    "step",
    [ImageDecoder("image", False), ImageResizer("image", output_hw=[2, 2], is_encoded=True)],
    ids=["decoder", "resizer"],
)
def test_images_of_an_unknown_form_that_are_decoded_already(step: Any, shape: tuple[int, ...], run: str) -> None:
    image = np.full(shape, 255, np.uint8)
    image[0, :2] = 0xD8  # begins as a JPEG file, in one order of its bytes
    provider = ArrayProvider({"image": (DT.UINT8, [image] * 2)})
    message = DECODED_ALREADY.format(", ".join(map(str, shape)))
    with (
        DataLoader(provider, 2, steps=[step], run=run, num_workers=0) as loader,
        pytest.raises((GraphError, SourceError), match=message) as caught,
    ):
        next(iter(loader))
    assert "image: " in str(caught.value)
    assert type(step).__name__ in str(caught.value)


def test_images_that_are_decoded_already_in_an_array_of_groups() -> None:
    provider = TorchDatasetProvider([{"cameras": [{"image": np.ones((6, 8, 3), np.uint8)}] * 2}])
    with pytest.raises(FormatError, match=r"cameras\[0..1\].image: .* looks decoded already, as .* ndim=3 show"):
        DataLoader(provider, 1, steps=[ImageDecoder("image", False)], num_workers=0)
    blueprint = SampleDataGroup.create_data_group_field_array(SampleDataGroup(), 2)
    for camera in (0, 1):
        blueprint[camera].add_data_field("image", DT.UINT8)
    cameras = SampleDataGroup()
    cameras.add_data_group_field("cameras", blueprint)
    provider = TorchDatasetProvider(
        [{"cameras": [{"image": np.ones((6, 8, 3), np.uint8)}] * 2}], blueprint=cameras
    )
    with (
        DataLoader(provider, 1, steps=[ImageDecoder("image", False)], num_workers=0, run="graph") as loader,
        pytest.raises(GraphError, match=r"cameras\[0\].image, cameras\[1\].image: .*looks decoded already"),
    ):
        next(iter(loader))
