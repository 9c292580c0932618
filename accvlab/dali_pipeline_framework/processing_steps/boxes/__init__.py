# SPDX-License-Identifier: Apache-2.0
"""Steps on boxes and their classes: selection, formats, heatmaps."""
