from ..engine.structured_pipeline import StructuredPipeline as StructuredPipeline
from ..loader.data_loader import DataLoader as DataLoader
from ..loader.reports.exposition import ReportCollector as ReportCollector
from ..loader.reports.report import LoaderReport as LoaderReport
from .dali_structured_output_iterator import DALIStructuredOutputIterator as DALIStructuredOutputIterator
from .pipeline import PipelineDefinition as PipelineDefinition
from .sample_data_group import SampleDataGroup as SampleDataGroup
