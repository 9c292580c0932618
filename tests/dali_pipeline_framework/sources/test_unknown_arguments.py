"""Arguments that a class does not have: the error names the one that is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, MixedSampler, RemoteReading, ShuffledSampler
from accvlab.dali_pipeline_framework.cluster import RayWorkers
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.providers import FileDataProvider, FrameDataProvider, Windows
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos, VideoStreamInput


@pytest.mark.parametrize(
    ("made", "arguments", "name", "hint"),
    [
        (FileDataProvider, {"files": ["a.jpg"]}, "fiel_root", " Did you mean 'file_root'?"),
        (FileDataProvider, {"files": ["a.jpg"]}, "timestamp_name", " It has file_root, "),  # not data_name
        (FrameDataProvider, {"folders": "x"}, "image", " Did you mean 'image_name'?"),
        (Windows, {"data_provider": "x", "windows": {}}, "tolerance", " Did you mean 'tolerance_s'?"),
        (VideoFrameDataProvider, {"videos": "x"}, "timestamps_name", " Did you mean 'timestamp_name'?"),
        (Videos, {"filenames": "x"}, "range", " Did you mean 'ranges'?"),
        (Videos, {"filenames": "x"}, "stride", " It has filenames, "),  # not stream
        (ShuffledSampler, {"num_samples": 8}, "rank", " Pass `shard` to the loader."),
        (MixedSampler, {}, "rate", " Did you mean 'rates'?"),
        (FaultPolicy, {}, "max_failures", " Did you mean 'max_failed'?"),
        (RemoteReading, {}, "timeout", " Did you mean 'timeout_s'?"),
        (RayWorkers, {}, "num_actor", " Did you mean 'num_actors'?"),
        (DataLoader, {}, "batch", " Did you mean 'batch_size' or 'last_batch'?"),
        (DataLoader, {}, "num_epochs", " It has source, "),  # not steps_per_epoch
        (VideoStreamInput, {}, "frame_name", " Did you mean 'frames_name'?"),
        (PipelineDefinition, {}, "preprocess_functor", " Did you mean 'preprocess_functors'?"),
    ],
)
def test_each_class_names_what_is_meant(
    made: Callable[..., Any], arguments: Mapping[str, Any], name: str, hint: str
) -> None:
    words = f"`{name}` is not an argument of {made.__name__}.{hint}"
    error: Any = assert_refused(lambda: made(**arguments, **{name: 1}), words, TypeError)
    assert (str(error).startswith(words), isinstance(error, SettingError)) == (True, True)


def test_an_argument_that_a_subclass_passes_on_is_that_of_its_base() -> None:
    class Own(ShuffledSampler):
        def __init__(self, size: int, rank: int) -> None:
            super().__init__(size, rank=rank)  # type: ignore[call-arg]

    assert_refused(lambda: Own(8, 1), "`rank` is not an argument of ShuffledSampler. Pass `shard`", TypeError)
