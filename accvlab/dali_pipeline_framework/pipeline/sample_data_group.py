# SPDX-License-Identifier: Apache-2.0
"""The published module path of `SampleDataGroup`."""

from ..sample_data.sample_data_group import SampleDataGroup

__all__ = ["SampleDataGroup"]
