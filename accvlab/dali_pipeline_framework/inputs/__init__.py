# SPDX-License-Identifier: Apache-2.0
"""Where samples come from: data providers, samplers, and the inputs that feed DALI's workers."""

from accvlab.dali_pipeline_framework.inputs.callable_base import CallableBase
from accvlab.dali_pipeline_framework.inputs.data_provider import DataProvider
from accvlab.dali_pipeline_framework.inputs.iterable_base import IterableBase
from accvlab.dali_pipeline_framework.inputs.sampler_base import SamplerBase
from accvlab.dali_pipeline_framework.inputs.sampler_input_callable import SamplerInputCallable
from accvlab.dali_pipeline_framework.inputs.sampler_input_iterable import SamplerInputIterable
from accvlab.dali_pipeline_framework.inputs.sequence_sampler import SequenceSampler
from accvlab.dali_pipeline_framework.inputs.shuffled_sharded_input_callable import (
    ShuffledShardedInputCallable,
)

__all__ = [
    "CallableBase",
    "DataProvider",
    "IterableBase",
    "SamplerBase",
    "SamplerInputCallable",
    "SamplerInputIterable",
    "SequenceSampler",
    "ShuffledShardedInputCallable",
]
