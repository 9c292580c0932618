from .fault_policy import FaultPolicy as FaultPolicy
from .fault_policy import SamplePolicy as SamplePolicy
