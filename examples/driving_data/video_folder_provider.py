"""A data provider for your own videos: a folder of video files, or of recordings with a file per camera."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from data_folders import image_names, natural_key, subfolders
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework import DataProvider, SampleDataGroup, VideoFrameDataProvider, Videos
from accvlab.dali_pipeline_framework.video import DecodingStatistics

__all__ = ["VIDEO_SUFFIXES", "VideoFolderError", "VideoFolderProvider", "holds_videos"]

_logger = logging.getLogger(__name__)

VIDEO_SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts"})
"""What is taken for a video, in lower case."""

_MOST_OPEN_DECODERS = 64  # in a worker: slots of the batch times cameras
_RECORDING = 0  # the name of a field; those of cameras are texts, so they are others


class VideoFolderError(ValueError):
    """The videos of a folder do not belong together; the message says what was found."""


class VideoFolderProvider(DataProvider):
    """One sample per frame of the videos of a folder, or per point in time of several cameras::

        FOLDER/                 each file a sequence      FOLDER/            each subfolder a recording,
            monday.mp4          of one camera                 monday/        a file per camera
            tuesday.mkv                                           front.mp4
                                                                  rear.mp4
                                                              tuesday/
                                                                  front.mp4
                                                                  rear.mp4

    Numbers in names count as numbers (2 before 10). Hidden files, and files that are no videos by their names, are
    passed over. Recordings must have the same cameras; a recording with one file has one camera, whatever its
    name. Frames of several cameras belong together by their times in the containers. Where a camera lacks one, the
    sequence ends, and another begins behind it.

    The fields of a sample::

        cameras[0..C-1]
            image                 UINT8    (height, width, 3), RGB
            name                  STRING   of the file; "camera" where there is but one
        is_first_of_sequence      BOOL     scalar
        sequence                  STRING   name of the file, or of the recording
        frame                     INT32    scalar, place in the sequence

    A worker goes on in the open decoders where slots play sequences. So one worker decodes each frame once; with
    more of them, each decodes also what the others deliver.

    Args:
        root: The folder.

    Raises:
        VideoFolderError: There are no videos, or the recordings differ in their cameras.
        FrameworkError: A video cannot be read, or PyAV is not installed.
    """

    def __init__(self, root: str | Path) -> None:
        """List the folder, and look into the videos."""
        self._root = Path(root).absolute()
        recordings = _list_recordings(self._root)
        self._recording_names = tuple(name for name, _ in recordings)
        self.camera_names = tuple(recordings[0][1])
        has_cameras = len(self.camera_names) > 1
        cameras = {name: [files[name] for _, files in recordings] for name in self.camera_names if has_cameras}
        videos = Videos(
            None if has_cameras else [next(iter(files.values())) for _, files in recordings],
            cameras=cameras or None,
            num_batch_threads=len(os.sched_getaffinity(0)),
            max_open_decoders=_MOST_OPEN_DECODERS,
        )
        self._frames = VideoFrameDataProvider(videos, recording_number_name=_RECORDING)
        self._ends = np.cumsum(self._frames.sequence_lengths)

    @property
    def sequence_lengths(self) -> tuple[int, ...]:
        """Number of frames of each sequence, in the order of the samples."""
        return tuple(self._frames.sequence_lengths.tolist())

    @property
    def image_hw(self) -> tuple[int, int]:
        """Height and width of the first video, in pixels; others may differ."""
        camera = self.camera_names[0] if len(self.camera_names) > 1 else None
        index = self._frames.video_index(0, camera)
        return index.height, index.width

    @property
    def statistics(self) -> DecodingStatistics:
        """What was decoded in this process."""
        return self._frames.statistics

    def get_number_of_samples(self) -> int:
        """Get the number of frames of all sequences."""
        return self._frames.get_number_of_samples()

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples."""
        camera = SampleDataGroup()
        camera.add_data_field("image", DALIDataType.UINT8, ndim=3)
        camera.add_data_field("name", DALIDataType.STRING)
        sample = SampleDataGroup()
        sample.add_data_group_field_array("cameras", camera, len(self.camera_names))
        sample.add_data_field("is_first_of_sequence", DALIDataType.BOOL, ndim=0)
        sample.add_data_field("sequence", DALIDataType.STRING)
        sample.add_data_field("frame", DALIDataType.INT32, ndim=0)
        return sample

    @property
    def loads_batches(self) -> bool:
        """Whether several samples of a batch are decoded at once."""
        return self._frames.loads_batches

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Decode one sample; see the class for its fields."""
        return self._completed(sample_index, self._frames.get_data(sample_index))

    def describe_sample(self, sample_index: int) -> str:
        """Name the files and frames of a sample."""
        return self._frames.describe_sample(sample_index)

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Decode the samples of a batch, several at once."""
        frames = self._frames.load_batch(sample_indices, slots)
        return map(self._completed, sample_indices, frames)

    def _completed(self, sample_index: int, decoded: SampleDataGroup) -> SampleDataGroup:
        sequence = int(np.searchsorted(self._ends, sample_index, side="right"))
        frame = sample_index - int(self._ends[sequence]) + self.sequence_lengths[sequence]
        sample = self.new_sample()
        for number, name in enumerate(self.camera_names):
            camera = sample["cameras"][number]
            camera["image"] = (decoded if len(self.camera_names) == 1 else decoded[name])["image"]
            camera["name"] = name
        sample["is_first_of_sequence"] = frame == 0
        sample["sequence"] = self._recording_names[int(decoded[_RECORDING])]
        sample["frame"] = frame
        return sample


def holds_videos(root: Path) -> bool:
    """Whether a folder and its subfolders hold videos, and no more images than videos, by the names of files."""
    if not root.is_dir():
        return False
    folders = [root, *subfolders(root)]
    num_videos = sum(len(_videos_in(folder)) for folder in folders)
    return 0 < num_videos >= sum(len(image_names(folder)) for folder in folders)


def _list_recordings(root: Path) -> list[tuple[str, dict[str, Path]]]:
    """Name of each recording, and the file of each of its cameras."""
    if files := _videos_in(root):
        if left_out := [folder.name for folder in subfolders(root) if _videos_in(folder)]:
            _logger.warning(
                "'%s' holds videos, each taken for a sequence; %d subfolder(s) with others are left out: %s",
                *(root, len(left_out), ", ".join(left_out[:5]) + (", ..." if len(left_out) > 5 else "")),
            )
        return [(file.name, {"camera": file}) for file in files]
    recordings = [(folder.name, files) for folder in subfolders(root) if (files := _videos_in(folder))]
    if not recordings:
        raise VideoFolderError(
            f"'{root}' must hold videos ({', '.join(sorted(VIDEO_SUFFIXES))}), or subfolders that do; found none."
        )
    if all(len(files) == 1 for _, files in recordings):
        return [(name, {"camera": files[0]}) for name, files in recordings]
    first, cameras = recordings[0][0], [file.stem for file in recordings[0][1]]
    for name, files in recordings:
        found = [file.stem for file in files]
        if sorted(found) != sorted(cameras) or len(set(found)) != len(found):
            raise VideoFolderError(
                f"Each subfolder of '{root}' must hold one video per camera, of the same names without extension, "
                f"but '{first}' holds {_listed(recordings[0][1])} and '{name}' holds {_listed(files)}. If these "
                f"are not cameras of one vehicle, put all videos into one folder."
            )
    return [(name, {file.stem: file for file in files}) for name, files in recordings]


def _listed(files: Sequence[Path]) -> str:
    names = ", ".join(file.name for file in files[:8])
    return names + (", ..." if len(files) > 8 else "")


def _videos_in(folder: Path) -> list[Path]:
    found = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() in VIDEO_SUFFIXES and not path.name.startswith(".") and path.is_file()
    ]
    return sorted(found, key=lambda path: natural_key(path.name))
