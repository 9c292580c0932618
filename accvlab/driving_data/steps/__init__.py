# SPDX-License-Identifier: Apache-2.0
"""Steps on what driving data sets have: lidar, maps, masks from above, futures of objects."""

from accvlab.dali_pipeline_framework.public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
