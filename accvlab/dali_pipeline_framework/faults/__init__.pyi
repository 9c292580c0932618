from .failed_samples import FailedSample as FailedSample
from .fault_policy import FaultPolicy as FaultPolicy
from .fault_policy import SamplePolicy as SamplePolicy
from .quarantine import QuarantineEntry as QuarantineEntry
from .quarantine import read_quarantine as read_quarantine
