# SPDX-License-Identifier: Apache-2.0
"""Samples as pictures, cameras around the vehicle and the scene from above, and as recordings for rerun.io."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import file_path, number
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, error_that_is_also
from accvlab.dali_pipeline_framework.unknown_arguments import has_settings

from .lenses import Array
from .scene_views import CameraView, SceneView, Shown, ViewSettings, frames_of, scene_view

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from typing_extensions import Unpack


# Corners in units of half the length, width and height; the first four are the front.
_CORNERS = np.array(
    [[1, 1, 1], [1, -1, 1], [1, -1, -1], [1, 1, -1], [-1, 1, 1], [-1, -1, 1], [-1, -1, -1], [-1, 1, -1]],
    np.float64,
)
# Of the front, the back, between them; and the cross of the front.
_STARTS = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 0, 1]
_ENDS = [1, 2, 3, 0, 5, 6, 7, 4, 4, 5, 6, 7, 2, 3]
_NEAREST_DEPTH_M = 0.1
_POINTS_OF_LINE = 33


def box_corners(centers: npt.ArrayLike, sizes: npt.ArrayLike, yaws: npt.ArrayLike) -> Array:
    """Corners of upright boxes, ``(N, 8, 3)``, the front first; sizes are length, width, height, ``(N, 3)``."""
    centers, sizes, yaws = (np.asarray(values, np.float64) for values in (centers, sizes, yaws))
    local = _CORNERS * sizes.reshape(-1, 1, 3) / 2
    cos, sin = np.cos(yaws).reshape(-1, 1), np.sin(yaws).reshape(-1, 1)
    x, y = cos * local[..., 0] - sin * local[..., 1], sin * local[..., 0] + cos * local[..., 1]
    return np.stack([x, y, local[..., 2]], axis=-1) + centers.reshape(-1, 1, 3)


_BACKGROUND, _BRIGHT, _DIM = "#16181d", "#eceef2", "#969ca8"
# Categories, in turn: first the palette of Okabe and Ito, which people with color blindness can tell apart.
_COLORS = (
    *("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#d55e00", "#cc79a7"),
    *("#2f7fd6", "#ffffff", "#a3e048", "#b58cff", "#ff9896", "#8c6d31"),
)
_PAST, _FUTURE = "#8fb8de", "#7ee081"  # where the vehicle was, and will be
_VIEW_WIDTH_IN = 3.6  # of a camera
_DPI = 110
_VELOCITY_S = 1.0  # dotted lines show the way of so long a time


@attrs.frozen(eq=False, repr=False)
class Picture:
    """A picture that a notebook shows.

    Attributes:
        figure: The figure of Matplotlib.
    """

    figure: Figure

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a file; its ending says the format: ``.png``, ``.jpg``, ``.pdf``, ``.svg``.

        Raises:
            FileError: The file cannot be written.
            SettingError: There is no such format.
        """
        path = Path(path)
        try:
            self.figure.savefig(path, facecolor=_BACKGROUND)
        except OSError as error:
            message = f"The picture {str(path)!r} cannot be written: {error.strerror or error}."
            raise error_that_is_also(FileError, [error], message) from error
        except ValueError as error:
            raise SettingError(f"The picture {str(path)!r} cannot be written: {error}") from error
        return path

    def pixels(self) -> npt.NDArray[np.uint8]:
        """Draw it: ``(H, W, 3)`` uint8, RGB."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        canvas: Any = FigureCanvasAgg(self.figure)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", facecolor=_BACKGROUND)
        return buffer.getvalue()

    def __repr__(self) -> str:
        """Show the size."""
        width, height = self.figure.get_size_inches() * self.figure.dpi
        return f"Picture({int(width)} x {int(height)} pixels)"


@has_settings(ViewSettings, scene_view)
def show(
    data: Shown | SceneView | Sequence[SceneView],
    sample: int = 0,
    *,
    frame: int | None = None,
    range_m: float | None = None,
    **settings: Unpack[ViewSettings],
) -> Picture:
    """Draw a sample of a provider, or one of a batch of a loader: cameras with boxes, and the scene from above.

    Cameras are arranged by their viewing direction, where that is known: ahead in the first row, behind in the
    second (up to three: in one row). Boxes are projected by the matrices of the sample: where they miss the
    objects in the picture, boxes, matrices or times are wrong. A cross marks the front of a box. From above:
    boxes, their velocities (as the way in one second), lidar points, map lines; the vehicle is in the middle and
    looks up. In both: where the vehicle was (blue) and will be (green), with a dot each second. Its speed and
    command are in the title.

    All frames of a clip are shown one below the other, or 16 of them if there are more, with the scene of the last
    frame.

    Args:
        data: A sample of a provider, a batch of a loader, or what `scene_view` makes of one or several frames.
        sample: Number of the sample in a batch.
        frame: Number of the only frame to show of a clip; negative ones count from the end.
        range_m: Range of the view from above, meters; None to show all boxes.
        **settings: ``fields``, ``class_names``, ``image_mean``, ``image_std`` and ``windows``, see `scene_view`.

    Raises:
        SettingError: There is nothing that can be shown, a field cannot be shown, or Matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError("Pictures need Matplotlib, which is not installed: pip install matplotlib.") from error
    if isinstance(data, SceneView | Sequence):
        views = [data] if isinstance(data, SceneView) else [*data]
        frames = [*range(len(views))]
    else:
        frames = frames_of(data, sample, settings.get("fields")) if frame is None else [frame]
        views = [scene_view(data, sample, frame=number, **settings) for number in frames]
    if not views or not all(isinstance(view, SceneView) for view in views):
        raise SettingError("There must be at least one `SceneView` to show, and nothing else.")
    if len(views) > 1:
        views = [_named(view, number) for view, number in zip(views, frames, strict=True)]
    return Picture(_drawn(Figure, views, range_m))


def _rows_of(views: Sequence[SceneView]) -> list[list[CameraView]]:
    """The cameras of a frame as they look; of several frames a row each, or of four with one camera."""
    if len(views) == 1:
        return camera_rows(views[0].cameras)
    if max(len(one.cameras) for one in views) > 1:
        return [list(one.cameras) for one in views]
    return _in_rows([camera for one in views for camera in one.cameras], 4)


def _drawn(figure_class: type[Figure], views: Sequence[SceneView], range_m: float | None) -> Figure:
    """Draw the cameras of all frames, and the scene of the last one."""
    view, rows = views[-1], _rows_of(views)
    view_of = {id(camera): one for one in views for camera in one.cameras}
    has_scene = len(view.centers) or len(view.points) or view.lines or _paths(view)
    shapes = [[camera.image.shape for camera in row] for row in rows]
    heights_in = [_VIEW_WIDTH_IN * max(height / width for height, width, _ in row) for row in shapes]
    num_columns = max([len(row) for row in rows], default=0)
    cameras_width_in, height_in = num_columns * _VIEW_WIDTH_IN, max(sum(heights_in), 3.0)
    scene_width_in = height_in if has_scene or not rows else 0.0
    size_in = (cameras_width_in + scene_width_in, height_in + 0.35)
    figure = figure_class(figsize=size_in, dpi=_DPI, facecolor=_BACKGROUND)
    top_in = height_in
    for row, row_height_in in zip(rows, heights_in, strict=True):
        left_in = (num_columns - len(row)) * _VIEW_WIDTH_IN / 2
        for camera in row:
            place = (left_in, top_in - row_height_in, _VIEW_WIDTH_IN, row_height_in)
            _draw_camera(_axes(figure, place), camera, view_of[id(camera)])
            left_in += _VIEW_WIDTH_IN
        top_in -= row_height_in
    if scene_width_in:
        _draw_from_above(_axes(figure, (cameras_width_in, 0.0, scene_width_in, height_in)), view, range_m)
    _draw_heading(figure, views)
    return figure


def _named(view: SceneView, frame: int) -> SceneView:
    cameras = [attrs.evolve(camera, name=f"{camera.name}  frame {frame}".strip()) for camera in view.cameras]
    return attrs.evolve(view, cameras=cameras)


def camera_rows(cameras: Sequence[CameraView]) -> list[list[CameraView]]:
    """Put cameras in rows: those that look ahead, from left to right; those that look back, as seen from above.

    Up to three are in one row, from left to right.
    """
    bearing_of = {id(camera): camera.bearing for camera in cameras if camera.bearing is not None}
    if len(cameras) < 2 or len(bearing_of) < len(cameras):
        return _in_rows(cameras, 3 if len(cameras) > 4 else max(len(cameras), 1))
    from_left = sorted(cameras, key=lambda camera: -bearing_of[id(camera)])
    if len(cameras) < 4:
        return [from_left]
    ahead = [camera for camera in from_left if abs(bearing_of[id(camera)]) < np.deg2rad(80)]
    behind = [camera for camera in from_left if abs(bearing_of[id(camera)]) >= np.deg2rad(80)]
    behind.sort(key=lambda camera: bearing_of[id(camera)] % (2 * np.pi))
    return [row for row in (ahead, behind) if row]


def _in_rows(cameras: Sequence[CameraView], num_columns: int) -> list[list[CameraView]]:
    return [[*cameras[start : start + num_columns]] for start in range(0, len(cameras), num_columns)]


def _axes(figure: Figure, place_in: tuple[float, float, float, float]) -> Axes:
    """Axes at (left, bottom, width, height), inches, with a gap around them."""
    total = np.tile(figure.get_size_inches(), 2)
    left, bottom, width, height = (np.add(place_in, (0.02, 0.02, -0.04, -0.04)) / total).tolist()
    return figure.add_axes((left, bottom, width, height))


def _categories(view: SceneView) -> Array:
    return np.zeros(len(view.centers), np.int64) if view.categories is None else view.categories


def _colors(view: SceneView) -> list[str]:
    return [_COLORS[category % len(_COLORS)] if category >= 0 else _DIM for category in _categories(view)]


def box_edges(camera: CameraView, corners: Array) -> list[list[Array]]:
    """The visible parts of the lines of each box in an image, ``(n, 2)`` pixels each.

    A line is bent by a lens, and may begin or end behind the camera: it is drawn through some of its points.
    """
    start, end = corners[:, _STARTS, np.newaxis], corners[:, _ENDS, np.newaxis]
    lines = _seen_by(camera, start + np.linspace(0, 1, _POINTS_OF_LINE)[:, np.newaxis] * (end - start))
    is_seen = np.asarray(~np.isnan(lines).any(axis=-1))  # (N, 14, points)
    return [
        [line[seen] for line, seen in zip(*of_box, strict=True) if seen.sum() > 1]
        for of_box in zip(lines, is_seen, strict=True)
    ]


def _seen_by(camera: CameraView, points: Array) -> Array:
    """Where points ``(..., 3)`` of the reference frame are in an image, ``(..., 2)``; NaN where they are not."""
    if camera.lens is not None and camera.camera_from_reference is not None:
        matrix = camera.camera_from_reference
        return camera.lens.pixels(points @ matrix[:, :3].T + matrix[:, 3])
    if camera.image_from_reference is None:
        return np.full((*points.shape[:-1], 2), np.nan)
    matrix = np.asarray(camera.image_from_reference, np.float64)[:3]
    pixels = points @ matrix[:, :3].T + matrix[:, 3]
    depth = np.where(pixels[..., 2:] > _NEAREST_DEPTH_M, pixels[..., 2:], np.nan)
    return np.asarray(pixels[..., :2] / depth)


def _paths(view: SceneView) -> list[tuple[Array, Array, str]]:
    """Ways of the vehicle, ``(n, 3)``, points of them at whole seconds, ``(m, 3)``, and their color."""
    paths = []
    for path, color in ((view.history, _PAST), (view.future, _FUTURE)):
        if path is not None and len(path.positions):
            times = np.arange(len(path.positions)) if path.times is None else path.times
            fine = np.linspace(times[0], times[-1], 8 * len(times) + 1)
            way = np.stack([np.interp(fine, times, axis) for axis in path.positions.T], axis=-1)
            seconds = np.arange(np.ceil(times[0] - 1e-6), times[-1] + 1e-6)
            marks = np.stack([np.interp(seconds, times, axis) for axis in path.positions.T], axis=-1)
            paths.append((way, marks, color))
    return paths


def _draw_camera(axes: Axes, camera: CameraView, view: SceneView) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    height, width = camera.image.shape[:2]
    extent = (0, width, height, 0)  # (0, 0) is the outer corner of the first pixel
    axes.imshow(camera.image, extent=extent, interpolation="antialiased")
    if camera.heatmap is not None:
        axes.imshow(camera.heatmap, extent=extent, alpha=0.5, cmap="magma", vmin=0, vmax=1)
    corners = box_corners(view.centers, view.sizes, view.yaws)
    for lines, color in zip(box_edges(camera, corners), _colors(view), strict=False):
        axes.add_collection(LineCollection(lines, colors=color, lw=0.9))
    for way, marks, color in _paths(view):
        axes.plot(*_seen_by(camera, way).T, color=color, lw=2.0, alpha=0.9)
        x, y = _seen_by(camera, marks).T
        axes.scatter(x, y, color=color, s=14, lw=0.6, edgecolors=_BACKGROUND, zorder=3)
    for x1, y1, x2, y2 in () if camera.boxes_2d is None else camera.boxes_2d:
        if x2 > x1 and y2 > y1:
            axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=_BRIGHT, lw=0.7, ls="--"))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    written = "  ".join(part for part in (camera.name, camera.note) if part)
    label = axes.text(0.015, 0.97, written, color=_BRIGHT, fontsize=7, va="top", transform=axes.transAxes)
    label.set_bbox({"facecolor": _BACKGROUND, "alpha": 0.65, "edgecolor": "none", "pad": 1.5})


def _draw_from_above(axes: Axes, view: SceneView, range_m: float | None) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    # To the left and ahead of the vehicle; drawn with ahead up and left to the left.
    def seen(points: Array) -> Array:
        along = points[..., :2] @ view.ahead
        left = points[..., :2] @ np.array([-view.ahead[1], view.ahead[0]])
        return np.stack([-left, along], axis=-1)

    corners = seen(box_corners(view.centers, view.sizes, view.yaws))
    shown_points = [corners.reshape(-1, 2), np.array([[5.0, 5.0]]), *(seen(line) for line in view.lines)]
    shown_points += [seen(way) for way, _, _ in _paths(view)]
    if range_m is not None:
        farthest = number(range_m, "range_m", above=0)
    elif len(view.centers) or _paths(view) or not len(view.points):
        farthest = float(np.abs(np.concatenate(shown_points)).max()) * 1.05 + 1
    else:
        farthest = float(np.percentile(np.abs(seen(view.points)), 98)) + 1
    for radius in _rings(farthest):
        angles = np.linspace(0, 2 * np.pi, 90)
        axes.plot(radius * np.cos(angles), radius * np.sin(angles), color="#2c313c", lw=0.7, zorder=0)
        axes.text(0, radius, f"{radius:g} m", color=_DIM, fontsize=6, ha="center", va="center", clip_on=True)
    if len(view.points):
        cloud = seen(view.points)
        axes.scatter(cloud[:, 0], cloud[:, 1], s=0.3, c=view.points[:, 2], cmap="viridis", lw=0, zorder=1)
    for line in view.lines:
        axes.plot(*seen(line).T, color="#7a8699", lw=0.8, zorder=1)
    colors = _colors(view)
    outlines, fronts = list(corners[:, [0, 1, 5, 4]]), list(corners[:, :2])
    axes.add_collection(PolyCollection(outlines, facecolors="none", edgecolors=colors, lw=1.0, zorder=3))
    axes.add_collection(LineCollection(fronts, colors=colors, lw=2.2, zorder=3))
    if view.velocities is not None and len(view.centers):
        ends = view.centers[:, :2] + view.velocities[:, :2] * _VELOCITY_S
        ways = np.stack([seen(view.centers), seen(ends)], axis=1)
        is_known = ~np.isnan(ways).any(axis=(1, 2))
        of_known = np.array(colors)[is_known].tolist()
        axes.add_collection(LineCollection(list(ways[is_known]), colors=of_known, lw=1.0, ls=":", zorder=3))
    for way, marks, color in _paths(view):
        axes.plot(*seen(way).T, color=color, lw=1.8, zorder=5)
        x, y = seen(marks).T
        axes.scatter(x, y, color=color, s=12, lw=0, zorder=5)
    axes.fill([-1, 0, 1], [-2, 2, -2], color=_BRIGHT, zorder=4)
    axes.set(xlim=(-farthest, farthest), ylim=(-farthest, farthest))
    axes.set(aspect="equal", facecolor=_BACKGROUND, xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color("#2c313c")


def _rings(farthest_m: float) -> list[float]:
    step = next((step for step in (5.0, 10.0, 20.0, 50.0) if farthest_m / step <= 6), 100.0)
    return [step * ring for ring in range(1, int(farthest_m * 1.4 // step) + 1)]


def _draw_heading(figure: Figure, views: Sequence[SceneView]) -> None:
    view, without_boxes = views[-1], [_without_boxes(each) for each in views]
    height_in = figure.get_size_inches()[1]
    middle = 1 - 0.17 / height_in
    heading = "   ".join(
        part for part in (view.title, view.motion, without_boxes[-1] * all(without_boxes)) if part
    )
    figure.text(0.006, middle, heading, color=_BRIGHT, fontsize=8, va="center")
    left = 0.994
    for category in sorted({*([] if view.categories is None else view.categories.tolist())}, reverse=True):
        if 0 <= category < len(view.class_names):
            name, color = f"{view.class_names[category]}", _COLORS[category % len(_COLORS)]
            figure.text(left, middle, f"■ {name}", color=color, fontsize=7, va="center", ha="right")
            left -= (0.062 * len(name) + 0.28) / figure.get_size_inches()[0]


def _without_boxes(view: SceneView) -> str:
    """Why no image of the scene has a box, where it has boxes."""
    if not len(view.centers) or not view.cameras:
        return ""
    for camera in view.cameras:
        height, width = camera.image.shape[:2]
        places = _seen_by(camera, view.centers)
        if ((places >= 0) & (places <= [width, height])).all(axis=-1).any():
            return ""
    return f"none of {len(view.centers)} boxes has its center in an image"


@has_settings(ViewSettings, scene_view)
def save_recording(
    data: Iterable[Shown | SceneView],
    path: str | os.PathLike[str],
    *,
    name: str = "accvlab",
    sample: int = 0,
    **settings: Unpack[ViewSettings],
) -> Path:
    """Write samples, in the order of time, to an ``.rrd`` file: open it with ``rerun file.rrd``.

    Entities: ``scene/boxes``, ``scene/lidar``, ``scene/map``, ``scene/ego`` (where the vehicle was and will be) in
    the reference frame; ``cameras/<name>`` with the
    image, the projected boxes as lines, and 2D boxes. Timelines: ``frame``, and ``time`` where times are known.

    Args:
        data: Samples of a provider, batches of a loader, or views of them.
        path: The file.
        name: Name of the recording.
        sample: Number of the sample in a batch.
        **settings: ``fields``, ``class_names``, ``image_mean``, ``image_std`` and ``windows``, see `scene_view`.

    Returns:
        The path.

    Raises:
        SettingError: There is nothing that can be shown, or ``rerun-sdk`` is missing.
    """
    try:
        import rerun as rr
    except ImportError as error:
        raise SettingError("Recordings need rerun-sdk, which is not installed: pip install rerun-sdk.") from error
    target = Path(file_path(path, "path"))
    recording = rr.RecordingStream(name)
    recording.save(str(target))
    for moment, one in enumerate(data):
        view = one if isinstance(one, SceneView) else scene_view(one, sample, **settings)
        recording.set_time("frame", sequence=moment)
        if view.timestamp is not None:
            recording.set_time("time", timestamp=view.timestamp)
        _log(rr, recording, view)
    recording.flush()
    return target


def _log(rr: Any, recording: Any, view: SceneView) -> None:
    categories, names = _categories(view), view.class_names
    labels = [names[one] if 0 <= one < len(names) else str(one) for one in categories.tolist()]
    zero = np.zeros(len(view.yaws))
    quaternions = np.stack([zero, zero, np.sin(view.yaws / 2), np.cos(view.yaws / 2)], axis=1)  # x, y, z, w
    boxes = rr.Boxes3D(
        centers=view.centers,
        half_sizes=view.sizes / 2,
        quaternions=quaternions,
        class_ids=np.maximum(categories, 0),
        labels=labels,
    )
    recording.log("scene/boxes", boxes)
    recording.log("scene/lidar", rr.Points3D(view.points, radii=0.03))
    lines = [np.column_stack([line, np.zeros(len(line))]) for line in view.lines]
    recording.log("scene/map", rr.LineStrips3D(lines))
    recording.log("scene/ego", rr.LineStrips3D([way for way, _, _ in _paths(view)]))
    corners = box_corners(view.centers, view.sizes, view.yaws)
    for camera in view.cameras:
        entity = f"cameras/{camera.name}"
        recording.log(entity, rr.Image(camera.image))
        edges = box_edges(camera, corners)
        recording.log(f"{entity}/boxes", rr.LineStrips2D([line for of_box in edges for line in of_box]))
        if camera.boxes_2d is not None:
            boxes_2d = rr.Boxes2D(array=camera.boxes_2d, array_format=rr.Box2DFormat.XYXY)
            recording.log(f"{entity}/boxes_2d", boxes_2d)
