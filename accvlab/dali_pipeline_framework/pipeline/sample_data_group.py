# SPDX-License-Identifier: Apache-2.0
"""`SampleDataGroup` under the module path where accvlab users find it."""

from ..sample_data.sample_data_group import SampleDataGroup

__all__ = ["SampleDataGroup"]
