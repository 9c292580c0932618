# SPDX-License-Identifier: Apache-2.0
"""Where samples come from: data providers, samplers, and the inputs that feed DALI's workers."""

from typing import TYPE_CHECKING

from accvlab.dali_pipeline_framework.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from accvlab.dali_pipeline_framework.inputs.callable_base import CallableBase
    from accvlab.dali_pipeline_framework.inputs.class_weights import class_balanced_weights
    from accvlab.dali_pipeline_framework.inputs.clip_data_provider import ClipDataProvider
    from accvlab.dali_pipeline_framework.inputs.clip_sampler import ClipSampler
    from accvlab.dali_pipeline_framework.inputs.clips import Clips
    from accvlab.dali_pipeline_framework.inputs.concat_data_provider import ConcatDataProvider
    from accvlab.dali_pipeline_framework.inputs.data_provider import DataProvider
    from accvlab.dali_pipeline_framework.inputs.files.file_data_provider import FileDataProvider
    from accvlab.dali_pipeline_framework.inputs.files.file_table import FileTable
    from accvlab.dali_pipeline_framework.inputs.frames.frame_data_provider import FrameDataProvider
    from accvlab.dali_pipeline_framework.inputs.frames.frame_sequence_data_provider import (
        FrameSequenceDataProvider,
    )
    from accvlab.dali_pipeline_framework.inputs.frames.rig_times import MissingFrame
    from accvlab.dali_pipeline_framework.inputs.iterable_base import IterableBase
    from accvlab.dali_pipeline_framework.inputs.last_batch import EpochAccount, LastBatch
    from accvlab.dali_pipeline_framework.inputs.mixed_sampler import MixedSampler
    from accvlab.dali_pipeline_framework.inputs.plans.planned_batch import PlannedBatch
    from accvlab.dali_pipeline_framework.inputs.random_access_sampler import RandomAccessSampler
    from accvlab.dali_pipeline_framework.inputs.readers.joined_input import JoinedInput
    from accvlab.dali_pipeline_framework.inputs.readers.native_readers import (
        CocoReader,
        FileReader,
        NumpyReader,
        SequenceReader,
        TFRecordReader,
        VideoReader,
        WebDatasetReader,
    )
    from accvlab.dali_pipeline_framework.inputs.readers.reader_input import ReaderInput
    from accvlab.dali_pipeline_framework.inputs.replayed_draws import ReplayedDrawsProvider
    from accvlab.dali_pipeline_framework.inputs.sample_place import SamplePlace
    from accvlab.dali_pipeline_framework.inputs.sampler_base import SamplerBase
    from accvlab.dali_pipeline_framework.inputs.sampler_input_callable import SamplerInputCallable
    from accvlab.dali_pipeline_framework.inputs.sampler_input_iterable import SamplerInputIterable
    from accvlab.dali_pipeline_framework.inputs.sequence_sampler import SequenceSampler
    from accvlab.dali_pipeline_framework.inputs.shards import Shard, detect_shard
    from accvlab.dali_pipeline_framework.inputs.shuffled_sampler import ShuffledSampler
    from accvlab.dali_pipeline_framework.inputs.shuffled_sharded_input_callable import ShuffledShardedInputCallable
    from accvlab.dali_pipeline_framework.inputs.streaming_sequence_sampler import StreamingSequenceSampler
    from accvlab.dali_pipeline_framework.inputs.videos.frame_reader_pool import DecodingStatistics
    from accvlab.dali_pipeline_framework.inputs.videos.video_data_provider import VideoDataProvider
    from accvlab.dali_pipeline_framework.inputs.videos.video_frame_data_provider import VideoFrameDataProvider
    from accvlab.dali_pipeline_framework.inputs.videos.video_index import VideoIndex, index_video
    from accvlab.dali_pipeline_framework.inputs.videos.video_stream_input import VideoStreamInput
    from accvlab.dali_pipeline_framework.inputs.videos.video_tracks import MissingVideoFrame
    from accvlab.dali_pipeline_framework.inputs.weighted_sampler import WeightedSampler

_MODULE_OF = {
    "CallableBase": "callable_base",
    "ClipDataProvider": "clip_data_provider",
    "ClipSampler": "clip_sampler",
    "Clips": "clips",
    "CocoReader": "readers.native_readers",
    "ConcatDataProvider": "concat_data_provider",
    "DataProvider": "data_provider",
    "DecodingStatistics": "videos.frame_reader_pool",
    "EpochAccount": "last_batch",
    "FileDataProvider": "files.file_data_provider",
    "FileReader": "readers.native_readers",
    "FileTable": "files.file_table",
    "FrameDataProvider": "frames.frame_data_provider",
    "FrameSequenceDataProvider": "frames.frame_sequence_data_provider",
    "IterableBase": "iterable_base",
    "JoinedInput": "readers.joined_input",
    "LastBatch": "last_batch",
    "MissingFrame": "frames.rig_times",
    "MissingVideoFrame": "videos.video_tracks",
    "MixedSampler": "mixed_sampler",
    "NumpyReader": "readers.native_readers",
    "PlannedBatch": "plans.planned_batch",
    "RandomAccessSampler": "random_access_sampler",
    "ReaderInput": "readers.reader_input",
    "ReplayedDrawsProvider": "replayed_draws",
    "SamplePlace": "sample_place",
    "SamplerBase": "sampler_base",
    "SamplerInputCallable": "sampler_input_callable",
    "SamplerInputIterable": "sampler_input_iterable",
    "SequenceReader": "readers.native_readers",
    "SequenceSampler": "sequence_sampler",
    "Shard": "shards",
    "ShuffledSampler": "shuffled_sampler",
    "ShuffledShardedInputCallable": "shuffled_sharded_input_callable",
    "StreamingSequenceSampler": "streaming_sequence_sampler",
    "TFRecordReader": "readers.native_readers",
    "VideoDataProvider": "videos.video_data_provider",
    "VideoFrameDataProvider": "videos.video_frame_data_provider",
    "VideoIndex": "videos.video_index",
    "VideoReader": "readers.native_readers",
    "VideoStreamInput": "videos.video_stream_input",
    "WebDatasetReader": "readers.native_readers",
    "WeightedSampler": "weighted_sampler",
    "class_balanced_weights": "class_weights",
    "detect_shard": "shards",
    "index_video": "videos.video_index",
}

__all__ = [
    "CallableBase",
    "ClipDataProvider",
    "ClipSampler",
    "Clips",
    "CocoReader",
    "ConcatDataProvider",
    "DataProvider",
    "DecodingStatistics",
    "EpochAccount",
    "FileDataProvider",
    "FileReader",
    "FileTable",
    "FrameDataProvider",
    "FrameSequenceDataProvider",
    "IterableBase",
    "JoinedInput",
    "LastBatch",
    "MissingFrame",
    "MissingVideoFrame",
    "MixedSampler",
    "NumpyReader",
    "PlannedBatch",
    "RandomAccessSampler",
    "ReaderInput",
    "ReplayedDrawsProvider",
    "SamplePlace",
    "SamplerBase",
    "SamplerInputCallable",
    "SamplerInputIterable",
    "SequenceReader",
    "SequenceSampler",
    "Shard",
    "ShuffledSampler",
    "ShuffledShardedInputCallable",
    "StreamingSequenceSampler",
    "TFRecordReader",
    "VideoDataProvider",
    "VideoFrameDataProvider",
    "VideoIndex",
    "VideoReader",
    "VideoStreamInput",
    "WebDatasetReader",
    "WeightedSampler",
    "class_balanced_weights",
    "detect_shard",
    "index_video",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULE_OF)
