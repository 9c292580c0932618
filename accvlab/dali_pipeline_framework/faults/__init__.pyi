from .failed_samples import FailedSample as FailedSample
from .failed_samples import QuarantineEntry as QuarantineEntry
from .failed_samples import read_quarantine as read_quarantine
from .fault_policy import FaultPolicy as FaultPolicy
from .fault_policy import SamplePolicy as SamplePolicy
