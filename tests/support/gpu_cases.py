"""Loaders whose pixels a GPU makes where there is one, and how far they may be from those of the CPU.

Photographs are JPEG files with colors at half the resolution (4:2:0), as cameras write them: a GPU repeats colors,
the CPU interpolates between them, which is 1.5 levels in the mean of these small ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework import (
    AffineTransformer,
    DataLoader,
    DataProvider,
    FrameDataProvider,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PaddingToUniform,
    PhotoMetricDistorter,
    TensorSizeAdder,
    VideoDecoder,
    Windows,
)
from support.arrays import DT, ArrayProvider, encoded_image, photograph
from support.reader_data import frame_folders
from support.windows import video_clips

HW = (90, 160)
NUM_CAMERAS = 3


@functools.cache
def photo(number: int, height: int = HW[0], width: int = HW[1], **options: Any) -> np.ndarray:
    """The bytes of a photograph, ``(num_bytes,)`` uint8."""
    return encoded_image(photograph(height, width, number), **{"quality": 90, "subsampling": 2, **options})


def rig_provider(num_samples: int = 4, hw: tuple[int, int] = HW, sizes_differ: bool = False) -> DataProvider:
    """Photographs of three cameras with small fields, and the number of each sample."""

    def files(camera: int) -> list[np.ndarray]:
        return [photo(n + camera, hw[0] + 16 * sizes_differ * (n % 3), hw[1]) for n in range(num_samples)]

    numbers = [*range(num_samples)]
    cameras = {
        camera: {
            "image": (DT.UINT8, files(camera)),
            "intrinsics": (DT.FLOAT, [np.diag([90, 90, 1.0 + n]) for n in numbers]),
            "gain": (DT.FLOAT, [camera + n / 4 for n in numbers]),
        }
        for camera in range(NUM_CAMERAS)
    }
    return ArrayProvider({"cameras": cameras, "index": (DT.INT64, numbers)})


def decoder() -> ImageDecoder:
    return ImageDecoder("image", use_device_mixed=True)


def normalizer() -> ImageMeanStdDevNormalizer:
    return ImageMeanStdDevNormalizer("image", [123.7, 116.3, 103.5], [58.4, 57.1, 57.4], output_layout="CHW")


def distorter() -> PhotoMetricDistorter:
    return PhotoMetricDistorter("image", [-9, 9], [-9, 9], [0.9, 1.1], [0.9, 1.1])


def resizer(is_encoded: bool) -> ImageResizer:
    return ImageResizer(
        "image", output_hw=[48, 96], mode="crop", projection_names="intrinsics", is_encoded=is_encoded
    )


def augmenter(is_encoded: bool) -> ImageResizeCropFlipper:
    return ImageResizeCropFlipper(
        "image", output_hw=[48, 96], scale_range=(0.6, 0.8), projection_names="intrinsics", is_encoded=is_encoded
    )


def warper() -> AffineTransformer:
    steps = [AffineTransformer.Rotation(1.0, -0.1, 0.1), AffineTransformer.UniformScaling(1.0, 0.9, 1.1)]
    modes = AffineTransformer.ResizingMode.CROP, AffineTransformer.ResizingAnchor.CENTER
    names = {"projection_matrix_field_names": "intrinsics"}
    return AffineTransformer([48, 96], *modes, "image", transformation_steps=steps, **names)


def _rig(*steps: Callable[[], Any], **arguments: Any) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: {
        "source": rig_provider(sizes_differ="ragged" in arguments), "batch_size": 2, "shuffle": True, "seed": 3,
        "steps": [step() for step in steps], "stack_arrays": "ragged" not in arguments, **arguments,
    }  # fmt: skip


def _frames(folder: Path) -> Path:
    return (
        folder / "frames" if (folder / "frames").exists() else frame_folders(folder / "frames", {"a": 7, "b": 5})
    )


def _clips(folder: Path) -> dict[str, Any]:
    frames = FrameDataProvider(_frames(folder), image_name="frames")
    source = Windows(frames, {"frames": range(4)}, unit="frames")
    return {"source": source, "batch_size": 3, "steps": [ImageDecoder("frames", True)]}


BT709 = {"preset": "veryfast", "x264-params": "keyint=12:bframes=2:colormatrix=bt709"}


def _encoded_videos(
    codec: str, suffix: str, colors: str = "dali", options: Mapping[str, str] | None = None
) -> Callable[[Path], dict[str, Any]]:
    """Clips of two videos, with B-frames in open groups of pictures where the codec has them."""

    def make(folder: Path) -> dict[str, Any]:
        from support.videos import OPEN_GOP, make_video  # PyAV may be missing

        chosen = OPEN_GOP.get(codec) if options is None else options
        kind = "_".join([codec, colors, *(options or {}).values()]).replace(":", "_")
        paths = [folder / f"{name}_{kind}.{suffix}" for name in ("one", "other")]
        for number, path in enumerate(paths):
            if not path.exists():
                make_video(path, 30, codec, first_number=50 * number, size=(192, 160), options=chosen)
        source = video_clips(paths, 3, stride=2, images="encoded")
        decode: Any = VideoDecoder("frames", colors=colors)  # type: ignore[arg-type]
        steps = [decode, ImageResizer("frames", output_hw=[80, 96], mode="stretch")]
        return {"source": source, "batch_size": 2, "shuffle": True, "seed": 1, "steps": steps}

    return make


@attrs.frozen
class GpuCase:
    """A loader.

    Attributes:
        make: Makes its arguments, with a folder for files.
        pixels: The field that the GPU makes.
        levels: Size of one level of 255 in that field.
        mean: Largest mean difference to the CPU, in levels.
        share: Largest share of values that differ by more than 8 levels.
    """

    make: Callable[[Path], dict[str, Any]]
    pixels: str = "image"
    levels: float = 1.0
    mean: float = 2.0
    share: float = 0.01

    def reference(self, folder: Path, **arguments: Any) -> DataLoader:
        """Make the loader that shows on the CPU what is right."""
        return self.loader(folder, None, **arguments)

    def loader(self, folder: Path, device_id: int | None, **arguments: Any) -> DataLoader:
        """Make the loader; all steps are in the graph, on the CPU as well."""
        own = {"num_workers": 0, "num_threads": 2, "run": "graph", "device_id": device_id, **self.make(folder)}
        source = own.pop("source")
        return DataLoader(source, own.pop("batch_size"), **{**own, **arguments})


NORMALIZED = 1 / 57.0
CASES: dict[str, GpuCase] = {
    "decode": GpuCase(_rig(decoder)),
    "decode BGR": GpuCase(_rig(lambda: ImageDecoder("image", True, as_bgr=True))),
    "decode, resize, normalize": GpuCase(_rig(decoder, lambda: resizer(False), normalizer), levels=NORMALIZED),
    "region, resize, normalize": GpuCase(_rig(lambda: resizer(True), normalizer), levels=NORMALIZED),
    "decode, resize, crop, flip": GpuCase(_rig(decoder, lambda: augmenter(False))),
    "region, resize, crop, flip": GpuCase(_rig(lambda: augmenter(True), normalizer), levels=NORMALIZED),
    "warp": GpuCase(_rig(decoder, warper)),
    "flip": GpuCase(_rig(decoder, lambda: HorizontalFlipper("image", prob=0.5))),
    "colors": GpuCase(_rig(decoder, distorter), mean=3.0, share=0.05),
    "grid": GpuCase(_rig(decoder, lambda: GridMasker("image"))),
    "tiles": GpuCase(
        _rig(
            decoder,
            lambda: ImageToTileSizePadder("image", 32),
            lambda: ImageRange01Normalizer("image"),
            lambda: TensorSizeAdder("image", "_hw"),
        ),
        levels=1 / 255,
    ),
    "pad different sizes": GpuCase(_rig(decoder, lambda: PaddingToUniform("image", 0), ragged="list")),
    "different sizes": GpuCase(_rig(decoder, ragged="list")),
    "frame sequences": GpuCase(_clips, "frames", mean=0.0, share=0.0),
    "encoded videos, H.264": GpuCase(_encoded_videos("libx264", "mp4"), "frames", mean=3.0, share=0.05),
    "encoded videos, HEVC": GpuCase(_encoded_videos("libx265", "mp4"), "frames", mean=3.0, share=0.05),
    "encoded videos, VP9": GpuCase(_encoded_videos("libvpx-vp9", "webm"), "frames", mean=3.0, share=0.05),
    "encoded videos, AV1": GpuCase(
        _encoded_videos("libsvtav1", "mp4", options={"g": "2"}), "frames", mean=3.0, share=0.05
    ),
    "encoded videos, AV1 with hidden frames": GpuCase(
        _encoded_videos("libsvtav1", "mp4", "stream", {}), "frames", mean=1.0, share=0.01
    ),
    "encoded videos, BT.709": GpuCase(
        _encoded_videos("libx264", "mp4", "stream", BT709), "frames", mean=3.0, share=0.05
    ),
}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All fields of a batch, as tensors or arrays, with their paths; of lists each element."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping | list):
        for name, each in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from leaves(each, f"{path}.{name}" if path else str(name))
    else:
        yield path, value


def as_array(value: Any) -> Any:
    return value.cpu().numpy() if hasattr(value, "cpu") else np.asarray(value)


@attrs.frozen
class Difference:
    """Pixels of two batches.

    Attributes:
        mean: Mean of the differences, in levels.
        worst: Largest difference.
        share: Share of the values that differ by more than 8 levels.
        devices: Where the first batch has them.
        others: Fields beside them that are not equal bit by bit, or not in both batches.
    """

    mean: float
    worst: float
    share: float
    devices: list[str]
    others: list[str]

    @classmethod
    def of(cls, batch: Any, reference: Any, pixels: str, levels: float) -> Difference:
        """Compare a batch with one of the CPU."""
        found, expected = dict(leaves(batch)), dict(leaves(reference))
        others = sorted(found.keys() ^ expected.keys())
        differences, devices = [np.zeros(0)], set()
        for path in found.keys() & expected.keys():
            one, other = as_array(found[path]), as_array(expected[path])
            if (one.dtype, one.shape) != (other.dtype, other.shape):
                others.append(path)
            elif pixels in path.split("."):
                devices.add(str(getattr(found[path], "device", "cpu")))
                differences.append(np.abs(one.astype(np.float64) - other.astype(np.float64)).ravel() / levels)
            elif not np.array_equal(one, other):
                others.append(path)
        every = np.concatenate(differences)
        if not every.size:
            return cls(0.0, 0.0, 0.0, [], others)
        return cls(
            round(float(every.mean()), 4), round(float(every.max()), 2), round(float((every > 8).mean()), 6),
            sorted(devices), others,
        )  # fmt: skip

    def is_within(self, case: GpuCase) -> bool:
        return not self.others and self.mean <= case.mean and self.share <= case.share
