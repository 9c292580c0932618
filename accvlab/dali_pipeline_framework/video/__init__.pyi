from .frame_reader import DecodingStatistics as DecodingStatistics
from .frame_reader import FrameReader as FrameReader
from .video_index import VideoIndex as VideoIndex
from .video_index import cached_video_index as cached_video_index
from .video_index import index_video as index_video
from .video_providers import VideoFrameDataProvider as VideoFrameDataProvider
from .video_stream_input import VideoStreamInput as VideoStreamInput
from .videos import Videos as Videos
