# SPDX-License-Identifier: Apache-2.0
"""Info pickles of the mmdetection3d family."""
