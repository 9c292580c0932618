"""Pictures of samples and batches: what is where, and what is refused."""

import itertools

import numpy as np
import pytest
from driving_support.driving_data import write_driving_data
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from PIL import Image
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import (
    DataLoader,
    FrameDataProvider,
    FrameFolders,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    Windows,
)
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.viewing import CameraView, SceneView, ViewFields, save_recording, scene_view, show
from accvlab.driving_data.viewing.pictures import box_corners, box_edges, camera_rows

# Looks along x of the reference frame; 100 x 80 pixels.
AHEAD = np.array([[50.0, -100, 0, 0], [40, 0, -100, 0], [1, 0, 0, 0]])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Index and folder."""
    root = tmp_path_factory.mktemp("driving")
    return write_driving_data(root), root


@pytest.fixture(scope="module")
def provider(data):
    return DrivingProvider(*data, lidar=True, boxes_2d=True, map_lines=True)


# --- boxes in images ------------------------------------------------------------------------------------


def projected(*box, camera=AHEAD):
    """Corners of a box, and the lines that are drawn of it."""
    view = CameraView(name="", image=np.zeros((80, 100, 3), np.uint8), image_from_reference=camera)
    corners = box_corners(*([each] for each in box))
    return corners[0], box_edges(view, corners)[0]


def test_corners_are_those_of_a_turned_box():
    corners, _ = projected([10, 2, 1], [4, 2, 1], np.pi / 2)  # the length lies along y
    assert corners.min(axis=0) == pytest.approx([9, 0, 0.5])
    assert corners.max(axis=0) == pytest.approx([11, 4, 1.5])
    assert corners[:4, 1] == pytest.approx([4, 4, 4, 4])  # the front


def test_a_box_is_drawn_where_its_corners_project():
    _, lines = projected([10, 0, 0], [2, 2, 2], 0)
    xy = {tuple(np.round(line[end], 6)) for line in lines for end in (0, -1)}
    places = itertools.product((9, 11), (-1, 1), (-1, 1))
    assert xy == {tuple(np.round((50 + 100 * y / x, 40 + 100 * z / x), 6)) for x, y, z in places}
    assert projected([-10, 0, 0], [2, 2, 2], 0)[1] == []  # behind
    assert projected([10, 0, 0], [2, 2, 2], 0, camera=None)[1] == []


@given(st.floats(-6, 6), st.floats(-3, 3), st.floats(-3.2, 3.2))
def test_a_box_around_the_camera_stays_in_front(x, y, yaw):
    corners, lines = projected([x, y, 0], [6, 4, 3], yaw)
    edges = [(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4), (0, 4), (1, 5), (2, 6), (3, 7)]
    edges += [(0, 2), (1, 3)]
    depths = np.linspace(corners[:, 0][[a for a, _ in edges]], corners[:, 0][[b for _, b in edges]], 33)
    # Of a line, the part farther than the nearest depth is seen, up to one of 33 points of it.
    num_seen = (depths > 0.1 + 1e-9).sum(axis=0)
    assert sorted(map(len, lines)) == sorted(num_seen[num_seen > 1].tolist())


# --- views ----------------------------------------------------------------------------------------------


def first_batch(provider, batch_size, *more, **settings):
    steps = [ImageDecoder("image", use_device_mixed=True), *more]
    with DataLoader(provider, batch_size, steps=steps, num_workers=0, ragged="list", **settings) as loader:
        return next(iter(loader))


def test_a_view_of_a_sample(provider):
    view = scene_view(provider.get_data(1), class_names=provider.class_names)
    assert view.title == "scene-a   frame 1   token frame-1"
    assert [camera.name for camera in view.cameras] == ["FRONT", "LEFT"]
    assert view.cameras[1].image.shape == (4, 6, 3)
    assert view.cameras[1].image.max() == 11
    camera = provider.get_data(1)["cameras"][0]
    np.testing.assert_allclose(
        view.cameras[0].image_from_reference, camera["intrinsics"] @ camera["camera_from_reference"][:3]
    )
    assert view.points.shape == (5, 3)
    assert view.centers.shape == (3, 3)


@pytest.mark.parametrize(("output_type", "stack_arrays"), [("numpy", False), ("torch", True)])
def test_a_view_of_a_batch_is_that_of_its_sample(data, output_type, stack_arrays):
    provider = DrivingProvider(*data)
    batch = first_batch(provider, 3, output_type=output_type, stack_arrays=stack_arrays)
    view, expected = scene_view(batch, 1), scene_view(provider.get_data(1))
    assert view.title == expected.title
    for one, other in zip(view.cameras, expected.cameras, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(one.image, other.image)
        np.testing.assert_allclose(one.image_from_reference, other.image_from_reference)
    np.testing.assert_array_equal(view.centers, expected.centers)


def test_a_view_undoes_a_normalization_that_is_told(data):
    mean, std = [100.0, 110.0, 120.0], [50.0, 60.0, 70.0]
    normalizer = ImageMeanStdDevNormalizer("image", mean, std, output_layout="CHW")
    batch = first_batch(DrivingProvider(*data, boxes=False), 1, normalizer, output_type="numpy")
    view = scene_view(batch, image_mean=mean, image_std=std)
    np.testing.assert_array_equal(view.cameras[1].image, np.full((4, 6, 3), 1))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),  # shares
        ([0.0, 100.4, 255.0], [0, 100, 255]),  # levels
        ([-1.0, 0.0, 3.0], [0, 64, 255]),  # spread over all levels
        ([0.0, 127.8, 255.9], [0, 127, 255]),
        ([50.0, 178.0, 306.0], [0, 128, 255]),
    ],
)
def test_images_of_reals_are_shown_by_their_range(image, expected):
    pixels = np.float32(image).reshape(1, 1, 3, 1)
    [camera] = scene_view(of_camera(pixels)).cameras
    np.testing.assert_array_equal(camera.image, np.uint8(expected).reshape(1, 3, 1).repeat(3, axis=2))


@pytest.mark.parametrize("names", [("",), ("front", "rear")])
def test_a_view_of_cameras_as_frame_providers_have_them(tmp_path, names):
    for name in names:
        (tmp_path / "monday" / name).mkdir(parents=True)
        image = Image.fromarray(np.full((4, 6, 3), 40 + len(name), np.uint8))
        image.save(tmp_path / "monday" / name / "7.png")
    root = FrameFolders(tmp_path, cameras={name: name for name in names}) if names[0] else tmp_path
    frames = FrameDataProvider(root, timestamp_name="time" if names[0] else None)
    for view in (scene_view(frames.get_data(0)), scene_view(first_batch(frames, 1, output_type="numpy"))):
        assert [camera.name for camera in view.cameras] == [*names]
        assert [camera.image.max() for camera in view.cameras] == [40 + len(name) for name in names]


def of_camera(image):
    return {"cameras": {0: {"image": image}}}


PIXELS, EMPTY = np.zeros((1, 4, 4, 3), np.uint8), {"boxes": {"centers": np.zeros((2, 1, 3))}}
REFUSED = [
    ({"camera": {"pixels": PIXELS}}, {}, "There is nothing to show: no field 'cameras', 'boxes' or 'lidar'"),
    (EMPTY, {"sample": 2}, "`sample`"),
    ([1], {}, "or a batch"),
    (of_camera(np.zeros((1, 9), np.uint8)), {}, "cameras[0].image: cannot be decoded"),
    (of_camera(np.zeros((1, 5, 5, 4), np.uint8)), {}, "cameras[0].image: must be ... got uint8 (5, 5, 4)"),
    (of_camera(PIXELS), {"windows": 5}, "`windows`"),
    (
        {"front": {"image": PIXELS, "time": np.zeros(1)}},
        {"fields": ViewFields(cameras="front")},
        "front[0].image: must be ... got uint8 (4, 3)",
    ),
]


@pytest.mark.parametrize(("given", "settings", "words"), REFUSED)
def test_what_cannot_be_shown_is_named(given, settings, words):
    assert_refused(lambda: scene_view(given, **settings), words)


# --- pictures -------------------------------------------------------------------------------------------

AROUND = {"F": 0, "FR": -55, "FL": 55, "B": 180, "BL": 110, "BR": -110}


@pytest.mark.parametrize(
    ("bearings", "expected"),
    [(AROUND, [["FL", "F", "FR"], ["BL", "B", "BR"]]), (dict.fromkeys("01234"), [["0", "1", "2"], ["3", "4"]])],
)
def test_cameras_go_around_the_vehicle_or_keep_their_order(bearings, expected):
    image = np.zeros((2, 2, 3), np.uint8)
    cameras = [
        CameraView(name=name, image=image, bearing=None if degrees is None else np.deg2rad(degrees))
        for name, degrees in bearings.items()
    ]
    assert [[camera.name for camera in row] for row in camera_rows(cameras)] == expected


class TestShow:
    def view(self, x=10.0, **changes):
        image = np.zeros((80, 100, 3), np.uint8)
        camera = CameraView(name="FRONT", image=image, image_from_reference=AHEAD, bearing=0.0)
        boxes = {"centers": np.array([[x, 0, 0]]), "sizes": np.array([[2.0, 4, 4]]), "yaws": np.zeros(1)}
        return SceneView(**{"cameras": [camera], **boxes, **changes})

    def test_draws_boxes_where_they_are(self):
        pixels = show(self.view()).pixels().astype(int)
        # Of the camera, 3.6 inches wide: the nearer face of the box is 4 m at 9 m, 44 of 100 pixels of the image.
        width, height = int(3.6 * 110), int(3.6 * 0.8 * 110)
        top = pixels.shape[0] - height
        camera = pixels[top:, :width]
        is_blue = (camera[..., 2] > 150) & (camera[..., 0] < 140) & (camera[..., 2] > camera[..., 0] + 60)
        columns = np.flatnonzero(is_blue.any(axis=0))
        middle, half = width / 2, 100 * 2 / 9 / 100 * width
        assert columns.min() == pytest.approx(middle - half, abs=4)
        assert columns.max() == pytest.approx(middle + half, abs=4)

    def test_colors_say_the_category_everywhere(self):
        count, unknown = 30, -1
        places = np.linspace(8, 14, count)[:, np.newaxis] * [1, 0, 0]
        boxes = {"centers": places, "sizes": np.ones((count, 3)), "yaws": np.zeros(count)}
        categories = np.array([*range(count - 1), unknown])
        velocities = np.tile([[0.0, 3.0]], (count, 1))
        velocities[1] = np.nan
        view = self.view(
            **boxes, categories=categories, velocities=velocities, class_names=[f"c{n}" for n in range(count - 1)]
        )
        figure = show(view).figure
        camera, above = figure.axes
        colors = [tuple(lines.get_colors()[0]) for lines in camera.collections]
        assert len({*colors[:12]}) == 12
        assert colors[12:24] == colors[:12]
        assert colors[24:-1] == colors[:5]
        assert colors[-1] not in colors[:-1]
        outlines, fronts, ways = above.collections
        assert [tuple(color) for color in outlines.get_edgecolors()] == colors
        assert [tuple(color) for color in fronts.get_colors()] == colors
        assert [tuple(color) for color in ways.get_colors()] == [colors[0], *colors[2:]]
        np.testing.assert_allclose(ways.get_segments()[0], [[0, 8], [-3, 8]])
        legend = {text.get_text(): to_rgba(text.get_color()) for text in figure.texts if "■" in text.get_text()}
        assert legend == {f"■ c{number}": colors[number] for number in range(count - 1)}
        assert above.get_xlim() == pytest.approx((-14.5 * 1.05 - 1, 14.5 * 1.05 + 1))

    def test_says_why_no_image_has_a_box(self):
        for views, is_said in (
            ([self.view(-10)], True),
            ([self.view()], False),
            ([self.view(), self.view(-10)], False),
        ):
            texts = [each.get_text() for each in show(views).figure.texts]
            assert ("none of 1 boxes has its center in an image" in texts) == is_said

    def test_says_that_matrices_are_missing(self, data):
        sample = DrivingProvider(*data).get_data(0)
        for camera in sample["cameras"].values():
            camera.remove_field("intrinsics")
        assert [camera.note for camera in scene_view(sample).cameras] == ["(no boxes: matrices missing)"] * 2
        assert "FRONT  (no boxes: matrices missing)" in [
            text.get_text() for axes in show(sample).figure.axes for text in axes.texts
        ]

    @pytest.mark.parametrize("known_by", ["times", "windows", ""])
    def test_of_a_window_draws_boxes_at_their_time(self, data, known_by):
        offsets = {"cameras.image": [-0.5, 0, 0.5]}
        offsets |= {"cameras.timestamp": [-0.5, 0, 0.5]} if known_by == "times" else {}
        windows = Windows(DrivingProvider(*data), offsets, unit="s", edges="repeat", tolerance_s=0.1)
        sample = windows.get_data(1)
        given = windows if known_by == "windows" else None
        other = "(boxes: other time)" if known_by else "(no boxes: time of the image unknown, give `windows`)"
        for frame in range(3):
            is_now = bool(known_by) and frame == 1
            cameras = scene_view(sample, frame=frame, windows=given).cameras
            assert [camera.image_from_reference is not None for camera in cameras] == [is_now] * 2
            assert [camera.note for camera in cameras] == [other * (not is_now)] * 2
        labels = [text.get_text() for axes in show(sample, windows=given).figure.axes for text in axes.texts]
        assert sum(other in label for label in labels) == (4 if known_by else 6)

    def test_refuses_fields_of_boxes_that_do_not_fit_together(self, provider):
        sample = provider.get_data(1)
        count = len(sample["boxes"]["centers"])
        sample["boxes"]["centers"] = sample["boxes"]["centers"][1:]
        told = rf"a row for each box, got {count - 1} in boxes\.centers, {count} in boxes\.sizes, "
        with pytest.raises(SettingError, match=told):
            show(sample)

    def test_draws_the_vehicle_looking_up(self):
        # A lidar whose y looks ahead, as that of nuScenes: the box 10 m ahead is above the vehicle.
        view = self.view(cameras=(), centers=np.array([[0.0, 10, 0]]), ahead=np.array([0.0, 1.0]))
        pixels = show(view, range_m=20).pixels().astype(int)
        is_blue = (pixels[..., 2] > 150) & (pixels[..., 2] > pixels[..., 0] + 60)
        is_blue[:40] = False  # the heading
        rows, columns = np.nonzero(is_blue)
        assert columns.mean() == pytest.approx(pixels.shape[1] / 2, abs=4)
        assert rows.mean() == pytest.approx(pixels.shape[0] - 330 * 0.75, abs=8)

    def test_writes_a_file(self, provider, tmp_path):
        with Image.open(show(provider.get_data(0)).save(tmp_path / "sample.png")) as image:
            assert image.format == "PNG"
        assert show(provider.get_data(0))._repr_png_().startswith(b"\x89PNG")


def test_pictures_that_cannot_be_made_are_named(provider, tmp_path):
    sample = provider.get_data(0)
    assert_refused(lambda: show(sample).save(tmp_path / "sample.xyz"), "cannot be written")
    assert_refused(lambda: show(sample).save(tmp_path / "nowhere/sample.png"), "cannot be written", FileError)
    assert_refused(lambda: show(sample, range_m=-1), "`range_m`")
    assert_refused(lambda: ViewFields(image=""), "`image`")


def test_a_recording_is_written(provider, tmp_path):
    pytest.importorskip("rerun")
    path = save_recording(
        [provider.get_data(0), provider.get_data(1)], tmp_path / "drive.rrd", class_names=provider.class_names
    )
    content = path.read_bytes()
    assert content.startswith(b"RRF")
    for entity in (b"scene/boxes", b"scene/lidar", b"cameras/FRONT", b"cameras/LEFT/boxes_2d"):
        assert entity in content
