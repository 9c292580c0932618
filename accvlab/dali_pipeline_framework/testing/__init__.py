# SPDX-License-Identifier: Apache-2.0
"""Tools for tests of one's own steps and providers; they need no test framework.

The rooms::

    given_samples       an input that delivers the samples that a test wrote down
    step_runs           run a step on them
    sample_comparison   what differs between samples, bit by bit
    step_contract       check a step against the contract of processing steps
    provider_contract   check a provider against the contract of data providers
"""

from ..public_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
