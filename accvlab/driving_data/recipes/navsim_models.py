# SPDX-License-Identifier: Apache-2.0
"""The data of models in NAVSIM: TransFuser, and the baseline that sees nothing but the state of the vehicle.

TransFuser takes a panorama, a histogram of the lidar, states, and a map as one raster of classes, seen from above.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Protocol, cast, runtime_checkable

import attrs
import numpy as np
import numpy.typing as npt
from attrs.validators import optional

from accvlab.dali_pipeline_framework import ImageMeanStdDevNormalizer, SampleDataGroup, checks
from accvlab.dali_pipeline_framework.checks import listed, shown, valid
from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    DECODED_IMAGE,
    decoded,
    image_arrays,
    naming_field,
    needed_package,
)
from accvlab.dali_pipeline_framework.sample_data import GroupFormat, LeafFormat
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..datasets import DrivingProvider
from ..datasets.driving.array_types import Bool, Float32, UInt8
from ..datasets.driving.driving_fields import DrivingFieldSettings
from ..datasets.navsim.navsim_provider import NavsimProvider, planar_poses, seen_from
from ..datasets.navsim.scene_filter import SceneFilter
from ..viewing.pictures import box_corners
from . import recipe_parts as parts
from .image_augmentation import output_size
from .recipe import FrameQueues, Recipe
from .recipe_parts import DT

_LINE_WIDTH_PX = 2


@runtime_checkable
class MapSource(Protocol):
    """Where a recipe gets a map from: an object of yours with this method. It is copied to the workers."""

    def objects_near(
        self, map_name: str, layer: str, kind: str, center: tuple[float, float], radius: float
    ) -> Iterable[npt.ArrayLike]:
        """Get the shapes of the objects of a layer that touch a circle.

        Args:
            map_name: Name of the map: ``"us-nv-las-vegas-strip"``.
            layer: Name of the layer: ``"LANE"``, ``"INTERSECTION"``, ``"WALKWAYS"``, ``"LANE_CONNECTOR"``.
            kind: ``"polygon"``: the outlines of areas; ``"line"``: the center lines.
            center: x and y, meters, in the world.
            radius: Meters.

        Returns:
            Points of each shape, ``(n, 2)``, meters, in the world.
        """


def _layers(value: object, name: str) -> None:
    if not checks.field_names(value, name) or isinstance(value, str | int):
        raise checks.setting_error(name, "a list of names", value)


@attrs.frozen
class RasterClass:
    """Map objects that are painted as one class.

    Attributes:
        kind: ``"polygon"`` or ``"line"``, of the map; or ``"box"``.
        names: Layers of the map, or categories of boxes.
    """

    kind: str = attrs.field(validator=valid(checks.choice, allowed=("polygon", "line", "box")))
    names: Sequence[str] = attrs.field(validator=valid(_layers))


def raster_class_list(value: object, name: str) -> None:
    """Refuse what are not classes of a raster."""
    classes = checks.elements(value)
    if not classes or not all(isinstance(one, RasterClass) for one in classes):
        raise checks.setting_error(name, "a list of `RasterClass`, at least one", value)


def paint(
    raster: npt.NDArray[np.uint8],
    shapes: Iterable[npt.ArrayLike],
    number: int,
    cell_size: float,
    *,
    is_line: bool = False,
) -> None:
    """Paint shapes ``(n, 2)``, x ahead and y to the left, meters, over a raster ``(cells ahead, cells across)``.

    Corners are rounded to whole cells of a size in meters, towards 0, and then filled, or joined by lines of two
    cells.
    """
    cv2 = needed_package("cv2")
    mask = np.zeros(raster.shape[::-1], np.uint8)
    for shape in shapes:
        cells = np.asarray(shape, np.float64) / cell_size + [0, raster.shape[1] / 2]
        corners = np.clip(cells, -_FAR_PX, _FAR_PX).astype(np.int32)[:, np.newaxis]
        if is_line:
            cv2.polylines(mask, [corners], isClosed=False, color=1, thickness=_LINE_WIDTH_PX)
        else:
            cv2.fillPoly(mask, [corners], color=1)
    raster[mask.T > 0] = number


# OpenCV takes no coordinates beyond 16 bits, and some.
_FAR_PX = 1 << 24


CROPS: Mapping[str, tuple[int, int, int, int]] = MappingProxyType(
    {"CAM_L0": (28, 28, 416, 416), "CAM_F0": (28, 28, 0, 0), "CAM_R0": (28, 28, 416, 416)}
)
"""Cameras of the panorama, from left to right: rows and columns left out at top, bottom, left and right."""

_SEEN_FROM_ABOVE = [0, 1, 5, 4]  # of eight corners, the upper ones, one after the other

RASTER_CLASSES = (
    RasterClass("polygon", ("LANE", "INTERSECTION")),
    RasterClass("polygon", ("WALKWAYS",)),
    RasterClass("line", ("LANE", "LANE_CONNECTOR")),
    RasterClass("box", ("traffic_cone", "barrier", "czone_sign", "generic_object")),
    RasterClass("box", ("vehicle",)),
    RasterClass("box", ("pedestrian",)),
)
"""Classes 1, 2, ... of the map seen from above; later ones are painted over earlier ones."""


@attrs.frozen(kw_only=True)
class TransFuserSettings(parts.RecipeSettings):
    """The settings of NAVSIM's ``TransfuserConfig``; the defaults are its own.

    Batches, of B scenes::

        features
            camera_feature      (B, 3, H, W) float32      RGB in [0, 1], of the images side by side
            lidar_feature       (B, 1 or 2, X, Y) float32 points of each cell / `max_points`, at most 1
            status_feature      (B, 8) float32            command (4), velocity (2, m/s), acceleration (2, m/s^2)
        targets
            trajectory          (B, poses, 3) float64     x, y, heading, each 0.5 s; meters, radians
            agent_states        (B, agents, 5) float32    x, y, heading, length, width: in the vehicle's frame
            agent_labels        (B, agents) bool          whether there is one
            bev_semantic_map    (B, X / 2, Y) float32     with `maps`: number of the class
        token, scene            B texts
        place                   position of the sample

    In evaluation, targets depend on the provider: the trajectory, if scenes have at least ``num_poses`` future
    frames; agents and map, if it has boxes.

    Attributes:
        crops: Cameras of the panorama, from left to right, and for each the rows and columns left out at top,
            bottom, left and right.
        output_hw: Height and width of the panorama.
        num_poses: Poses of the trajectory, 0.5 s apart.
        range_m: Extent of the cells ahead, back, and to both sides, meters.
        cells_per_meter: Number of cells per meter along each axis.
        max_points: Largest number of points of a cell that count.
        split_height: Height above which points are counted, meters.
        max_height: Height from which on points are not counted, meters.
        uses_ground: Whether there is a channel, the first one, for points up to ``split_height``.
        num_agents: Largest number of agents; the nearest ones are kept.
        agent_category: Category of boxes that are agents.
        maps: Where the map comes from; None: there is no ``bev_semantic_map``.
        raster_classes: Classes 1, 2, ... of the map seen from above; later ones are painted over earlier ones.
    """

    model = "TransFuser"
    crops: Mapping[str, tuple[int, int, int, int]] = parts.mapping_setting(CROPS)
    output_hw: tuple[int, int] = parts.setting((256, 1024), output_size)
    num_poses: int = parts.setting(8, checks.whole_number, at_least=1)
    range_m: float = parts.setting(32.0, checks.number, above=0)
    cells_per_meter: float = parts.setting(4.0, checks.number, above=0)
    max_points: int = parts.setting(5, checks.whole_number, at_least=1)
    split_height: float = parts.setting(0.2, checks.number)
    max_height: float = parts.setting(100.0, checks.number)
    uses_ground: bool = parts.setting(False, checks.flag)
    num_agents: int = parts.setting(30, checks.whole_number, at_least=1)
    agent_category: str = parts.setting("vehicle", checks.text)
    maps: MapSource | None = attrs.field(default=None, validator=optional(valid(checks.instance, cls=MapSource)))
    raster_classes: Sequence[RasterClass] = parts.setting(RASTER_CLASSES, raster_class_list)

    def __attrs_post_init__(self) -> None:
        """Refuse ranges that do not end where cells do."""
        reach = self.range_m * self.cells_per_meter
        if reach != round(reach):
            raise SettingError(
                f"`range_m` times `cells_per_meter` must be a whole number of cells, got {self.range_m:g} times "
                f"{self.cells_per_meter:g}."
            )

    @property
    def num_cells(self) -> int:
        """Cells of the histogram along each axis."""
        return round(2 * self.range_m * self.cells_per_meter)

    def sensors(self, scene_filter: SceneFilter | None = None) -> dict[str, list[int]]:
        """Get the argument ``sensors`` of a `NavsimProvider`: the inputs of the model, in scenes of a filter."""
        current = (scene_filter or SceneFilter()).num_history_frames - 1
        return {name: [current] for name in (*self.crops, "LIDAR_PC")}

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Other settings of a `NavsimProvider`."""
        return {"boxes": True} if is_training else {}


def navsim_provider(frames: DrivingProvider, settings: Any, is_training: bool) -> NavsimProvider:
    """The `NavsimProvider` that a recipe was given, if its scenes are long enough.

    Raises:
        SettingError: It is another provider, or has too few frames.
    """
    if not isinstance(frames, NavsimProvider):
        raise SettingError(
            f"{settings.model} takes a NavsimProvider, got {type(frames).__name__}: frames of other data have no "
            f"`ego_history` with commands."
        )
    has = frames.scene_filter.num_future_frames
    if is_training and has < settings.num_poses:
        raise SettingError(
            f"{settings.model} learns {settings.num_poses} poses, but scenes have {has} future frames: give the "
            f"provider `SceneFilter(num_future_frames={settings.num_poses})`, or the recipe "
            f"`{type(settings).__name__}(num_poses={has})`."
        )
    return frames


def lidar_histogram(points: Float32, settings: TransFuserSettings) -> Float32:
    """Points in each cell: ``(1 or 2, X, Y)``; those on the far edges are in the last cells."""
    num_cells, (x, y, z) = settings.num_cells, points.T[:3]
    is_near = np.abs(x) <= settings.range_m
    is_near &= np.abs(y) <= settings.range_m
    is_near &= z < settings.max_height
    is_above = z > settings.split_height
    shares = (np.arange(settings.max_points + 1) / settings.max_points).astype(np.float32)
    channels = []
    for is_in in [is_near & ~is_above] * settings.uses_ground + [is_near & is_above]:
        rows, cells = np.flatnonzero(is_in), np.zeros((), np.int64)
        for axis in (x, y):
            place = np.multiply(axis[rows], settings.cells_per_meter, dtype=np.float64)
            place = np.minimum(np.floor(place, out=place).astype(np.int64) + num_cells // 2, num_cells - 1)
            cells = cells * num_cells + place
        counts = np.bincount(cells, minlength=num_cells**2)
        channels.append(shares.take(counts, mode="clip").reshape(num_cells, num_cells))
    return np.stack(channels)


class TransFuserFormatter(parts.FrameFormatter):
    """Makes features and targets of a sample of a `NavsimProvider`; the panorama is still uint8, channels last."""

    _settings: TransFuserSettings

    @explains_unknown_arguments
    def __init__(self, request: parts.Request) -> None:
        """Create the step for the settings and data of a recipe; its extra fields stay as they are.

        Raises:
            SettingError: The provider lacks a sensor, or its current frame.
        """
        super().__init__(request)
        settings = request.settings
        provider = navsim_provider(request.frames, settings, request.is_training)
        missing = [
            name if name not in provider.camera_names else f"{name} at the current frame"
            for name in settings.crops
            if name not in provider.current_cameras
        ]
        missing += ["LIDAR_PC"] * (not provider.fields.lidar)
        if missing:
            raise SettingError(
                f"TransFuser needs sensors that {provider!r} does not load: {listed(missing)}. Give it "
                f"`sensors={settings.sensors(provider.scene_filter)}`."
            )
        self._reduction = 4 if request.reduced_decoding else 1
        self._class_names = provider.class_names
        self._map_of_log = dict(zip(provider.scene_names, provider.map_names, strict=True))
        self._has_poses = provider.scene_filter.num_future_frames >= settings.num_poses
        self._has_boxes = bool(provider.fields.boxes)
        self._has_map = self._has_boxes and settings.maps is not None

    def _fields(self, given: GroupFormat) -> tuple[parts.Fields, None]:
        fields: dict[str, Any] = dict(_FEATURE_FIELDS)
        if self._has_poses:
            fields["trajectory"] = (DT.FLOAT64, 2)
        if self._has_boxes:
            fields |= {"agent_states": (DT.FLOAT, 2), "agent_labels": (DT.BOOL, 1)}
        return {**fields, **({"bev_semantic_map": (DT.FLOAT, 2)} if self._has_map else {})}, None

    def _values(self, data: SampleDataGroup, cameras: Sequence[SampleDataGroup], draws: Draws) -> parts.Values:
        history, values = data["ego_history"], dict[str, Any]()
        with naming_field(("cameras",)):
            values["camera_feature"] = self._panorama(cameras)
        with naming_field(("lidar", "points")):
            values["lidar_feature"] = lidar_histogram(data["lidar"]["points"], self._settings)
        status = [history[name][-1] for name in ("commands", "velocities", "accelerations")]
        values["status_feature"] = np.concatenate(status)
        if self._has_poses:
            values["trajectory"] = data["ego_future"]["poses"][: self._settings.num_poses]
        if self._has_boxes:
            values["agent_states"], values["agent_labels"] = self._agents(data["boxes"])
        if self._has_map:
            values["bev_semantic_map"] = self._raster(data)
        return values, ()

    # --- features ---------------------------------------------------------------------------------------

    def _panorama(self, cameras: Sequence[SampleDataGroup]) -> UInt8:
        """Current images, each cut, side by side, resized as OpenCV does it without antialiasing.

        Each image is resized before the next one is decoded: pixels are still in the cache, and memory is reused.
        """
        crops, (height, width) = self._settings.crops, self._settings.output_hw
        file_of = {decoded(camera["name"]): camera["image"] for camera in cameras}  # the last is the current
        sizes = {name: self._size_of_cut(name, file_of[name], crop) for name, crop in crops.items()}
        if len({size[0] for size in sizes.values()}) > 1:
            got = listed(f"{name} {size}" for name, size in sizes.items())
            raise FieldValueError(f"images must have one height when they are cut by `crops`, got {got}")
        resize, total = needed_package("cv2").resize, sum(size[1] for size in sizes.values())
        images = (self._cut(name, file_of[name], crop) for name, crop in crops.items())
        if any(size[1] * width % total for size in sizes.values()):
            joined = np.concatenate([*images], axis=1)
            return joined if joined.shape[:2] == (height, width) else np.asarray(resize(joined, (width, height)))
        panorama, first = np.empty((height, width, 3), np.uint8), 0
        for image in images:
            own = image.shape[1] * width // total
            part = panorama[:, first : first + own]
            part[:] = image if image.shape[:2] == (height, own) else resize(image, (own, height))
            first += own
        return panorama

    def _size_of_cut(self, name: str, encoded: UInt8, crop: Sequence[int]) -> tuple[int, int]:
        with self._naming(name):
            height, width = (-(-size // self._reduction) for size in image_arrays.image_size(encoded))
        top, bottom, left, right = (size // self._reduction for size in crop)
        size = height - top - bottom, width - left - right
        if min(size) <= 0:
            raise FieldValueError(
                f"image of {name}: nothing is left of {height} x {width} pixels by `crops` {tuple(crop)}; the "
                f"default is for images of 1080 x 1920"
            )
        return size

    def _cut(self, name: str, encoded: UInt8, crop: Sequence[int]) -> UInt8:
        with self._naming(name):
            image = image_arrays.decoded_image(encoded, reduction=self._reduction)
        top, bottom, left, right = (size // self._reduction for size in crop)
        height, width = image.shape[:2]
        return image[top : height - bottom, left : width - right]

    @staticmethod
    @contextmanager
    def _naming(camera: str) -> Iterator[None]:
        try:
            yield
        except FieldValueError as error:
            raise FieldValueError(f"image of {camera}: {error}") from error

    # --- targets ----------------------------------------------------------------------------------------

    def _of_category(self, boxes: SampleDataGroup, names: Sequence[str]) -> Bool:
        numbers = [number for number, name in enumerate(self._class_names) if name in names]
        return np.isin(boxes["categories"], numbers)

    def _agents(self, boxes: SampleDataGroup) -> tuple[Float32, Bool]:
        """The nearest agents in range, by distance."""
        settings = self._settings
        centers = boxes["centers"][:, :2]
        is_in = self._of_category(boxes, [settings.agent_category]) & (np.abs(centers) <= settings.range_m).all(
            axis=1
        )
        found = np.column_stack([centers, boxes["yaws"], boxes["sizes"][:, :2]])[is_in]
        nearest = np.argsort(np.linalg.norm(found[:, :2], axis=1))[: settings.num_agents]
        states = np.zeros((settings.num_agents, 5), np.float32)
        states[: len(nearest)] = found[nearest]
        return states, np.arange(settings.num_agents) < len(nearest)

    def _raster(self, data: SampleDataGroup) -> UInt8:
        settings, boxes = self._settings, data["boxes"]
        cells, cell_size, maps = settings.num_cells, 1 / settings.cells_per_meter, cast(MapSource, settings.maps)
        raster = np.zeros((cells // 2, cells), np.uint8)
        origin = planar_poses(data["ego"]["world_from_ego"])
        map_name, center = self._map_of_log[str(decoded(data["scene"]))], (float(origin[0]), float(origin[1]))
        corners = box_corners(boxes["centers"], boxes["sizes"], boxes["yaws"])[:, _SEEN_FROM_ABOVE, :2]
        for number, one in enumerate(settings.raster_classes, start=1):
            if one.kind == "box":
                paint(raster, corners[self._of_category(boxes, one.names)], number, cell_size)
                continue
            shapes = []
            for layer in one.names:
                for shape in maps.objects_near(map_name, layer, one.kind, center, settings.range_m):
                    points = np.asarray(shape, np.float64)
                    if points.ndim != 2 or points.shape[1] != 2 or not np.isfinite(points).all():
                        raise FieldValueError(
                            f"{type(maps).__name__}.objects_near({map_name!r}, {layer!r}, {one.kind!r}, ...) must "
                            f"give points (n, 2), finite, for each shape, got {shown(shape)}"
                        )
                    planar = np.column_stack([points, np.zeros(len(points))])
                    shapes.append(seen_from(origin, planar)[:, :2])
            paint(raster, shapes, number, cell_size, is_line=one.kind == "line")
        return raster


def _chain(request: parts.Request) -> parts.Chain:
    normalizer = ImageMeanStdDevNormalizer("camera_feature", [0.0] * 3, [255.0] * 3, output_layout="CHW")
    return parts.Chain([TransFuserFormatter(request)], [], [normalizer])


_FEATURE_FIELDS: parts.Fields = {
    "camera_feature": LeafFormat(DT.UINT8, ndim=3, content=DECODED_IMAGE),
    "lidar_feature": (DT.FLOAT, 3),
    "status_feature": (DT.FLOAT, 1),
}
_FEATURES = ("camera_feature", "lidar_feature", "status_feature", "ego_status")
_TARGETS = ("trajectory", "agent_states", "agent_labels", "bev_semantic_map")


def agent_batch(batch: parts.Batch) -> parts.Batch:
    """Bring a batch into the form of NAVSIM: features, targets, and the rest as it is."""
    rest = {name: value for name, value in batch.items() if name not in (*_FEATURES, *_TARGETS)}
    features = {name: batch[name] for name in _FEATURES if name in batch}
    return {"features": features, "targets": {name: batch[name] for name in _TARGETS if name in batch}, **rest}


TRANSFUSER = Recipe(settings=TransFuserSettings, chain=_chain, as_batch=agent_batch)
"""The recipe of TransFuser."""


@attrs.frozen(kw_only=True)
class EgoStatusSettings(parts.RecipeSettings):
    """The settings for NAVSIM's ``EgoStatusMLPAgent``; the defaults are its own.

    Batches, of B scenes::

        features
            ego_status      (B, 8) float32           velocity (2), acceleration (2), command (4)
        targets
            trajectory      (B, poses, 3) float64    x, y, heading, each 0.5 s
        token, scene        B texts
        place               position of the sample

    In evaluation, there is a trajectory if scenes have at least ``num_poses`` future frames.

    Attributes:
        num_poses: Poses of the trajectory, 0.5 s apart.
    """

    model = "EgoStatusMLP"
    num_poses: int = parts.setting(8, checks.whole_number, at_least=1)

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `NavsimProvider`: it needs none; ``sensors={}`` and ``boxes=False`` load nothing else."""
        return {}


class EgoStatusSamples(FrameQueues):
    """States and trajectories of the scenes of a `NavsimProvider`, computed for a batch at once."""

    _provider: NavsimProvider

    @explains_unknown_arguments
    def __init__(
        self, provider: NavsimProvider, settings: EgoStatusSettings, extra_fields: Sequence[str] = ()
    ) -> None:
        """Wrap the provider of the scenes. With extra fields, its whole samples are loaded as well."""
        super().__init__(provider, extra_fields)
        self._num_poses = settings.num_poses
        self._has_poses = settings.num_poses <= provider.scene_filter.num_future_frames

    def frames_of(self, sample_index: int) -> list[int]:
        """Numbers of the frames of a sample: the current one."""
        return [sample_index]

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a sample."""
        sample, given = SampleDataGroup(), self._provider.sample_data_structure.format
        fields: dict[str, Any] = {"ego_status": (DT.FLOAT, 1)}
        if self._has_poses:
            fields["trajectory"] = (DT.FLOAT64, 2)
        parts.add_fields(sample, {**fields, **{name: given.at((name,)) for name in self._kept}})
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one sample."""
        return next(self.load_batch([sample_index], [0]))

    @property
    def loads_batches(self) -> bool:
        """Always: those of a batch cost little more than one of them."""
        return True

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load samples."""
        history, future = self._provider.ego_columns(sample_indices).values()
        states = [history[name][:, -1] for name in ("velocities", "accelerations", "commands")]
        columns = [np.concatenate(states, axis=1).astype(np.float32)]
        if self._has_poses:
            columns.append(future["poses"][:, : self._num_poses])
        names, extra_fields = self._provider.names_of(sample_indices), self._kept[len(parts.NAMES) :]
        for row, sample_index in enumerate(sample_indices):
            sample = self.new_sample()
            values: list[Any] = [column[row] for column in columns]
            values += [np.frombuffer(name, np.uint8) for name in names[row]]
            given = self._provider.get_data(sample_index) if extra_fields else sample
            for value in (given[name] for name in extra_fields):
                values += value.get_data() if isinstance(value, SampleDataGroup) else [value]
            sample.set_data(values)
            yield sample


def _states_source(provider: NavsimProvider, settings: EgoStatusSettings, **of_samples: Any) -> EgoStatusSamples:
    navsim_provider(provider, settings, of_samples["is_training"])
    return EgoStatusSamples(provider, settings, of_samples["extra_fields"])


EGO_STATUS_MLP = Recipe(
    settings=EgoStatusSettings,
    chain=lambda request: parts.Chain([], [], []),
    as_batch=agent_batch,
    source=_states_source,
    can_reduce=False,
    needs_cameras=False,
)
"""The recipe of the baseline that sees nothing but the state of the vehicle."""
