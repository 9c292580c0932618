from ..providers.data_provider import DataProvider as DataProvider
from ..sampling.sampler_base import SamplerBase as SamplerBase
from ..sampling.sequence_sampler import SequenceSampler as SequenceSampler
from ..sources.callable_base import CallableBase as CallableBase
from ..sources.iterable_base import IterableBase as IterableBase
from ..sources.sampler_input_callable import SamplerInputCallable as SamplerInputCallable
from ..sources.sampler_input_iterable import SamplerInputIterable as SamplerInputIterable
from ..sources.shuffled_sharded_input_callable import ShuffledShardedInputCallable as ShuffledShardedInputCallable
