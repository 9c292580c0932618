"""Folders of images, and of videos with their times, as records of frames: how own data becomes a provider."""

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from accvlab.driving_data.datasets import CameraImage, DrivingFrame, DrivingProvider, index_of_frames, poses

__all__ = [
    "FolderError",
    "image_names",
    "natural_key",
    "open_image_folders",
    "open_videos_with_times",
    "subfolders",
]

_logger = logging.getLogger(__name__)

_IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


class FolderError(ValueError):
    """The folder does not hold what is looked for; the message says what was found."""


def open_image_folders(root: Path) -> DrivingProvider:
    """The provider for folders of images::

        FOLDER/000001.jpg                 one sequence
        FOLDER/monday/frame_1.jpg         a sequence per subfolder
        FOLDER/monday/front/1.jpg         a drive per subfolder, with a folder per camera

    Numbers in names count as numbers (2 before 10). Images may differ in size and type. Hidden files, and files
    that are no images by their names, are passed over. Frames of several cameras are the images that all of them
    have by name, or by place in order where they share no name.

    Raises:
        FolderError: There is no such folder, there are no images, or the drives share no camera.
    """
    frames = []
    for scene, cameras in _sequences(root).items():
        names = [{Path(file).name: file for file in files} for files in cameras.values()]
        common = [name for name in names[0] if all(name in of_camera for of_camera in names)]
        rows = [[of[name] for of in names] for name in common] or zip(*cameras.values(), strict=False)
        for number, row in enumerate(rows):
            images = {name: CameraImage(file=file) for name, file in zip(cameras, row, strict=True)}
            frames.append(DrivingFrame(scene=scene, time=0.1 * number, cameras=images))
    return DrivingProvider(index_of_frames(frames), root)


def _sequences(root: Path) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Files of each camera of each sequence."""
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise FolderError(
            f"'{root}' must be a folder of images, or of sequence folders with images, but it {found}."
        )
    folders = subfolders(root)
    if names := image_names(root):
        _log_left_out(folders, f"'{root}' holds images, so it is taken for one sequence; its ")
        return {root.absolute().name: {"camera": names}}
    sequences = {
        folder.name: {"camera": [f"{folder.name}/{name}" for name in names]}
        for folder in folders
        if (names := image_names(folder))
    }
    if sequences:
        _log_left_out([folder for folder in folders if folder.name not in sequences], "", " without images")
        return sequences
    drives = {
        drive.name: {
            camera.name: [f"{drive.name}/{camera.name}/{name}" for name in names]
            for camera in subfolders(drive)
            if (names := image_names(camera))
        }
        for drive in folders
    }
    drives = {name: cameras for name, cameras in drives.items() if cameras}
    if not drives:
        raise FolderError(
            f"'{root}' must hold images ({', '.join(sorted(_IMAGE_SUFFIXES))}), or subfolders that do; looked "
            f"at the folder, its {len(folders)} subfolder(s) and theirs, not deeper, and found none."
        )
    shared = [name for name in next(iter(drives.values())) if all(name in cameras for cameras in drives.values())]
    if not shared:
        raise FolderError(f"The drives in '{root}' must have folders of the same cameras, but share no name.")
    return {drive: {name: cameras[name] for name in shared} for drive, cameras in drives.items()}


def _log_left_out(folders: Sequence[Path], before: str, kind: str = "") -> None:
    if folders:
        shown = ", ".join(folder.name for folder in folders[:5]) + (", ..." if len(folders) > 5 else "")
        _logger.warning("%s%d subfolder(s)%s are left out: %s", before, len(folders), kind, shown)


def open_videos_with_times(root: Path) -> DrivingProvider | None:
    """The provider for drives with a video per camera and a file of times beside each, if the folder has some.

    ``DRIVE/CAMERA.mp4`` and ``DRIVE/CAMERA.csv``: seconds, one line per frame, a heading or not. The camera with
    the fewest frames is the clock; each other camera gives its last frame at or before each of it.
    """
    drives = {folder: sorted(folder.glob("*.mp4")) for folder in (subfolders(root) if root.is_dir() else ())}
    drives = {folder: videos for folder, videos in drives.items() if videos}
    has_times = [video.with_suffix(".csv").is_file() for videos in drives.values() for video in videos]
    if not drives or not all(has_times):
        return None
    frames = []
    for drive, videos in drives.items():
        times = {video.stem: _times_in(video.with_suffix(".csv")) for video in videos}
        clock = min(times.values(), key=len)
        of_cameras = {name: poses.last_before(own, clock) for name, own in times.items()}
        for place, time in enumerate(clock.tolist()):
            numbers = {name: int(found[place]) for name, found in of_cameras.items()}
            if min(numbers.values()) >= 0:
                cameras = {
                    name: CameraImage(
                        file=f"{drive.name}/{name}.mp4", video_frame=number, time=float(times[name][number])
                    )
                    for name, number in numbers.items()
                }
                frames.append(DrivingFrame(scene=drive.name, time=time, cameras=cameras))
    if not frames:
        rule = "share no time: their CSV files must be of one clock, in seconds."
        raise FolderError(f"The videos in '{root}' {rule}")
    return DrivingProvider(index_of_frames(frames), root)


def _times_in(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Numbers in the first column of a CSV file, below its heading, if it has one."""
    cells = [line.split(",")[0].strip() for line in path.read_text().splitlines() if line.strip()]
    has_heading = bool(cells) and not cells[0].replace(".", "").lstrip("-").isdigit()
    try:
        return np.array([float(cell) for cell in cells[has_heading:]], np.float64)
    except ValueError as error:
        rule = "must hold the time of each frame in its first column, in seconds"
        raise FolderError(f"'{path}' {rule}: {error}") from error


def subfolders(folder: Path) -> list[Path]:
    """Folders in a folder, without hidden ones, in natural order."""
    found = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(found, key=lambda path: natural_key(path.name))


def image_names(folder: Path) -> list[str]:
    """Names of the images in a folder, without hidden ones, in natural order."""
    names = [
        path.name
        for path in folder.iterdir()
        if path.suffix.lower() in _IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]
    return sorted(names, key=natural_key)


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Numbers in names count as numbers; the name itself decides between "1" and "01"."""
    parts = re.split(r"([0-9]+)", name.casefold())  # text, digits, text, digits, ..., text
    return [(int(part), "") if part[:1].isdecimal() else (-1, part) for part in parts], name
