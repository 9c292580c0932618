# SPDX-License-Identifier: Apache-2.0
"""Tools for tests of your own steps and providers; they need no test framework.

The modules::

    step_runs           run steps on given samples
    rule_check          comparison of samples, collection of broken rules
    step_contract       check a step against the contract of processing steps
    provider_contract   check a provider against the contract of data providers
    data_set_lint       try all samples of a data set
"""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
