# SPDX-License-Identifier: Apache-2.0
"""How a pipeline is put together, and how its batches come out."""

from typing import TYPE_CHECKING

from accvlab.dali_pipeline_framework.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from accvlab.dali_pipeline_framework.pipeline.dali_structured_output_iterator import (
        DALIStructuredOutputIterator,
    )
    from accvlab.dali_pipeline_framework.pipeline.data_loader import DataLoader
    from accvlab.dali_pipeline_framework.pipeline.pipeline import PipelineDefinition
    from accvlab.dali_pipeline_framework.pipeline.sample_data_group import SampleDataGroup
    from accvlab.dali_pipeline_framework.pipeline.structured_pipeline import StructuredPipeline

_MODULE_OF = {
    "DALIStructuredOutputIterator": "dali_structured_output_iterator",
    "DataLoader": "data_loader",
    "PipelineDefinition": "pipeline",
    "SampleDataGroup": "sample_data_group",
    "StructuredPipeline": "structured_pipeline",
}

__all__ = [
    "DALIStructuredOutputIterator",
    "DataLoader",
    "PipelineDefinition",
    "SampleDataGroup",
    "StructuredPipeline",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULE_OF)
