# SPDX-License-Identifier: Apache-2.0
"""How a pipeline is put together, and how its batches come out."""

from accvlab.dali_pipeline_framework.pipeline.dali_structured_output_iterator import (
    DALIStructuredOutputIterator,
)
from accvlab.dali_pipeline_framework.pipeline.data_loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.pipeline.structured_pipeline import StructuredPipeline
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

__all__ = [
    "DALIStructuredOutputIterator",
    "DataLoader",
    "PipelineDefinition",
    "SampleDataGroup",
    "StructuredPipeline",
]
