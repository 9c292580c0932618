from ..providers.data_provider import DataProvider as DataProvider
from ..sampling.random_access_sampler import SamplerBase as SamplerBase
from ..sampling.samplers import SequenceSampler as SequenceSampler
from ..sources.input_bases import CallableBase as CallableBase
from ..sources.input_bases import IterableBase as IterableBase
from ..sources.sampler_inputs import SamplerInputCallable as SamplerInputCallable
from ..sources.sampler_inputs import SamplerInputIterable as SamplerInputIterable
from ..sources.sampler_inputs import ShuffledShardedInputCallable as ShuffledShardedInputCallable
