# SPDX-License-Identifier: Apache-2.0
"""What there is to see in a sample: images with their cameras, boxes, points, lines, in the reference frame."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypedDict, cast

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup, Windows
from accvlab.dali_pipeline_framework.checks import did_you_mean, index_in, instance, number_list, shown, text
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import ENCODED_NAME, decoded, format_paths

from .lenses import Array, FThetaLens

Shown: TypeAlias = SampleDataGroup | Mapping[Any, Any]
"""A sample of a provider, or a batch of a loader."""

_MOST_FRAMES = 16  # in one picture
_SAME_S = 1e-3
_IMAGES, _MASK = "observation.image", "_is_pad"  # of LeRobot


@attrs.frozen(eq=False, kw_only=True)
class CameraView:
    """The image of a camera.

    Attributes:
        name: Name of the camera.
        image: ``(H, W, 3)`` uint8, RGB.
        image_from_reference: ``(3, 4)``, the reference frame to pixels times depth; None where unknown.
        boxes_2d: ``(M, 4)``, x1, y1, x2, y2, pixels, or None.
        heatmap: ``(h, w)`` in [0, 1], or None.
        bearing: Where the camera looks, radians to the left of ahead; None where unknown.
        lens: Lens of a fisheye camera, used in place of ``image_from_reference``; None where there is none.
        camera_from_reference: ``(3, 4)``, for the lens.
        is_of_other_time: Whether the image is of another time than the boxes and matrices of the sample; None
            where that is not known.
        note: Why it has no boxes, though the sample has some.
    """

    name: str
    image: npt.NDArray[np.uint8]
    image_from_reference: Array | None = None
    boxes_2d: Array | None = None
    heatmap: Array | None = None
    bearing: float | None = None
    lens: FThetaLens | None = None
    camera_from_reference: Array | None = None
    is_of_other_time: bool | None = False
    note: str = ""


# Why a camera has no boxes: it shows another time.
_WITHOUT_BOXES = {
    True: "(boxes: other time)",
    None: "(no boxes: time of the image unknown, give `windows`)",
    False: "(no boxes: matrices missing)",
}


@attrs.frozen(eq=False, kw_only=True)
class EgoPath:
    """Places of the vehicle.

    Attributes:
        positions: ``(T, 3)``, in the reference frame.
        times: ``(T,)``, seconds from the time of the sample; None where unknown.
    """

    positions: Array
    times: Array | None = None


@attrs.frozen(eq=False, kw_only=True)
class SceneView:
    """View of one sample for drawing, in meters in the reference frame.

    Attributes:
        title: Where the sample comes from.
        cameras: The images.
        centers: Centers of boxes, ``(N, 3)``.
        sizes: ``(N, 3)``: length, width, height.
        yaws: ``(N,)``, radians.
        velocities: ``(N, 2)``, m/s, or None.
        categories: ``(N,)`` int64, indices into ``class_names``.
        class_names: Names of the categories.
        points: ``(P, 3)``, lidar.
        lines: Lines of a map, ``(n, 2)`` each.
        ahead: ``(2,)``: where the vehicle looks.
        timestamp: Seconds, or None.
        history: Where the vehicle was.
        future: Where the vehicle will be.
        motion: Its speed and command, as a text.
    """

    title: str = ""
    cameras: Sequence[CameraView] = ()
    centers: Array = attrs.field(factory=lambda: np.zeros((0, 3)))
    sizes: Array = attrs.field(factory=lambda: np.zeros((0, 3)))
    yaws: Array = attrs.field(factory=lambda: np.zeros(0))
    velocities: Array | None = None
    categories: Array | None = None
    class_names: Sequence[str] = ()
    points: Array = attrs.field(factory=lambda: np.zeros((0, 3)))
    lines: Sequence[Array] = ()
    ahead: Array = attrs.field(factory=lambda: np.array([1.0, 0.0]))
    timestamp: float | None = None
    history: EgoPath | None = None
    future: EgoPath | None = None
    motion: str = ""


@attrs.frozen(kw_only=True)
class ViewFields:
    """Names of the fields that are shown; a field that a sample does not have is not shown.

    Without ``cameras``, each group with an ``image`` is a camera; without such groups, the sample is one. In
    samples of LeRobot, each field ``observation.images.<name>`` is a camera.

    The defaults fit `DrivingProvider`, and batches of its samples; `batch_view` is for batches of recipes.

    Attributes:
        cameras: Array of groups, one for each camera.
        image: Image of a camera: the bytes of a file, or ``HWC`` or ``CHW``; of a clip, frames are stacked.
        frames: Array of groups, one for each frame of a clip.
        name: Name of a camera.
        intrinsics: ``(3, 3)`` or ``(4, 4)`` of a camera.
        camera_from_reference: ``(4, 4)`` of a camera.
        projection: ``(3, 4)`` or ``(4, 4)`` of a camera, reference frame to pixels times depth; used in place of
            ``intrinsics`` and ``camera_from_reference`` if it exists.
        boxes_2d: The 2D boxes of a camera: a field, or a group with ``boxes``.
        heatmap: ``(K, h, w)`` of a camera.
        boxes: Group of the 3D boxes.
        centers: Centers of boxes.
        sizes: Sizes of boxes: length, width, height.
        yaws: Yaws of boxes.
        velocities: Velocities of boxes.
        categories: Categories of boxes.
        lidar: Group with ``points``.
        points: Points of the lidar; the first three columns are x, y, z.
        map_lines: Group with ``points``, ``num_points``.
        ego: Group with ``ego_from_reference``; and optionally ``velocity``, ``command``.
        ego_history: Group with ``positions`` of the vehicle in its own frame, and optionally ``times``,
            ``is_known``, ``velocities``, ``commands``.
        ego_future: Likewise.
        lens: Group of a camera with the values of an `FThetaLens`.
    """

    cameras: str = "cameras"
    image: str = "image"
    frames: str = "frames"
    name: str = "name"
    intrinsics: str = "intrinsics"
    camera_from_reference: str = "camera_from_reference"
    projection: str = "image_from_reference"
    boxes_2d: str = "boxes_2d"
    heatmap: str = "heatmap"
    boxes: str = "boxes"
    centers: str = "centers"
    sizes: str = "sizes"
    yaws: str = "yaws"
    velocities: str = "velocities"
    categories: str = "categories"
    lidar: str = "lidar"
    points: str = "points"
    map_lines: str = "map_lines"
    ego: str = "ego"
    ego_history: str = "ego_history"
    ego_future: str = "ego_future"
    lens: str = "lens"

    def __attrs_post_init__(self) -> None:
        """Check the names."""
        for field in attrs.fields(ViewFields):
            text(getattr(self, field.name), field.name)


class ViewSettings(TypedDict, total=False):
    """The settings of `scene_view` that say how samples are shown, for functions that pass them on."""

    fields: ViewFields | None
    class_names: Sequence[str]
    image_mean: Sequence[float] | float | None
    image_std: Sequence[float] | float | None
    windows: Windows | None


def scene_view(
    data: Shown,
    sample: int = 0,
    *,
    frame: int = -1,
    fields: ViewFields | None = None,
    class_names: Sequence[str] = (),
    image_mean: Sequence[float] | float | None = None,
    image_std: Sequence[float] | float | None = None,
    windows: Windows | None = None,
) -> SceneView:
    """Make a view of a sample, or of a sample of a batch. A view of a clip shows one frame.

    Args:
        data: A sample of a provider, or a batch of a loader.
        sample: Number of the sample in a batch.
        frame: Number of the frame in a clip; negative ones count from the end of each camera. Cameras that have
            fewer frames are left out.
        fields: Names of the fields.
        class_names: Names of the categories of boxes.
        image_mean: Mean that was subtracted from the channels of a normalized image.
        image_std: Standard deviation by which the channels were divided. Without mean and deviation, the least
            value becomes black and the greatest one white if values are below 0 or above 255.
        windows: The `Windows` of the sample. Their offsets say which frame of a camera is at the moment of the
            boxes; without them, the field ``timestamp`` of the camera is compared, if it has a time for each
            frame.

    Raises:
        SettingError: There is nothing that can be shown, or a field cannot be shown.
    """
    fields = fields or ViewFields()
    if windows is not None:
        instance(windows, "windows", Windows)
    offsets, whole = _offsets(windows), _plain(data, sample)
    num_frames = _count_frames(whole, fields)
    if num_frames or frame != -1:
        index_in(frame + num_frames if frame < 0 else frame, "frame", max(num_frames, 1))
    frames = _groups(whole, fields.frames)
    tree = frames[frame] if frames else whole
    mean, std = _channels(image_mean, "image_mean"), _channels(image_std, "image_std")
    ego_from_reference = _array(tree, fields.ego, "ego_from_reference")
    ahead = np.array([1.0, 0.0]) if ego_from_reference is None else ego_from_reference[0, :2]
    ahead = ahead / np.linalg.norm(ahead)
    boxes, why_none = _boxes(tree, fields, offsets)
    reader = _CameraReader(fields, mean, std, ahead, _scalar(tree, "timestamp"), offsets)
    cameras = []
    for label, camera in _cameras(tree, fields).items():
        count = _frames_of_camera(camera, fields)
        if not count or -count <= frame < count:
            view = reader.view(label, camera, frame % count if count else frame)
            is_without = len(boxes.get("centers", ())) and view.image_from_reference is None and view.lens is None
            note = why_none or (_WITHOUT_BOXES[view.is_of_other_time] if is_without else "")
            cameras.append(attrs.evolve(view, note=note))
    points = _array(tree, fields.lidar, fields.points)
    ways = [_path(tree, name, ego_from_reference) for name in (fields.ego_history, fields.ego_future)]
    if not cameras and not boxes and not why_none and points is None and ways == [None, None]:
        raise _nothing_to_show(tree, fields)
    return SceneView(
        title=_title(tree) or _title(whole),
        cameras=cameras,
        class_names=tuple(class_names),
        points=np.zeros((0, 3)) if points is None else points[:, :3],
        lines=_lines(tree, fields),
        ahead=ahead,
        timestamp=reader.moment,
        motion=_motion(tree, fields),
        history=ways[0],
        future=ways[1],
        **boxes,
    )


def _nothing_to_show(tree: _Tree, fields: ViewFields) -> SettingError:
    names = [*map(str, tree)]
    if "img" in names or "input" in names:
        return SettingError(
            "Batches of recipes have names of their own: `show(batch_view(batch, settings))` draws them, with "
            "`batch_view` of `recipes` and the settings of the recipe."
        )
    return SettingError(
        f"There is nothing to show: no field {shown(fields.cameras)}, {shown(fields.boxes)} or "
        f"{shown(fields.lidar)}. There are: {', '.join(map(shown, names))}."
        f"{did_you_mean(fields.cameras, names)} Give their names: `fields=ViewFields(cameras=...)`."
    )


def _path(tree: _Tree, name: str, ego_from_reference: Array | None) -> EgoPath | None:
    """Places of the vehicle that are known, in the reference frame; None where there are none."""
    positions, times, is_known = (_array(tree, name, field) for field in ("positions", "times", "is_known"))
    if positions is None:
        return None
    kept = np.ones(len(positions), bool) if is_known is None else is_known.astype(bool)
    xyz = np.zeros((len(positions), 3))
    xyz[:, : positions.shape[1]] = positions
    if ego_from_reference is not None:  # its inverse, a rigid motion
        xyz = (xyz - ego_from_reference[:3, 3]) @ ego_from_reference[:3, :3]
    return EgoPath(positions=xyz[kept], times=None if times is None else times[kept])


def _motion(tree: _Tree, fields: ViewFields) -> str:
    """Speed and command, as far as they are known; of a history, the last ones."""

    def known(name: str, names: str) -> Array | None:
        value, values = _array(tree, fields.ego, name), _array(tree, fields.ego_history, names)
        return values[-1] if value is None and values is not None else value

    velocity, command = known("velocity", "velocities"), known("command", "commands")
    speed = [] if velocity is None else [f"{np.linalg.norm(velocity):.1f} m/s"]
    return "   ".join([*speed, *([] if command is None else [_command(command)])])


def _command(command: Array) -> str:
    """A command as it is: text, a number, or one of several that is 1."""
    if command.dtype.kind not in "iufb":
        return f"command {command}"
    if command.dtype == np.uint8:
        return f"command {decoded(command)}"
    return f"command {int(command.argmax() if command.size > 1 else command.item())}"


def _boxes(
    tree: _Tree, fields: ViewFields, offsets: Mapping[str, Sequence[float]]
) -> tuple[dict[str, Array], str]:
    """The fields of a `SceneView` about boxes that are there, none without centers; and why there are none.

    From windows that are listed, the boxes of the moment are taken.
    """
    names, boxes = ("centers", "sizes", "yaws", "velocities", "categories"), dict[str, Array]()
    for name in names:
        place: tuple[Any, ...] = (fields.boxes, getattr(fields, name))
        frames = _groups(tree.get(fields.boxes) or {}, place[1])
        if frames:
            known = [*offsets.get(format_paths([place]), ())]
            if 0 not in known:
                rule = "none of them at the moment" if known else "give `windows`"
                return {}, f"(no boxes: {format_paths([place])} has {len(frames)} frames, {rule})"
            place = (*place, known.index(0))
        values = _array(tree, *place)
        if values is not None:
            boxes[name] = values
    if "centers" not in boxes:
        return {}, ""
    rows = {f"{fields.boxes}.{getattr(fields, name)}": len(values) for name, values in boxes.items()}
    if len({*rows.values()}) > 1:
        counts = ", ".join(f"{count} in {name}" for name, count in rows.items())
        raise SettingError(
            f"The fields of boxes must have a row for each box, got {counts}. A step that drops or adds boxes "
            f"must do so in all of their fields."
        )
    # Batches may be padded with what is no box.
    is_box = (boxes["sizes"] > 0).all(axis=1) if "sizes" in boxes else np.ones(len(boxes["centers"]), bool)
    boxes = {name: values[is_box] for name, values in boxes.items()}
    boxes.setdefault("sizes", np.ones_like(boxes["centers"]))
    boxes.setdefault("yaws", np.zeros(len(boxes["centers"])))
    if "velocities" in boxes:
        boxes["velocities"] = boxes["velocities"][:, :2]
    if "categories" in boxes:
        boxes["categories"] = boxes["categories"].astype(np.int64)
    return boxes, ""


def frames_of(data: Shown, sample: int = 0, fields: ViewFields | None = None) -> list[int]:
    """Get the numbers of the frames of a clip to show, at most 16 of them; of what is no clip, only -1."""
    number = _count_frames(_plain(data, sample), fields or ViewFields())
    return np.unique(np.linspace(0, number - 1, min(number, _MOST_FRAMES)).astype(int)).tolist() or [-1]


# --- fields ---------------------------------------------------------------------------------------------


_Tree: TypeAlias = dict[Any, Any]


def _plain(data: Shown, sample: int) -> _Tree:
    """A sample, or one of a batch, as nested dicts."""
    if isinstance(data, SampleDataGroup):
        return cast(_Tree, _taken(data, None))
    if isinstance(data, Mapping):
        index_in(sample, "sample", max(_lengths(data), default=0))
        return cast(_Tree, _taken(data, sample))
    rule = "A sample (`provider.get_data(0)`) or a batch (`next(iter(loader))`) is needed"
    raise SettingError(f"{rule}, got {type(data).__name__}.")


def _taken(value: Any, number: int | None) -> Any:
    """Groups as dicts, and of each value in them one element; None where there are fewer."""
    if isinstance(value, SampleDataGroup):
        return {name: _taken(value[name], number) for name in value.format.names}
    if isinstance(value, Mapping):
        return {name: _taken(one, number) for name, one in value.items()}
    if number is None or not _is_sequence(value):
        return value
    return value[number] if number < len(value) else None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, list | tuple) or getattr(value, "ndim", 0) > 0


def _lengths(group: Mapping[Any, Any]) -> list[int]:
    """Numbers of elements of the values in a group, and in the groups in it."""
    nested = [_lengths(value) for value in group.values() if isinstance(value, Mapping)]
    return [*(len(value) for value in group.values() if _is_sequence(value)), *chain.from_iterable(nested)]


def _value(tree: _Tree, *path: Any) -> Any:
    """A field; None where there is none, or a group."""
    value: Any = tree
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return None if isinstance(value, dict) else value


def _array(tree: _Tree, *path: Any) -> Array | None:
    """A field as an array, or None; encoded frames of a window or sequence as their pixels."""
    files: Any = tree
    for name in (*path, ENCODED_NAME):
        files = files.get(name) if isinstance(files, dict) else None
    if isinstance(files, dict):
        frames = [_decoded(np.asarray(_pulled(file)), ".".join(map(str, path))) for file in files.values()]
        return np.stack(frames)
    value = _value(tree, *path)
    return None if value is None else np.asarray(_pulled(value))


def _pulled(value: Any) -> Any:
    return value.detach().cpu() if hasattr(value, "detach") else value


def _scalar(tree: _Tree, name: str) -> float | None:
    value = _array(tree, name)
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _text(tree: _Tree, name: str) -> str | None:
    value = _value(tree, name)
    if value is None or isinstance(value, str):
        return value
    value = np.asarray(value)
    return str(decoded(value)) if value.dtype == np.uint8 else str(value)


def _groups(tree: _Tree, name: str) -> list[_Tree]:
    """The elements of an array of groups."""
    array = tree.get(name)
    if not isinstance(array, dict) or not all(isinstance(number, int) for number in array):
        return []
    return [one if isinstance(one, dict) else {} for one in array.values()]


def _elements(tree: _Tree, name: str) -> list[_Tree]:
    """The elements of an array of groups, also where each of its fields is stacked."""
    stacked = tree.get(name)
    if _groups(tree, name) or not isinstance(stacked, dict):
        return _groups(tree, name)
    return [_taken(stacked, each) for each in range(max(_lengths(stacked), default=0))]


def _title(tree: _Tree) -> str:
    scene, frame, token = _text(tree, "scene"), _scalar(tree, "frame"), _text(tree, "token")
    episode, task = _scalar(tree, "episode_index"), _text(tree, "task")
    frame = _scalar(tree, "frame_index") if frame is None else frame
    parts = [scene, None if episode is None else f"episode {int(episode)}"]
    parts += [None if frame is None else f"frame {int(frame)}", None if token is None else f"token {token}", task]
    return "   ".join(part for part in parts if part)


def _lines(tree: _Tree, fields: ViewFields) -> list[Array]:
    points, counts = _array(tree, fields.map_lines, "points"), _array(tree, fields.map_lines, "num_points")
    if points is None or counts is None:
        return []
    return np.split(points, np.cumsum(counts)[:-1]) if len(counts) else []


# --- cameras --------------------------------------------------------------------------------------------


def _cameras(tree: _Tree, fields: ViewFields) -> dict[str, _Tree]:
    """The cameras by their labels: the elements of their array, or groups with an image, or the sample itself."""
    cameras = _elements(tree, fields.cameras)
    if cameras:
        return {f"{fields.cameras}[{number}]": camera for number, camera in enumerate(cameras)}
    found = {}
    for name, camera in [*((str(name), one) for name, one in tree.items()), ("", tree)]:
        if _array(camera, fields.image) is not None:
            found[name] = camera
        elif name.startswith(_IMAGES) and not name.endswith(_MASK):
            image = {fields.image: camera, fields.image + _MASK: tree.get(name + _MASK)}
            found[name.removeprefix(f"{_IMAGES}s.")] = image
    return found


def _count_frames(tree: _Tree, fields: ViewFields) -> int:
    """Number of frames of a clip; 0 of a single frame."""
    own = len(_groups(tree, fields.frames))
    return own or max([_frames_of_camera(each, fields) for each in _cameras(tree, fields).values()], default=0)


def _frames_of_camera(camera: _Tree, fields: ViewFields) -> int:
    """Number of frames of a camera of a clip; 0 of a single image."""
    image = _array(camera, fields.image)
    return len(image) if image is not None and image.ndim == 4 else 0


def bearing_of(projection: Array, ahead: Array) -> float:
    """Where a camera looks, radians to the left of ahead, by its projection matrix."""
    axis = projection[2, :2]  # depth grows along it
    return float(np.arctan2(ahead[0] * axis[1] - ahead[1] * axis[0], ahead @ axis))


@attrs.frozen(eq=False)
class _CameraReader:
    """Makes views of the cameras of a sample.

    Attributes:
        fields: Names of the fields.
        mean: Mean of the channels of normalized images, or None.
        std: Their standard deviation, or None.
        ahead: Where the vehicle looks.
        moment: Time of the sample, or None.
        offsets: Offsets of windows, by the fields as messages write them.
    """

    fields: ViewFields
    mean: Array | None
    std: Array | None
    ahead: Array
    moment: float | None
    offsets: Mapping[str, Sequence[float]]

    def view(self, label: str, camera: _Tree, frame: int) -> CameraView:
        """Get the view of a camera, of one frame of a clip."""
        fields = self.fields
        image = _array(camera, fields.image)
        if image is None:
            what = f"{label} has no image {shown(fields.image)}"
            raise SettingError(f"{what}. Give its name: `fields=ViewFields(image=...)`.")
        path = f"{label}.{fields.image}".lstrip(".")
        names = (fields.projection, fields.intrinsics, fields.camera_from_reference)
        matrices = [_array(camera, name) for name in names]
        # Matrices are those of all frames of a window, or of the moment of the sample alone, as boxes are.
        is_now: bool | None = image.ndim < 4 or any(each is not None and each.ndim == 3 for each in matrices[::2])
        if not is_now:
            is_now = self._is_of_moment(path, frame, len(image), _array(camera, "timestamp"))
        picture = _picture(image[frame] if image.ndim == 4 else image, path, self.mean, self.std)
        projection, intrinsics, extrinsics = (
            each[frame] if each is not None and each.ndim == 3 else each for each in matrices
        )
        if projection is None and intrinsics is not None and extrinsics is not None:
            projection = intrinsics[:3, :3].astype(np.float64) @ extrinsics[:3].astype(np.float64)
        if not is_now:
            projection = extrinsics = None
        lens = {name: _array(camera, fields.lens, name) for name in ("image_wh", "center", "forward", "backward")}
        boxes_2d = _array(camera, fields.boxes_2d, "boxes")
        boxes_2d = _array(camera, fields.boxes_2d) if boxes_2d is None else boxes_2d
        heatmap, is_pad = _array(camera, fields.heatmap), _array(camera, fields.image + _MASK)
        padded = "  padded" * bool(is_pad is not None and is_pad[frame])
        return CameraView(
            name=(_text(camera, fields.name) or label) + padded,
            image=picture,
            lens=_lens(lens, picture) if extrinsics is not None else None,
            camera_from_reference=None if extrinsics is None else extrinsics[:3].astype(np.float64),
            image_from_reference=None if projection is None else projection[:3],
            boxes_2d=boxes_2d if boxes_2d is None else boxes_2d.reshape(-1, 4),
            heatmap=None if heatmap is None else heatmap.max(axis=0) if heatmap.ndim == 3 else heatmap,
            bearing=None if projection is None else bearing_of(projection, self.ahead),
            is_of_other_time=None if is_now is None else not is_now,
        )

    def _is_of_moment(self, path: str, frame: int, count: int, times: Array | None) -> bool | None:
        """Whether a frame of a window is of the time of its sample; None where neither offsets nor times say."""
        known = self.offsets.get(path, ())
        if len(known) == count:
            return known[frame] == 0
        if self.moment is None or times is None or times.shape != (count,):
            return None
        off, intervals = np.abs(times - self.moment), np.diff(np.unique(times))
        # The nearest of frames that are all of other times is farther off than frames are apart.
        return bool(off[frame] <= min(off.min(), (intervals.min() if len(intervals) else 0) / 2) + _SAME_S)


def _offsets(windows: DataProvider | None) -> dict[str, Sequence[float]]:
    """Offsets of the windows, and of those that they wrap, by the fields as messages write them."""
    if not isinstance(windows, Windows):
        return {}
    own = {format_paths([path]): offsets for path, offsets in windows.windows.items()}
    return _offsets(windows.data_provider) | own


def _lens(values: Mapping[str, Array | None], picture: Array) -> FThetaLens | None:
    """The lens of a camera as it is for its picture; None where it is not known."""
    known = {name: value for name, value in values.items() if value is not None and np.isfinite(value).all()}
    return FThetaLens(**known).resized(picture.shape[1::-1]) if len(known) == len(values) else None


def _channels(value: Sequence[float] | float | None, name: str) -> Array | None:
    what = "a number, or one for each of the three channels"
    return None if value is None else np.array(number_list(value, name, what, may_be_one=True), np.float64)


def _picture(image: Array, path: str, mean: Array | None, std: Array | None) -> Array:
    """Make an ``(H, W, 3)`` uint8 picture of a file, or of pixels."""
    if image.ndim == 1 and image.dtype == np.uint8:
        return _decoded(image, path)
    if image.ndim == 3 and image.shape[0] in (1, 3) and image.shape[2] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.ndim != 3 or image.shape[2] not in (1, 3):
        rule = f"{path}: must be the bytes of a file, or an image with one or three channels"
        raise SettingError(f"{rule}, got {image.dtype} {image.shape}.")
    if image.dtype != np.uint8:
        values = image.astype(np.float64)
        if mean is not None or std is not None:
            values = values * (1 if std is None else std) + (0 if mean is None else mean)
        elif values.min() < 0 or values.max() > 255:  # normalized in a way that is not known
            values = (values - values.min()) / max(np.ptp(values), 1e-9) * 255
        elif values.max() <= 1:
            values = values * 255
        image = np.rint(values).clip(0, 255).astype(np.uint8)
    return np.ascontiguousarray(np.broadcast_to(image, (*image.shape[:2], 3)))


def _decoded(content: Array, path: str) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        what = "Encoded images are shown with Pillow"
        raise SettingError(f"{what}, which is not installed: pip install pillow.") from error
    try:
        with Image.open(io.BytesIO(content.tobytes())) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError) as error:
        raise SettingError(f"{path}: cannot be decoded: {error}") from error
