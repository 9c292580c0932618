from .reference_orders import AugmentationRanges as AugmentationRanges
from .reference_orders import ChunkSampler as ChunkSampler
from .reference_orders import EndlessGroupSampler as EndlessGroupSampler
from .reference_orders import ShuffledGroupSampler as ShuffledGroupSampler
from .reference_orders import SkippingGroupSampler as SkippingGroupSampler
from .reference_orders import split_lengths as split_lengths
