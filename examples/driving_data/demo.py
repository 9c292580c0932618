"""The whole way from files to a training loop, on generated scenes or on your own frames or videos.

    python examples/driving_data/demo.py                     six cameras, boxes; scenes are generated first, and
                                                             written in the format of nuScenes
    python examples/driving_data/demo.py --data FOLDER       your own data: nuScenes, or a folder that contains
                                                             - images or videos, or
                                                             - sequences: folders with images, or
                                                             - drives: folders with a folder of images per camera,
                                                               or a video per camera (and CAMERA.csv: its times)
    python examples/driving_data/demo.py --data INFOS.pkl    an info pickle of a detector; name the folder of its
                                                             images by `--images FOLDER` if they are not found

Two worker processes load images, which DALI decodes and resizes, on the GPU where there is one. Videos are decoded
in one worker process, which keeps them open, so that no frame is decoded twice. The batches come out as
nested dicts of PyTorch tensors. Sequences are played in the slots of the batch, each frame once per epoch, and a
small network learns to predict each camera's next frame from the one before. Then another loader continues from
the middle of the first epoch, and must deliver what the first one did. One of the batches is drawn:
demo_output/batch.png.
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

# Worker processes are spawned: each imports this module too. So what only the training needs (PyTorch above
# all) is imported where it is used, and nothing runs at import.
from data_folders import FolderError, open_image_folders, open_videos_with_times
from driving_scenes import export_nuscenes, generate_scenes
from video_folder_provider import VideoFolderError, VideoFolderProvider, holds_videos

from accvlab.dali_pipeline_framework import (
    DataLoader,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageResizer,
    StreamingSequenceSampler,
    for_each,
)
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.driving_data.datasets import DrivingProvider, NuScenesProvider

if TYPE_CHECKING:
    import torch

DemoProvider = DrivingProvider | VideoFolderProvider

_DEFAULT_HEIGHT_PX = 256
_GENERATED_CLASSES = {  # what the data set calls them, and the demo
    "vehicle.car": "car",
    "vehicle.truck": "truck",
    "human.pedestrian.adult": "pedestrian",
    "vehicle.bicycle": "cyclist",
}


class DemoError(Exception):
    """The demo cannot run with these settings or on this machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    options = _parse(arguments)
    try:
        _run(options)
    except (DemoError, FolderError, VideoFolderError, FrameworkError) as error:
        print(f"The demo cannot go on: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        advice = 'Run `pip install ".[examples]"` in the folder of the repository.'
        print(f"The demo cannot go on: {error}, which it needs. {advice}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    from demo_picture import save_batch_picture
    from demo_training import NothingToLearnError, delivers_the_same, seed_everything, train

    device_id = _chosen_device_id(options.device_id)
    try:
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(f"--output must be a folder, or free to become one: {error}") from error
    provider = open_provider(options.data, options.output, options.images, options.boxes_convention)
    batch_size = min(options.batch_size, len(provider.sequence_lengths))
    image_hw = options.image_size or _default_image_hw(provider)
    is_of_videos = _has_decoded_images(provider)
    num_workers = options.num_workers or (1 if is_of_videos else 2)
    _describe(provider, batch_size, image_hw, device_id)

    seed_everything(options.seed)
    loader = make_loader(provider, batch_size, image_hw, num_workers, options.seed, device_id)
    _describe_epoch(loader)
    num_batches = min(len(loader), options.max_batches)
    with loader, _progress(options.epochs * num_batches) as on_step:
        try:
            report = train(
                loader,
                options.epochs,
                num_batches,
                device=_torch_device(device_id),
                kept_batch=min(provider.sequence_lengths) // 2,
                on_step=on_step,
            )
        except NothingToLearnError as error:
            raise DemoError(f"{error} Use longer sequences, more epochs, or smaller batches.") from error

    if report.bookmark.following:
        num_workers = num_workers - 1 if num_workers > 1 else 2  # another number; three are too many for two cores
        loader = make_loader(provider, batch_size, image_hw, num_workers, options.seed, device_id)
        with loader:
            if not delivers_the_same(loader, report.bookmark):
                raise DemoError("A loader that was continued delivers other batches than one without a break.")
        print(
            f"Continued after {_counted(report.bookmark.state['batch'], 'batch')} of the first epoch, with "
            f"{_counted(num_workers, 'worker')}: the next {_counted(len(report.bookmark.following), 'batch')} are "
            f"the same as without a break"
        )
    picture = options.output / "batch.png"
    save_batch_picture(picture, report.kept_batch, _category_names(provider))
    print(f"Throughput: {report.samples_per_s:.1f} samples/s, {report.images_per_s:.1f} images/s")
    print(
        f"Loss: {report.first_loss:.4f} at first, {report.final_loss:.4f} in the end "
        f"(if the frame before is the prediction: {report.repeating_loss:.4f})"
    )
    print(f"Picture of a batch: {picture}")


def open_provider(
    data: Path | None, output: Path, images: Path | None = None, boxes_convention: str | None = None
) -> DemoProvider:
    """The provider for a folder: nuScenes (generated here without a folder), videos, frames, ..."""
    if data is None:
        return _open_generated(output)
    provider: DemoProvider | None = open_driving_data(data, images, boxes_convention)
    provider = provider or open_videos_with_times(data)
    if provider is None:
        provider = VideoFolderProvider(data) if holds_videos(data) else open_image_folders(data)
    if max(provider.sequence_lengths) < 2:
        raise DemoError(
            f"'{data}' must have a sequence of two frames or more, as each is predicted from the one before."
        )
    return provider


def _open_generated(output: Path) -> NuScenesProvider:
    data = output / "nuscenes"
    if not data.exists():
        print(f"Generating driving scenes in {data} (once) ...", flush=True)
        export_nuscenes(generate_scenes(), data)
    return NuScenesProvider(data, "v1.0-mini", classes=_GENERATED_CLASSES, index_cache=output / "index")


def _has_decoded_images(provider: DemoProvider) -> bool:
    return isinstance(provider, VideoFolderProvider) or provider.get_data(0)["cameras"][0]["image"].ndim == 3


def open_driving_data(
    data: Path, images: Path | None = None, boxes_convention: str | None = None
) -> DrivingProvider | None:
    """The provider for a public data set, where that is what the folder or file holds.

    The images of an info pickle are in a folder with ``samples`` in it: given, or above the pickle, or beside one
    of the folders above it.
    """
    if data.suffix == ".pkl":
        from accvlab.driving_data.datasets import InfosProvider

        root = images or _folder_of_samples(data) or data.parent
        return InfosProvider(data, root, boxes_convention=boxes_convention)
    tables = sorted(data.glob("v1.0-*/sample_data.json"), key=lambda path: path.parent.name != "v1.0-trainval")
    if tables:
        return NuScenesProvider(data, tables[0].parent.name, classes="detection")
    return None


def _folder_of_samples(pickle: Path) -> Path | None:
    for folder in pickle.absolute().parents[:5]:
        with contextlib.suppress(OSError):  # folders that may not be listed
            for root in (folder, *sorted(folder.iterdir())):
                if (root / "samples").is_dir():
                    return root
    return None


def make_loader(
    provider: DemoProvider,
    batch_size: int,
    image_hw: tuple[int, int],
    num_workers: int,
    seed: int,
    device_id: int | None,
) -> DataLoader:
    """A loader whose slots play sequences, one after the other; each frame once per epoch.

    The sequences are few and of unequal length. Cutting some of them makes the slots equally long.
    """
    is_of_videos, structure = _has_decoded_images(provider), provider.sample_data_structure
    matrices = ["intrinsics"] if "intrinsics" in structure["cameras"][0] else []
    steps = [
        # On the CPU where there is no GPU. Frames of videos come decoded.
        None if is_of_videos else ImageDecoder("image", use_device_mixed=True),
        for_each("cameras", ImageResizer("image", output_hw=image_hw, projection_names=matrices)),
        ImageMeanStdDevNormalizer("image", mean=0, std_dev=255, output_layout="CHW"),
    ]
    return DataLoader(
        provider,
        batch_size,
        steps=steps,
        sampler=StreamingSequenceSampler(provider.sequence_lengths, seed=seed, cut_sequences=True),
        context_name="place",
        num_workers=num_workers,
        device_id=device_id,
        seed=seed,
        ragged={"boxes": "list"} if "boxes" in structure else "raise",  # samples differ in the number of objects
    )


def _category_names(provider: DemoProvider) -> Sequence[str]:
    return provider.class_names if isinstance(provider, DrivingProvider) else ()


def _default_image_hw(provider: DemoProvider) -> tuple[int, int]:
    """256 pixels high, and wide enough for the aspect ratio of the first image, in steps of 16."""
    if isinstance(provider, VideoFolderProvider):
        height_px, width_px = provider.image_hw
    else:
        image = provider.get_data(0)["cameras"][0]["image"]
        height_px, width_px = image.shape[:2] if image.ndim == 3 else _image_hw(image.tobytes())
    return _DEFAULT_HEIGHT_PX, max(16, 16 * round(_DEFAULT_HEIGHT_PX * width_px / height_px / 16))


def _image_hw(content: bytes) -> tuple[int, int]:
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(content)) as image:
            width_px, height_px = ImageOps.exif_transpose(image).size
    except OSError as error:
        raise DemoError(f"The first image must be one that can be read: {error}") from error
    return height_px, width_px


def _chosen_device_id(wanted: str) -> int | None:
    import torch

    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return None
    if not torch.cuda.is_available():
        raise DemoError(
            f"--device-id {wanted} needs a GPU that PyTorch can use, and there is none. Use cpu or auto."
        )
    return 0 if wanted == "auto" else int(wanted)


def _torch_device(device_id: int | None) -> "torch.device":
    import torch

    return torch.device("cpu") if device_id is None else torch.device("cuda", device_id)


def _describe(provider: DemoProvider, batch_size: int, image_hw: tuple[int, int], device_id: int | None) -> None:
    frames = _counted(provider.get_number_of_samples(), "frame")
    cameras = _counted(len(provider.sample_data_structure["cameras"]), "camera")
    print(f"Data: {frames} of {cameras}, in {_counted(len(provider.sequence_lengths), 'sequence')}")
    print(
        f"Batches: {_counted(batch_size, 'slot')}, images of {image_hw[1]} x {image_hw[0]} pixels, "
        f"on the {'CPU' if device_id is None else f'GPU {device_id}'}",
        flush=True,
    )


def _describe_epoch(loader: DataLoader) -> None:
    counts = loader.sample_counts()
    if counts is not None:
        batches, cuts = _counted(counts.num_batches, "batch"), _counted(counts.num_cuts, "cut")
        frames = f"{counts.num_delivered} of {_counted(counts.num_samples, 'frame')}"
        print(f"First epoch: {batches}, {frames} once each, {cuts} through sequences, for equal slots", flush=True)


def _counted(number: int, noun: str) -> str:
    if number == 1:
        return f"{number} {noun}"
    return f"{number} {noun}es" if noun.endswith("ch") else f"{number} {noun}s"


@contextlib.contextmanager
def _progress(num_steps: int) -> Iterator[Callable[[float, float], None]]:
    """A progress bar; yields what to call after each step, with loss and samples per second."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("Training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TextColumn("{task.fields[rate]:.1f} samples/s"),
        TimeElapsedColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("", total=num_steps, loss=float("nan"), rate=0.0)
        yield lambda loss, rate: progress.update(task, advance=1, loss=loss, rate=rate)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="demo.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=lambda text: Path(text) if text else None,
        help="data set of nuScenes, info pickle, or folder of images, videos, sequences or drives, see above "
        "(default: scenes are generated)",
    )
    parser.add_argument(
        "--images",
        type=lambda text: Path(text) if text else None,
        help="folder that the names in an info pickle are relative to (default: looked for around it)",
    )
    parser.add_argument("--boxes-convention", help="box columns of an info pickle, see InfosProvider")
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="folder to write to")
    parser.add_argument("--epochs", type=_positive, default=2, help="number of epochs")
    parser.add_argument("--batch-size", type=_positive, default=4, help="at most as many as there are sequences")
    parser.add_argument(
        "--num-workers", type=_positive, help="processes that load samples (default: 2, for videos 1)"
    )
    parser.add_argument("--image-size", type=_positive, nargs=2, metavar=("HEIGHT", "WIDTH"), help="in pixels")
    parser.add_argument("--max-batches", type=_positive, default=150, help="per epoch")
    parser.add_argument("--seed", type=_seed, default=7, help="equal seeds give equal runs")
    parser.add_argument("--device-id", type=_device, default="auto", help="auto, cpu, or number of a GPU")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, got {text!r}")
    return int(text)


def _device(text: str) -> str:
    if text not in ("auto", "cpu") and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be auto, cpu, or the number of a GPU, got {text!r}")
    return text


if __name__ == "__main__":
    sys.exit(main())
