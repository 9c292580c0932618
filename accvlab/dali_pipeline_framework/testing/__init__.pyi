from .provider_contract import check_provider as check_provider
from .rule_check import Finding as Finding
from .rule_check import sample_differences as sample_differences
from .step_contract import check_step as check_step
from .step_runs import StepRun as StepRun
from .step_runs import run_step as run_step
