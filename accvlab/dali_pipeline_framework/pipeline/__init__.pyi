from ..engine.structured_pipeline import StructuredPipeline as StructuredPipeline
from ..loader.data_loader import DataLoader as DataLoader
from ..loader.reports.report import LoaderReport as LoaderReport
from ..loader.states.state_files import load_state as load_state
from ..loader.states.state_files import save_state as save_state
from .dali_structured_output_iterator import DALIStructuredOutputIterator as DALIStructuredOutputIterator
from .pipeline import PipelineDefinition as PipelineDefinition
from .sample_data_group import SampleDataGroup as SampleDataGroup
