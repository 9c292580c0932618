# SPDX-License-Identifier: Apache-2.0
"""Tools for tests and first trials: small drives in the layouts of published data sets."""

from accvlab.dali_pipeline_framework.public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
