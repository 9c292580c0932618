"""Image steps against OpenCV: an implementation by others, with its own arithmetic.

OpenCV works on uint8 with weights of 8 to 15 bits where DALI works with float32, and both round to whole levels:
so images may differ by 1 level. Float32 images differ by roundings of float32 only, unless said otherwise.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from image_steps import changed, distorter
from nvidia.dali.types import DALIDataType
from support.arrays import encoded_image

from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    BEVBBoxesTransformer3D,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
)

HW = (60, 80)
NOISE = np.random.default_rng(0).integers(0, 256, (*HW, 3), dtype=np.uint8)
NOISE_FLOAT = (NOISE / 255).astype(np.float32)
BLURRED = cv2.GaussianBlur(NOISE, (0, 0), 2.0)
MEAN, STD = [123.675, 116.28, 103.53], [58.395, 57.12, 57.375]
FILL = 9


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float = 1) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.abs(found.astype(float) - expected).max() <= tolerance


def of_pixel_centers(matrix: np.ndarray) -> np.ndarray:
    """OpenCV's form of a transformation: there, the first pixel has its center at ``(0, 0)``, here at 0.5."""
    to_border = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    return (np.linalg.inv(to_border) @ np.concatenate([matrix, [[0, 0, 1]]]) @ to_border)[:2]


# --- images that are moved ------------------------------------------------------------------------------


# Float images: places are float32, exact to some 1e-5 pixels, and a pixel may differ by 1 from the next.
@pytest.mark.parametrize(("image", "tolerance"), [(NOISE, 1), (NOISE_FLOAT, 5e-4)], ids=["uint8", "float"])
@pytest.mark.parametrize("angle", [25, -70, 180])
def test_rotation(image: np.ndarray, tolerance: float, angle: float) -> None:
    """OpenCV computes the matrix, too."""
    steps = [A.UniformScaling(1, 1.2), A.Rotation(1, angle)]
    fill = FILL if image.dtype == np.uint8 else 0.25
    step = A(
        HW,
        A.ResizingMode.STRETCH,
        None,
        "image",
        point_field_names="points",
        transformation_steps=steps,
        fill_value=fill,
    )
    points = np.random.default_rng(1).uniform(0, 60, (9, 2)).astype(np.float32)
    found = changed(step, image, points=points)
    matrix = cv2.getRotationMatrix2D((HW[1] / 2, HW[0] / 2), angle, 1.2)
    expected = cv2.warpAffine(image, of_pixel_centers(matrix), HW[::-1], borderValue=(fill,) * 3)
    assert_close(found["image"], expected, tolerance)
    assert_close(found["points"], cv2.transform(points[None], matrix)[0].astype(np.float32), 1e-4)


@pytest.mark.parametrize(
    "steps",
    [
        [A.Shearing(1, [10, -5]), A.Translation(1, [3.5, -7.25])],
        [A.NonUniformScaling(1, [-1.3, 0.8]), A.Rotation(1, 3)],
        [A.NonUniformScaling(1, [0.7, 1.1]), A.Translation(1, [-4.5, 2.25])],
    ],
    ids=["shearing", "mirrored", "without rotation"],
)
def test_warps(steps: Any) -> None:
    """The matrix is that by which the step multiplies the identity."""
    step = A(
        HW,
        A.ResizingMode.STRETCH,
        None,
        "image",
        projection_matrix_field_names="matrix",
        transformation_steps=steps,
        fill_value=FILL,
    )
    found = changed(step, BLURRED, matrix=np.eye(3, dtype=np.float32))
    matrix = of_pixel_centers(found["matrix"][:2].astype(float))
    shown = cv2.warpAffine(np.ones(HW, np.uint8), matrix, HW[::-1], flags=cv2.INTER_NEAREST)
    # Along the edge of the image, `fn.resize` repeats its last pixels, and warps mix the fill value in.
    is_inner = cv2.erode(shown, np.ones((5, 5)), borderValue=1) == 1
    is_outer = cv2.dilate(shown, np.ones((5, 5))) == 0
    expected = cv2.warpAffine(BLURRED, matrix, HW[::-1], borderValue=(FILL,) * 3)
    assert is_inner.sum() > 1000
    assert_close(found["image"][is_inner], expected[is_inner])
    assert (found["image"][is_outer] == FILL).all()


@pytest.mark.parametrize("image", [NOISE, NOISE_FLOAT], ids=["uint8", "float"])
@pytest.mark.parametrize("hw", [(30, 40), (45, 50), (120, 160), (97, 133), (25, 33)])
def test_resizing(image: np.ndarray, hw: tuple[int, int]) -> None:
    """Bilinear, without antialiasing; where that is the mean of 2 x 2 pixels, also as by area.

    Float images: places are exact to some 1e-6 pixels.
    """
    found = changed(ImageResizer("image", output_hw=hw), image)["image"]
    tolerance = 1 if image.dtype == np.uint8 else 3e-5
    assert_close(found, cv2.resize(image, hw[::-1], interpolation=cv2.INTER_LINEAR), tolerance)
    if hw == (30, 40):
        assert_close(found, cv2.resize(image, hw[::-1], interpolation=cv2.INTER_AREA), tolerance)


def test_resize_crop_and_flip() -> None:
    step = ImageResizeCropFlipper(
        "image", output_hw=[40, 60], scale_range=(0.75, 0.75), flip_prob=1, is_encoded=True
    )
    found = changed(step, encoded_image(NOISE, "PNG"))["image"]
    scaled = cv2.resize(NOISE, (60, 45))  # as wide as the output: all that is left out is at the top
    assert_close(found, cv2.flip(scaled[5:], 1))


def test_padding_and_cropping_to_a_size() -> None:
    padded = changed(ImageResizer("image", output_hw=(140, 160), mode="pad", fill_value=FILL), NOISE)["image"]
    larger = cv2.resize(NOISE, (160, 120))
    assert_close(padded, cv2.copyMakeBorder(larger, 10, 10, 0, 0, cv2.BORDER_CONSTANT, value=(FILL,) * 3))
    cropped = changed(ImageResizer("image", output_hw=(100, 160), mode="crop"), NOISE)["image"]
    assert_close(cropped, larger[10:110])


def test_resize_crop_and_flip_with_whole_pixels() -> None:
    """As StreamPETR and BEVDet do it."""
    step = ImageResizeCropFlipper(
        "image", output_hw=(80, 160), scale_range=(2, 2), bottom_crop_range=(0.1, 0.1), flip_prob=1
    )
    top = int(0.9 * 120) - 80
    assert_close(changed(step, NOISE)["image"], cv2.flip(cv2.resize(NOISE, (160, 120))[top : top + 80], 1))


def test_pixels_that_are_only_moved() -> None:
    assert_close(changed(HorizontalFlipper("image", prob=1), NOISE)["image"], cv2.flip(NOISE, 1), 0)
    padded = cv2.copyMakeBorder(NOISE, 0, 4, 0, 16, cv2.BORDER_CONSTANT, value=(5,) * 3)
    assert_close(changed(ImageToTileSizePadder("image", (48, 32), fill_value=5), NOISE)["image"], padded, 0)


# --- geometry in space ----------------------------------------------------------------------------------


def test_projections() -> None:
    """3D points through OpenCV's camera model, then moved as the image is."""
    rng = np.random.default_rng(2)
    intrinsics = np.array([[70, 0, 41], [0, 65, 28], [0, 0, 1]], np.float32)
    turn, shift = np.array([0.1, -0.2, 0.3]), np.array([0.4, 0.1, 5])
    points = rng.uniform(-2, 2, (20, 3))
    projected = cv2.projectPoints(points, turn, shift, intrinsics.astype(float), None)[0][:, 0]
    step = A(
        (50, 90),
        A.ResizingMode.PAD,
        A.ResizingAnchor.CENTER,
        "image",
        projection_matrix_field_names="matrix",
        point_field_names="points",
        transformation_steps=[A.Rotation(1, 12), A.NonUniformScaling(1, [-1, 1.5])],
    )
    found = changed(step, NOISE, matrix=intrinsics, points=projected.astype(np.float32))
    in_camera = points @ cv2.Rodrigues(turn)[0].T + shift
    homogeneous = in_camera @ found["matrix"].T.astype(float)
    np.testing.assert_allclose(found["points"], homogeneous[:, :2] / homogeneous[:, 2:], atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rotation_in_space(axis: int) -> None:
    angle = 0.7
    step = BEVBBoxesTransformer3D(
        "points", None, None, None, "extrinsics", None, None, [angle, angle], axis, [1.1, 1.1], [0, 0, 0]
    )
    points = np.random.default_rng(3).uniform(-40, 40, (9, 3)).astype(np.float32)
    found = changed(step, NOISE, points=points, extrinsics=np.eye(4, dtype=np.float32))
    rotation = cv2.Rodrigues(angle * np.eye(3)[axis])[0]
    np.testing.assert_allclose(found["points"], 1.1 * points @ rotation.T, atol=1e-4)
    np.testing.assert_allclose(found["extrinsics"][:3, :3], rotation.T / 1.1, atol=1e-6)


# --- colors ---------------------------------------------------------------------------------------------


def test_brightness_and_contrast() -> None:
    assert_close(changed(distorter(brightness=-30), NOISE)["image"], cv2.add(NOISE, (-30,) * 4))
    assert_close(changed(distorter(brightness=20), NOISE)["image"], cv2.add(NOISE, (20,) * 4))
    assert_close(changed(distorter(contrast=1.3), NOISE)["image"], cv2.multiply(NOISE, (1.3,) * 4))
    # Both are rounded twice.
    both = cv2.multiply(cv2.add(NOISE, (20,) * 4), (0.6,) * 4)
    assert_close(changed(distorter(brightness=20, contrast=0.6), NOISE)["image"], both)


def test_without_saturation_an_image_is_gray() -> None:
    """The weights of the luma are those of OpenCV to 0.001, so 255 levels differ by 0.3, and are rounded."""
    gray = cv2.cvtColor(NOISE, cv2.COLOR_RGB2GRAY)
    assert_close(changed(distorter(saturation=0), NOISE)["image"], cv2.cvtColor(gray, cv2.COLOR_GRAY2RGB))


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_saturation(factor: float) -> None:
    """A blend with the gray image, rounded: another half level, times how far it goes."""
    gray = cv2.cvtColor(cv2.cvtColor(NOISE, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    expected = cv2.addWeighted(NOISE, factor, gray, 1 - factor, 0)
    assert_close(changed(distorter(saturation=factor), NOISE)["image"], expected, 2)


@pytest.mark.parametrize("angle", [-18, 10, 30])
def test_hue_turns_as_in_hsv(angle: float) -> None:
    """Another color space, whose circle is a hexagon: the angles of six colors agree to 60 %."""
    six = np.array([[[200, 60, 60], [60, 200, 60], [60, 60, 200], [180, 170, 60], [60, 170, 180], [170, 60, 180]]])
    colors = (six / 255).astype(np.float32)
    before, after = (
        cv2.cvtColor(image, cv2.COLOR_RGB2HSV)[0, :, 0]
        for image in (colors, changed(distorter(hue=angle), colors)["image"])
    )
    turned = (after - before + 180) % 360 - 180
    assert (np.abs(turned - angle) <= 0.6 * abs(angle)).all()


# --- what is lost, and what follows ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("JPEG", {"quality": 85, "subsampling": 0}, 2),
        ("JPEG", {"quality": 85, "subsampling": 2}, 2),
        ("JPEG", {"quality": 85, "subsampling": 2, "progressive": True}, 2),
        ("PNG", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
    ],
)
def test_decoding(kind: str, options: Any, tolerance: float) -> None:
    """Versions of libjpeg differ by 2 levels; the others lose nothing."""
    encoded = encoded_image(BLURRED, kind, **options)
    expected = cv2.imdecode(encoded, cv2.IMREAD_COLOR)
    assert_close(changed(ImageDecoder("image", False, as_bgr=True), encoded)["image"], expected, tolerance)


def test_normalization() -> None:
    floats = NOISE.astype(np.float32)
    expected = cv2.divide(cv2.subtract(floats, (*MEAN, 0)), (*STD, 1))
    assert_close(changed(ImageMeanStdDevNormalizer("image", MEAN, STD), NOISE)["image"], expected, 1e-6)
    step = ImageMeanStdDevNormalizer("image", MEAN, 57.0, output_layout="CHW")
    assert_close(changed(step, NOISE)["image"], cv2.dnn.blobFromImage(NOISE, 1 / 57, mean=MEAN)[0], 1e-6)
    expected_01 = cv2.multiply(NOISE, (1 / 255,) * 4, dtype=cv2.CV_32F)
    assert_close(changed(ImageRange01Normalizer("image"), NOISE)["image"], expected_01, 1e-6)


def test_normalization_to_float16() -> None:
    """Half a step of float16 between 2 and 4."""
    step = ImageMeanStdDevNormalizer("image", MEAN, STD, DALIDataType.FLOAT16)
    expected = cv2.divide(cv2.subtract(NOISE.astype(np.float32), (*MEAN, 0)), (*STD, 1))
    found = changed(step, NOISE)["image"]
    assert found.dtype == np.float16
    assert np.abs(found - expected).max() <= 2**-10 + 1e-6
