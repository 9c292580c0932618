"""The data of a detector of objects in images: pixels, heatmaps and their objects belong together."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.driving_data import CAMERAS, HW
from driving_support.recipe_cases import batches_of

from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import DETECTION_2D, Detection2DSettings, ImageAugmentation

CLASSES = ("pedestrian", "car", "barrier", "bus")
SETTINGS = Detection2DSettings(
    images=ImageAugmentation(output_hw=[24, 32], flip_prob=0.0),
    stride=4,
    classes=CLASSES,
    max_objects=3,
    min_box_size_px=1,
)


@pytest.fixture(scope="module")
def data(drive: Any) -> Any:
    """Two boxes in frame 1, camera 0: one in the middle, one hidden behind it; others in other images."""
    index, root = drive
    assert index.boxes_2d is not None
    boxes = index.boxes_2d.box.copy()
    boxes[:] = [8, 5, 26, 20]
    boxes[2] = [10, 6, 20, 12]
    depths = np.full(len(boxes), 10.0)
    depths[2] = 30
    return attrs.evolve(index, boxes_2d=attrs.evolve(index.boxes_2d, box=boxes, depth=depths)), root


def provider_of(data: Any, **fields: Any) -> DrivingProvider:
    return DrivingProvider(*data, **{"boxes_2d": True, **fields})


def objects_of(batch: dict[str, Any], image: int) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Label, center and size of each object, pixels of the image, from what is learned."""
    width = batch["hm"].shape[-1]
    found = []
    for mask, index, reg, wh in zip(
        *(batch[name][image] for name in ("reg_mask", "ind", "reg", "wh")), strict=True
    ):
        if mask:
            row, column = divmod(int(index), width)
            [label] = np.flatnonzero(batch["hm"][image, :, row, column] == 1)
            found.append((int(label), (np.array([column, row]) + reg) * SETTINGS.stride, wh * SETTINGS.stride))
    return found


def test_objects_are_where_the_boxes_are(data: Any) -> None:
    batches = {batch["token"][0]: batch for batch in batches_of(DETECTION_2D, provider_of(data), SETTINGS, seed=2)}
    assert {
        name: (value.shape, value.dtype.name) for name, value in batches["frame-1"].items() if name[0] in "ihwr"
    } == {
        "input": ((2, 3, 24, 32), "float32"),
        "hm": ((2, 4, 6, 8), "float32"),
        "wh": ((2, 3, 2), "float32"),
        "reg": ((2, 3, 2), "float32"),
        "ind": ((2, 3), "int64"),
        "reg_mask": ((2, 3), "uint8"),
    }
    # per image 1, 0, 2, 1, 0, 0, 1, 0, 0, 1; categories car, pedestrian, car, barrier, car, pedestrian
    counts = [len(objects_of(batches[f"frame-{frame}"], camera)) for frame in range(5) for camera in range(2)]
    assert counts == [1, 0, 1, 1, 0, 0, 1, 0, 0, 1]
    scale = 24 / HW[0]  # fills the output in height
    matrix = batches["frame-1"]["output_from_image"][0]
    np.testing.assert_allclose(matrix[[0, 1, 1], [0, 1, 2]], [scale, scale, 0], rtol=1e-6)
    [(label, center, size)] = objects_of(batches["frame-1"], 0)
    assert label == 0
    x1, y1, _ = matrix @ [8, 5, 1]
    x2, y2, _ = matrix @ [26, 20, 1]
    x1, x2 = np.clip([x1, x2], 0, 28)  # to the coordinates of the pixels of the heatmap
    np.testing.assert_allclose(center, [(x1 + x2) / 2, (y1 + y2) / 2], rtol=1e-5)
    np.testing.assert_allclose(size, [x2 - x1, y2 - y1], rtol=1e-5)
    [(label, _, _)] = objects_of(batches["frame-1"], 1)
    assert label == 2


def test_hidden_objects_may_stay(data: Any) -> None:
    with_hidden = attrs.evolve(SETTINGS, leaves_out_hidden=False)
    batches = batches_of(DETECTION_2D, provider_of(data), with_hidden, seed=2)
    [batch] = [batch for batch in batches if batch["token"] == ["frame-1"]]
    assert sorted(label for label, _, _ in objects_of(batch, 0)) == [0, 1]


def test_mirrored_images_have_mirrored_objects(data: Any) -> None:
    plain = attrs.evolve(SETTINGS, distorts_colors=False)
    mirrored = attrs.evolve(plain, images=attrs.evolve(plain.images, flip_prob=1.0))
    provider = provider_of(data)
    one, other = (
        run_step(DETECTION_2D.steps(provider, each), provider.get_data(1), seed=4).output["cameras"][0]
        for each in (plain, mirrored)
    )
    assert np.abs(one["image"] - other["image"][..., ::-1]).max() < 0.02
    flip = np.array([[-1, 0, 32], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(other["output_from_image"], flip @ one["output_from_image"], atol=1e-5)
    assert one["objects"]["is_active"].tolist() == other["objects"]["is_active"].tolist()


def test_evaluation_shows_all_of_each_file(data: Any) -> None:
    provider = provider_of(data, boxes_2d=False, boxes=False)
    for batch in batches_of(DETECTION_2D, provider, SETTINGS, is_training=False):
        assert {*batch} == {"input", "output_from_image", "token", "scene", "place"}
        assert batch["input"].shape == (len(CAMERAS), 3, 24, 32)
        corners = batch["output_from_image"][0] @ np.array([[0, 0, 1], [HW[1], HW[0], 1]]).T
        assert (corners[:2] >= -1e-4).all()
        assert (corners[:2] <= np.array([[32], [24]]) + 1e-4).all()
