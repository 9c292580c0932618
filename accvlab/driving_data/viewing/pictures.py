# SPDX-License-Identifier: Apache-2.0
"""One sample as a picture: its cameras as they look around the vehicle, and the scene from above."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.checks import number
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, error_that_is_also

from .projection import box_corners, projected_edges
from .scene_views import CameraView, SceneView, ViewFields, frames_of, scene_view

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = npt.NDArray[Any]

_BACKGROUND, _BRIGHT, _DIM = "#16181d", "#eceef2", "#969ca8"
# Categories, in turn: first the palette of Okabe and Ito, which people with color blindness can tell apart.
_COLORS = (
    *("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#d55e00", "#cc79a7"),
    *("#2f7fd6", "#ffffff", "#a3e048", "#b58cff", "#ff9896", "#8c6d31"),
)
_VIEW_WIDTH_IN = 3.6  # of a camera
_DPI = 110
_VELOCITY_S = 1.0  # arrows show the way of so long a time


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
            raise error_that_is_also(FileError, [type(error)], message) from error
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
        """Tell the size."""
        width, height = self.figure.get_size_inches() * self.figure.dpi
        return f"Picture({int(width)} x {int(height)} pixels)"


def show(
    data: SampleDataGroup | Mapping[Any, Any] | SceneView | Sequence[SceneView],
    sample: int = 0,
    *,
    frame: int | None = None,
    fields: ViewFields | None = None,
    class_names: Sequence[str] = (),
    image_mean: Sequence[float] | float | None = None,
    image_std: Sequence[float] | float | None = None,
    range_m: float | None = None,
) -> Picture:
    """Draw a sample of a provider, or one of a batch of a loader: cameras with boxes, and the scene from above.

    Cameras stand as they look around the vehicle, where that is known: ahead in the first row, behind in the
    second. Boxes are projected by the matrices of the sample: where they do not fit in the picture, the data do
    not fit. The front of a box is crossed. From above: boxes, their velocities (the way of one second), lidar
    points, map lines; the vehicle is in the middle and looks up.

    Of a clip, all frames are shown one below the other, or 16 of them if there are more, with the last scene.

    Args:
        data: A sample of a provider, a batch of a loader, or what `scene_view` makes of one or several frames.
        sample: Number of the sample in a batch.
        frame: Number of the only frame to show of a clip; negative ones count from the end.
        fields: Names of the fields.
        class_names: Names of the categories of boxes.
        image_mean: What was subtracted from the channels of a normalized image.
        image_std: What they were divided by then. Without the two, such images are stretched to their extremes.
        range_m: How far to see from above; None for what holds all boxes.

    Raises:
        SettingError: There is nothing that can be shown, a field cannot be shown, or Matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SettingError(
            'Pictures need Matplotlib, which is not installed: pip install "accvlab.dali_pipeline_framework[viz]".'
        ) from error
    if isinstance(data, SceneView):
        views = [data]
    elif isinstance(data, Sequence):
        views, frames = [*data], [*range(len(data))]
    else:
        settings: dict[str, Any] = {"fields": fields, "class_names": class_names}
        settings |= {"image_mean": image_mean, "image_std": image_std}
        frames = frames_of(data, sample, fields) if frame is None else [frame]
        views = [scene_view(data, sample, frame=number, **settings) for number in frames]
    if not views or not all(isinstance(view, SceneView) for view in views):
        raise SettingError("There must be at least one `SceneView` to show, and nothing else.")
    if len(views) > 1:
        views = [_named(view, number) for view, number in zip(views, frames, strict=True)]
    view = views[-1]
    view_of = {id(camera): one for one in views for camera in one.cameras}
    if len(views) == 1:
        rows = camera_rows(view.cameras)
    elif max(len(one.cameras) for one in views) > 1:
        rows = [list(one.cameras) for one in views]
    else:
        cameras = [camera for one in views for camera in one.cameras]
        rows = [cameras[start : start + 4] for start in range(0, len(cameras), 4)]
    has_scene = len(view.centers) or len(view.points) or view.lines
    heights_in = [max(_height_in(camera) for camera in row) for row in rows]
    num_columns = max([len(row) for row in rows], default=0)
    cameras_width_in, height_in = num_columns * _VIEW_WIDTH_IN, max(sum(heights_in), 3.0)
    scene_width_in = height_in if has_scene or not rows else 0.0
    figure = Figure(figsize=(cameras_width_in + scene_width_in, height_in + 0.35), dpi=_DPI, facecolor=_BACKGROUND)
    top_in = height_in
    for row, row_height_in in zip(rows, heights_in, strict=True):
        left_in = (num_columns - len(row)) * _VIEW_WIDTH_IN / 2
        for camera in row:
            place = (left_in, top_in - row_height_in, _VIEW_WIDTH_IN, row_height_in)
            _draw_camera(_axes(figure, place), camera, view_of[id(camera)])
            left_in += _VIEW_WIDTH_IN
        top_in -= row_height_in
    if scene_width_in:
        place = (cameras_width_in, 0.0, scene_width_in, height_in)
        _draw_from_above(_axes(figure, place), view, range_m)
    _draw_heading(figure, view)
    return Picture(figure)


def _named(view: SceneView, frame: int) -> SceneView:
    cameras = [attrs.evolve(camera, name=f"{camera.name}  frame {frame}".strip()) for camera in view.cameras]
    return attrs.evolve(view, cameras=cameras)


def camera_rows(cameras: Sequence[CameraView]) -> list[list[CameraView]]:
    """Put cameras in rows: those that look ahead, from left to right; those that look back, as seen from above."""
    bearings = [camera.bearing for camera in cameras]
    if len(cameras) < 4 or None in bearings:
        num_columns = 3 if len(cameras) > 4 else max(len(cameras), 1)
        return [list(cameras[start : start + num_columns]) for start in range(0, len(cameras), num_columns)]
    ahead = [camera for camera in cameras if abs(camera.bearing or 0) < np.deg2rad(80)]
    behind = [camera for camera in cameras if abs(camera.bearing or 0) >= np.deg2rad(80)]
    ahead.sort(key=lambda camera: -(camera.bearing or 0))
    behind.sort(key=lambda camera: (camera.bearing or 0) % (2 * np.pi))
    return [row for row in (ahead, behind) if row]


def _axes(figure: Figure, place_in: tuple[float, float, float, float]) -> Axes:
    """Axes at (left, bottom, width, height), inches, with a gap around them."""
    total = np.tile(figure.get_size_inches(), 2)
    left, bottom, width, height = (np.add(place_in, (0.02, 0.02, -0.04, -0.04)) / total).tolist()
    return figure.add_axes((left, bottom, width, height))


def _height_in(camera: CameraView) -> float:
    height, width = camera.image.shape[:2]
    return float(_VIEW_WIDTH_IN * height / width)


def _colors(view: SceneView) -> list[str]:
    categories = np.zeros(len(view.centers), np.int64) if view.categories is None else view.categories
    return [_COLORS[category % len(_COLORS)] if category >= 0 else _DIM for category in categories]


def _draw_camera(axes: Axes, camera: CameraView, view: SceneView) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    height, width = camera.image.shape[:2]
    extent = (0, width, height, 0)  # (0, 0) is the outer corner of the first pixel
    axes.imshow(camera.image, extent=extent, interpolation="antialiased")
    if camera.heatmap is not None:
        axes.imshow(camera.heatmap, extent=extent, alpha=0.5, cmap="magma", vmin=0, vmax=1)
    if camera.image_from_reference is not None and len(view.centers):
        corners = box_corners(view.centers, view.sizes, view.yaws)
        for lines, color in zip(projected_edges(corners, camera.image_from_reference), _colors(view), strict=True):
            axes.add_collection(
                LineCollection(list(lines[~np.isnan(lines).any(axis=(1, 2))]), colors=color, lw=0.9)
            )
    for x1, y1, x2, y2 in () if camera.boxes_2d is None else camera.boxes_2d:
        if x2 > x1 and y2 > y1:
            axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, ec=_BRIGHT, lw=0.7, ls="--"))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_axis_off()
    label = axes.text(0.015, 0.97, camera.name, color=_BRIGHT, fontsize=7, va="top", transform=axes.transAxes)
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
    farthest = number(range_m, "range_m", above=0) if range_m is not None else None
    if farthest is None:
        farthest = float(np.abs(np.concatenate(shown_points)).max()) * 1.05 + 1
        if not len(view.centers) and len(view.points):
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
    outlines = corners[:, [0, 1, 5, 4]] if len(corners) else corners.reshape(0, 4, 2)
    axes.add_collection(PolyCollection(list(outlines), facecolors="none", edgecolors=colors, lw=1.0, zorder=3))
    fronts = np.stack([corners[:, 0], corners[:, 1]], axis=1) if len(corners) else np.zeros((0, 2, 2))
    axes.add_collection(LineCollection(list(fronts), colors=colors, lw=2.2, zorder=3))
    if view.velocities is not None and len(view.centers):
        start = seen(view.centers)
        end = seen(view.centers[:, :2] + view.velocities[:, :2] * _VELOCITY_S)
        ways = np.stack([start, end], axis=1)
        is_known = ~np.isnan(ways).any(axis=(1, 2))
        axes.add_collection(
            LineCollection(
                list(ways[is_known]),
                colors=[color for color, is_one in zip(colors, is_known, strict=True) if is_one],
                lw=1.0,
                ls=":",
                zorder=3,
            )
        )
    axes.fill([-1, 0, 1], [-2, 2, -2], color=_BRIGHT, zorder=4)
    axes.set_xlim(-farthest, farthest)
    axes.set_ylim(-farthest, farthest)
    axes.set_aspect("equal")
    axes.set_facecolor(_BACKGROUND)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#2c313c")


def _rings(farthest_m: float) -> list[float]:
    step = next((step for step in (5.0, 10.0, 20.0, 50.0) if farthest_m / step <= 6), 100.0)
    return [step * ring for ring in range(1, int(farthest_m * 1.4 // step) + 1)]


def _draw_heading(figure: Figure, view: SceneView) -> None:
    height_in = figure.get_size_inches()[1]
    middle = 1 - 0.17 / height_in
    figure.text(0.006, middle, view.title, color=_BRIGHT, fontsize=8, va="center")
    if view.categories is None or not len(view.class_names):
        return
    left = 0.994
    for category in sorted(set(view.categories[view.categories >= 0].tolist()), reverse=True):
        if category < len(view.class_names):
            name = f"{view.class_names[category]}"
            color = _COLORS[category % len(_COLORS)]
            figure.text(left, middle, f"■ {name}", color=color, fontsize=7, va="center", ha="right")
            left -= (0.062 * len(name) + 0.28) / figure.get_size_inches()[0]
