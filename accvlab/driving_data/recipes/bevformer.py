# SPDX-License-Identifier: Apache-2.0
"""The data of BEVFormer: queues of frames with the motion of the vehicle between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from accvlab.dali_pipeline_framework import (
    DataProvider,
    ImageContent,
    ImageDecoder,
    PipelineStepBase,
    RandomAccessSampler,
    SampleDataGroup,
    checks,
    for_each,
)
from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    Description,
    Name,
    Order,
    PixelStep,
    PlannedSampler,
    ShuffledOrder,
    derive_key,
    image_size,
    leaf_at,
    needed_package,
    random_bits,
    zero_where_channels_fit,
)
from accvlab.dali_pipeline_framework.sample_data import LeafFormat
from accvlab.dali_pipeline_framework.sampling import LastBatch
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..datasets.driving import poses
from ..datasets.driving.array_types import Bool, Float64, Int64
from ..datasets.driving.driving_fields import DrivingFieldSettings
from . import recipe_parts as parts
from .image_augmentation import UnclippedPhotometricDistorter, on_gpu_if_any
from .recipe import FrameQueues, Recipe, scene_order
from .recipe_parts import DT, PLACE


def queue_frames(frame: int, left_out: int, queue_length: int, first_frame: int) -> list[int]:
    """Frames of a queue, the oldest first.

    Of the ``queue_length`` frames before ``frame`` one is left out; ``frame`` comes last. What would lie before
    ``first_frame`` is ``first_frame``.

    Args:
        frame: The frame that the queue leads to.
        left_out: Which of the frames before it is left out: 0 for the oldest.
        queue_length: Number of frames in the queue.
        first_frame: The first frame that may be in it.

    Example:
        >>> queue_frames(9, 1, 3, 0), queue_frames(9, 0, 3, 8)
        ([6, 8, 9], [8, 8, 9])
    """
    before = range(frame - queue_length, frame)
    return [max(each, first_frame) for place, each in enumerate(before) if place != left_out] + [frame]


def queue_states(
    can_bus: Float64, frames: list[int], scenes: list[int], *, emulates_reference: bool
) -> tuple[Float64, Bool]:
    """Make the differences from frame to frame of ``can_bus``.

    Columns 0..2, the place, and the last one, the heading in degrees, become differences to the frame before
    in the queue, and 0 where the memory begins: at the beginning of the queue and where another scene begins;
    and, unless the reference is emulated, at a frame that is repeated. Differences of headings are in [-180,
    180).

    Args:
        can_bus: ``(Q, 18)``, absolute.
        frames: Frame of each.
        scenes: Scene of each.
        emulates_reference: Whether to do as BEVFormer's code does: headings are not wrapped, and entries of
            the same frame are one array, which is changed once for each of them.

    Returns:
        ``can_bus`` with the differences, ``(Q, 18)``, and whether the memory of the frame before goes with each
        frame, ``(Q,)``.
    """
    has_memory = np.zeros(len(frames), bool)
    rows = can_bus.copy()
    # Entries that share memory have the number of the first one of the same frame.
    entry = [frames.index(frame) if emulates_reference else place for place, frame in enumerate(frames)]
    moves = [0, 1, 2, -1]  # the place, and the heading
    before = np.zeros(4)
    for place, row in enumerate(entry):
        is_repeated = place > 0 and frames[place] == frames[place - 1] and not emulates_reference
        has_memory[place] = place > 0 and scenes[place] == scenes[place - 1] and not is_repeated
        state = rows[row, moves]
        change = (state - before) * has_memory[place]
        if not emulates_reference:
            change[-1] = (change[-1] + 180) % 360 - 180
        rows[row, moves], before = change, state
    return rows[entry], has_memory


@attrs.frozen
class _QueueOrder(Order):
    """Each frame once per epoch, shuffled, with the number of the frame before it that its queue leaves out."""

    num_positions: int
    seed: int
    queue_length: int

    def of_epoch(self, epoch: int) -> Callable[[Int64], tuple[Int64, Int64]]:
        """The order of an epoch."""
        frames_at = ShuffledOrder(self.num_positions, self.seed, shuffle=True).of_epoch(epoch)
        key = derive_key("queue", self.seed, epoch)

        def samples_at(positions: Int64) -> tuple[Int64, Int64]:
            frames, visits = frames_at(positions)
            left_out = random_bits(key, frames) % np.uint64(self.queue_length)
            return frames * self.queue_length + left_out.astype(np.int64), visits

        return samples_at


class QueueSampler(PlannedSampler):
    """Each frame once per epoch, shuffled, with a queue that is drawn: sample ``frame * queue_length + left_out``.

    Which of the frames before is left out is a function of the seed, the epoch and the frame.

    Example:
        >>> sampler = QueueSampler(4, queue_length=3, total_batch_size=2, seed=1)
        >>> sorted(index // 3 for batch in (0, 1) for index in sampler.get_batch_indices(0, batch).tolist())
        [0, 1, 2, 3]
    """

    def __init__(
        self,
        num_frames: int,
        total_batch_size: int | None = None,
        *,
        queue_length: int,
        seed: int = 0,
        last_batch: LastBatch = "drop",
    ) -> None:
        """Create the sampler.

        Args:
            num_frames: Number of frames of the data set.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            queue_length: Number of frames in a queue.
            seed: Seed of the orders and the queues, at least 0.
            last_batch: How a last batch that is not full is handled.

        Raises:
            SettingError: An argument is out of its range.
        """
        num_frames = checks.whole_number(num_frames, "num_frames", at_least=1)
        queue_length = checks.whole_number(queue_length, "queue_length", at_least=1)
        self.seed = checks.whole_number(seed, "seed", at_least=0)
        self.order = _QueueOrder(num_frames, self.seed, queue_length)
        num_samples = num_frames * queue_length
        settings: Description = {"num_samples": num_samples, "seed": self.seed, "queue_length": queue_length}
        super().__init__(total_batch_size, last_batch, num_samples, settings)


_OF_IMAGES = ("lidar2img", "lidar2cam")


@attrs.frozen(kw_only=True)
class BEVFormerSettings(parts.DetectorSettings):
    """The configuration of BEVFormer's data, by default of ``bevformer_tiny``.

    Batches in training, of B queues of Q frames and C cameras::

        img              (B, Q, C, 3, H, W) float32
        can_bus          (B, Q, 18) float64
        prev_bev_exists  (B, Q) bool
        lidar2img        (B, Q, C, 4, 4) float64   from the reference frame, with the scale of images
        lidar2cam        (B, Q, C, 4, 4) float64
        timestamp        (B, Q) float64            seconds
        gt_bboxes_3d     B tensors (n, 9) float32  of the last frame: x, y, z of the bottom, sizes and angle by
                                                   `box_layout`, velocity
        gt_labels_3d     B tensors (n,) int64
        token, scene     B texts                   of the last frame
        place                                      ``sample_index`` is ``frame * queue_length + left_out``, see
                                                   `BEVFormerQueues`

    Each frame is the last of at most one queue per epoch (a last batch that is not full is dropped), and the order
    of queues is shuffled. Of the ``queue_length`` frames before it, one is left out, chosen at random in each
    epoch. Colors are distorted for each image (`UnclippedPhotometricDistorter`).

    In evaluation there are single frames, without the axis of the queue and without boxes. ``can_bus`` is
    absolute, the model makes the differences; ``prev_bev_exists``, ``(B,)``, is False where a scene begins.

    Attributes:
        queue_length: Frames of a queue; in training only.
        scale: Factor of the size of images.
        size_divisor: Height and width are filled up with 0 to multiples of this.
        mean: Means of red, green and blue.
        std_dev: Standard deviations of red, green and blue.
        point_cloud_range: Least and greatest x, y, z of centers of boxes, meters; z is not checked.
        classes: Names of the classes, in the order of ``gt_labels_3d`` (published: ``class_names``).
        box_layout: Columns 3 to 6 of boxes: "w,l,h,-yaw-pi/2" (mmdetection3d before 1.0) or "l,w,h,yaw".
        distorts_colors: Whether colors are distorted in training.
        zero_can_bus: Whether values of the CAN bus are 0 where the data set has none; place, orientation and
            heading come from the pose in any case. Otherwise such a data set is refused.
        emulates_reference: Whether queues are made as by the published code, with its flaws:

            - they run over the beginnings of scenes;
            - ``can_bus[3:7]`` is the first component of the orientation, four times;
            - differences of headings are not wrapped;
            - where a frame is repeated, at the beginning of the data set, its entries in the queue share one
              ``can_bus`` array, so differences are taken several times.

            Otherwise, queues stay in their scene, and repeat its first frame if it is too short; a repeated
            frame restarts the memory (``prev_bev_exists`` is False), so nothing is seen twice;
            ``can_bus[3:7]`` is the orientation, w first and not negative; differences of headings are in
            [-180, 180).
    """

    model = "BEVFormer"
    queue_length: int = parts.setting(3, checks.whole_number, at_least=1)
    scale: float = parts.setting(0.5, checks.number, above=0)
    size_divisor: int = parts.setting(32, checks.whole_number, at_least=1)
    point_cloud_range: Sequence[float] = parts.setting(
        (-51.2, -51.2, -5.0, 51.2, 51.2, 3.0), parts.point_cloud_range
    )
    box_layout: str = parts.setting(parts.LAYOUTS[1], checks.choice, allowed=parts.LAYOUTS)
    distorts_colors: bool = parts.setting(True, checks.flag)
    zero_can_bus: bool = parts.setting(False, checks.flag)
    emulates_reference: bool = parts.setting(False, checks.flag)

    def provider_fields(self, is_training: bool = True) -> DrivingFieldSettings:
        """Settings of a `DrivingProvider` for the fields that the model needs; choose ``cameras`` yourself."""
        fields: DrivingFieldSettings = {"can_bus": not self.zero_can_bus, "boxes": is_training}
        return {**fields, "classes": tuple(self.classes), "min_points": 1} if is_training else fields


def _chain(request: parts.Request) -> parts.Chain:
    settings, image = request.settings, _image_format(request.frames)
    images: list[PipelineStepBase] = [] if image.content.is_encoded is False else [ImageDecoder("image", True)]
    if request.is_training and settings.distorts_colors:
        images.append(UnclippedPhotometricDistorter("image"))
    preparer = ScaledImagePreparer(
        settings.scale, settings.size_divisor, mean=settings.mean, std_dev=settings.std_dev
    )
    of_images, last = ([for_each("images", step) for step in steps] for steps in (images, [preparer]))
    return parts.Chain([], of_images, last)


def _image_format(frames: DataProvider) -> LeafFormat:
    return leaf_at(frames.sample_data_structure, ("cameras", 0, "image"))


class BEVFormerQueues(FrameQueues):
    """Sample ``frame * queue_length + left_out`` is the queue that ends at the frame ``frame``.

    Of the ``queue_length`` frames before it, number ``left_out`` (0 is the oldest) is not in the queue.
    Each frame of a queue is loaded once. Images of all frames are one array, the oldest frame first.
    """

    @explains_unknown_arguments
    def __init__(
        self,
        provider: DataProvider,
        settings: BEVFormerSettings | None = None,
        *,
        is_training: bool = True,
        extra_fields: Sequence[str] = (),
    ) -> None:
        """Wrap a `DrivingProvider`; the queue also has the ``extra_fields`` of its last frame.

        Raises:
            SettingError: The provider lacks required fields.
        """
        settings = BEVFORMER.checked_settings(settings)
        super().__init__(BEVFORMER.checked_frames(provider, settings, is_training), extra_fields)
        if leaf_at(provider.sample_data_structure, ("ego", "world_from_ego")).ndim != 2:
            raise SettingError(
                "BEVFormer takes `ego.world_from_ego` as it is at each frame: leave its window out."
            )
        self.settings = settings if is_training else attrs.evolve(settings, queue_length=1)
        self._is_training = is_training
        self._label_of = parts.labels_of(self._provider.class_names if is_training else (), settings.classes)
        lengths = self._provider.sequence_lengths
        self._first_frame = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return self._provider.get_number_of_samples()

    @property
    def num_cameras(self) -> int:
        """Number of cameras."""
        return len(self._provider.camera_names)

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Number of frames of each scene."""
        return self._provider.sequence_lengths

    @property
    def has_decoded_images(self) -> bool:
        """Whether the images are pixels."""
        return _image_format(self._provider).content.is_encoded is False

    def get_number_of_samples(self) -> int:
        """Get the number of frames, times the ways to leave one out."""
        return self.num_frames * self.settings.queue_length

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a queue."""
        given, camera, sample = self._provider.sample_data_structure.format, SampleDataGroup(), SampleDataGroup()
        image = given.at(("cameras", 0, "image"))
        parts.add_fields(camera, {"image": image, **dict.fromkeys(_OF_IMAGES, (DT.FLOAT64, 2))})
        sample.add_data_group_field_array("images", camera, self.settings.queue_length * self.num_cameras)
        parts.add_fields(sample, {**_FIELDS, **(_FIELDS_OF_TRAINING if self._is_training else {})})
        parts.add_fields(sample, {name: given.at((name,)) for name in self._kept})
        return sample

    def frames_of(self, sample_index: int) -> list[int]:
        """Frames of a queue, the oldest first."""
        length = self.settings.queue_length
        frame, left_out = divmod(
            checks.index_in(sample_index, "sample_index", self.get_number_of_samples()), length
        )
        first = 0 if self.settings.emulates_reference else int(self._first_frame[frame])
        return queue_frames(frame, left_out, length, first)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load a queue."""
        frames = self.frames_of(sample_index)
        loaded = self._loaded(frames)
        if not self.has_decoded_images:
            self._require_one_size(loaded)
        last, (can_bus, has_memory) = loaded[frames[-1]], self._states(frames, loaded)
        timestamps = np.array([loaded[frame]["timestamp"] for frame in frames], np.float64)
        values = {"timestamp": timestamps, "can_bus": can_bus, "prev_bev_exists": has_memory}
        if self._is_training:
            values["gt_bboxes_3d"], values["gt_labels_3d"] = parts.mmdet_boxes(
                last["boxes"],
                self._label_of,
                layout=self.settings.box_layout,
                z="bottom",
                point_cloud_range=self.settings.point_cloud_range,
            )
        sample = self.new_sample()
        for name, value in {**values, **{name: last[name] for name in self._kept}}.items():
            sample[name] = value
        cameras = [camera for frame in frames for camera in loaded[frame]["cameras"].values()]
        for image, camera in zip(sample["images"].values(), cameras, strict=True):
            image.set_data(self._image(camera))
        return sample

    def _require_one_size(self, loaded: Mapping[int, SampleDataGroup]) -> None:
        places: dict[tuple[int, int], str] = {}
        for frame, sample in loaded.items():
            for name, camera in zip(self._provider.camera_names, sample["cameras"].values(), strict=True):
                places.setdefault(image_size(camera["image"]), f"{name} of frame {frame}")
        if len(places) > 1:
            written = ", ".join(f"{place}: {height} x {width}" for (height, width), place in places.items())
            raise FieldValueError(
                "The images of all cameras and frames must have one size, since they are one array. Height and "
                f"width: {written}. Leave cameras out (`cameras` of the provider), or bring the files to one size."
            )

    def states_of(self, sample_index: int) -> tuple[Float64, Bool]:
        """``can_bus`` and ``prev_bev_exists`` of a queue."""
        frames = self.frames_of(sample_index)
        return self._states(frames, self._loaded(frames))

    def _states(self, frames: list[int], loaded: Mapping[int, SampleDataGroup]) -> tuple[Float64, Bool]:
        can_bus = np.stack([self._can_bus(loaded[frame]) for frame in frames])
        if not self._is_training:
            return can_bus, np.zeros(1, bool)
        scenes = [int(self._first_frame[frame]) for frame in frames]
        return queue_states(can_bus, frames, scenes, emulates_reference=self.settings.emulates_reference)

    def _can_bus(self, frame: SampleDataGroup) -> Float64:
        """``(18,)``: what was measured, and place, orientation and heading of the vehicle in the world."""
        ego = frame["ego"]
        can_bus = np.zeros(18) if self.settings.zero_can_bus and "can_bus" not in ego else ego["can_bus"].copy()
        world_from_ego = ego["world_from_ego"]
        orientation = poses.quaternion_of_rotation(world_from_ego[:3, :3])
        heading_deg = np.degrees(np.arctan2(world_from_ego[1, 0], world_from_ego[0, 0]))
        heading_deg += 360 if heading_deg < 0 else 0
        can_bus[:3] = world_from_ego[:3, 3]
        can_bus[3:7] = orientation[0] if self.settings.emulates_reference else orientation
        can_bus[-2:] = np.radians(heading_deg), heading_deg
        return np.asarray(can_bus)

    def _image(self, camera: SampleDataGroup) -> list[Any]:
        lidar2cam = camera["camera_from_reference"]
        scaling = np.diag([self.settings.scale, self.settings.scale, 1.0, 1.0])
        return [camera["image"], scaling @ parts.four_by_four(camera["intrinsics"]) @ lidar2cam, lidar2cam]


_FIELDS = {"timestamp": (DT.FLOAT64, 1), "can_bus": (DT.FLOAT64, 2), "prev_bev_exists": (DT.BOOL, 1)}
_FIELDS_OF_TRAINING = {"gt_bboxes_3d": (DT.FLOAT, 2), "gt_labels_3d": (DT.INT64, 1)}


class ScaledImagePreparer(PixelStep):
    """Scales images by one factor (bilinear), normalizes them, and fills them up with 0 on the right and below.

    Input: ``(height, width, 3)`` uint8 or float32, RGB. Output: ``(3, H, W)`` float32. In a graph, two operators.
    """

    array_form_needs = ("cv2",)
    image_tolerance = 2e-4  # places are float32; the same numbers, but for rounding, with a scale of 0.5
    prefers_arrays = True

    _image_name = "image"
    _dtypes = (DT.UINT8, DT.FLOAT)
    _output_type = DT.FLOAT
    _parameter_types: ClassVar = {"scaled_hw": DT.FLOAT, "filled_hw": DT.FLOAT}

    @explains_unknown_arguments
    def __init__(
        self, scale: float, size_divisor: int, *, mean: Sequence[float], std_dev: Sequence[float]
    ) -> None:
        """Create the step; see `BEVFormerSettings`."""
        self._scale = scale
        self._size_divisor = size_divisor
        self._mean, self._std_dev = (np.broadcast_to(each, 3).tolist() for each in (mean, std_dev))

    def _content_after(self, leaf: LeafFormat) -> ImageContent:
        return ImageContent(is_encoded=False, layout="CHW")

    _reads_shapes = True

    def _parameters(self, draws: Draws) -> Callable[[Any, LeafFormat], Sequence[Any]]:
        """Get height and width after scaling, and after filling up, ``(2,)`` float32."""

        def sizes(image: Any, leaf: LeafFormat) -> Sequence[Any]:
            scaled = np.floor(np.array(image.shape[0:2], np.float64) * self._scale).astype(np.float32)
            divisor = np.float32(self._size_divisor)
            return scaled, np.ceil(scaled / divisor) * divisor

        return sizes

    def _shape_after(self, shape: tuple[int, ...], leaf: LeafFormat, *args: Any, **_: Any) -> tuple[int, ...]:
        return (3, *args[1].astype(int).tolist())

    def graph(self, image: Any, leaf: LeafFormat, name: Name, scaled_hw: Any, filled_hw: Any) -> Any:
        """See `PipelineStepBase.graph`."""
        image = on_gpu_if_any(image)
        linear = types.DALIInterpType.INTERP_LINEAR
        scaled: Any = fn.resize(image, size=scaled_hw, interp_type=linear, antialias=False, dtype=DT.FLOAT)
        return fn.crop_mirror_normalize(
            scaled,
            crop=filled_hw,
            crop_pos_x=0.0,
            crop_pos_y=0.0,
            out_of_bounds_policy="pad",
            mean=self._mean,
            std=self._std_dev,
            mirror=zero_where_channels_fit(image, 3),
            output_layout="CHW",
        )

    def _on_array(self, image: Any, leaf: LeafFormat, *args: Any, **_: Any) -> Any:
        cv2 = needed_package("cv2")
        (height, width), shape = args[0].astype(int).tolist(), self._shape_after(image.shape, leaf, *args)
        # Both are linear, so the order does not count; it is quicker to normalize fewer pixels.
        scaled = cv2.resize(np.asarray(image, np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
        padded = np.zeros(shape, np.float32)
        factors = 1 / np.array(self._std_dev)
        for channel, (factor, offset) in enumerate(zip(factors, -np.array(self._mean) * factors, strict=True)):
            part = scaled[..., channel] * np.float32(factor)
            part += np.float32(offset)
            padded[channel, :height, :width] = part
        return padded


def _batch(batch: parts.Batch) -> parts.Batch:
    """Bring a batch into the form that `BEVFormerSettings` describes, of training or of evaluation."""
    result = parts.flattened({**batch, "cameras": batch["images"]})
    del result["images"]
    if "gt_bboxes_3d" not in batch:
        result |= {name: result[name][:, 0] for name in ("can_bus", "timestamp")}
        result["prev_bev_exists"] = ~batch[PLACE]["is_first"]
    else:  # (B, Q * C, ...) as (B, Q, C, ...)
        for name in ("img", *_OF_IMAGES):
            result[name] = result[name].reshape(*batch["timestamp"].shape, -1, *result[name].shape[2:])
    return result


def _queues(
    frames: DataProvider, settings: BEVFormerSettings, *, is_training: bool, extra_fields: Sequence[str], **_: Any
) -> BEVFormerQueues:
    return BEVFormerQueues(frames, settings, is_training=is_training, extra_fields=extra_fields)


def _training_order(settings: BEVFormerSettings, queues: BEVFormerQueues, seed: int) -> RandomAccessSampler:
    return QueueSampler(queues.num_frames, queue_length=queues.settings.queue_length, seed=seed)


BEVFORMER = Recipe(
    settings=BEVFormerSettings,
    chain=_chain,
    as_batch=_batch,
    listed=("gt_bboxes_3d", "gt_labels_3d"),
    unchecked=("classes", "min_points", "reference"),
    can_reduce=False,
    source=_queues,
    training_order=_training_order,
    evaluation_order=scene_order,
)
"""The recipe of BEVFormer."""
