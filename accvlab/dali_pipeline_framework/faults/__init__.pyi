from .fault_policy import FailedSample as FailedSample
from .fault_policy import FaultPolicy as FaultPolicy
from .fault_policy import QuarantineEntry as QuarantineEntry
from .fault_policy import SamplePolicy as SamplePolicy
from .fault_policy import read_quarantine as read_quarantine
