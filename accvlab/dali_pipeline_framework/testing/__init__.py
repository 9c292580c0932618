# SPDX-License-Identifier: Apache-2.0
"""Tools for tests of one's own steps and providers; they need no test framework.

The rooms::

    given_samples       an input that delivers the samples that a test wrote down
    step_runs           run a step on them
    sample_comparison   what differs between samples, bit by bit
    step_contract       check a step against the contract of processing steps
    provider_contract   check a provider against the contract of data providers
"""

from typing import TYPE_CHECKING

from accvlab.dali_pipeline_framework.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from accvlab.dali_pipeline_framework.testing.provider_contract import check_provider
    from accvlab.dali_pipeline_framework.testing.sample_comparison import sample_differences
    from accvlab.dali_pipeline_framework.testing.step_contract import check_step
    from accvlab.dali_pipeline_framework.testing.step_runs import StepRun, run_step

_MODULE_OF = {
    "StepRun": "step_runs",
    "check_provider": "provider_contract",
    "check_step": "step_contract",
    "run_step": "step_runs",
    "sample_differences": "sample_comparison",
}

__all__ = [
    "StepRun",
    "check_provider",
    "check_step",
    "run_step",
    "sample_differences",
]

__getattr__, __dir__ = lazy_exports(__name__, _MODULE_OF)
