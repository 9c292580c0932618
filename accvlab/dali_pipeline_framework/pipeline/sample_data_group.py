# SPDX-License-Identifier: Apache-2.0
"""The published module path of `SampleDataGroup`."""

from accvlab.dali_pipeline_framework.sample_data.sample_data_group import SampleDataGroup

__all__ = ["SampleDataGroup"]
