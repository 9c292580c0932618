# SPDX-License-Identifier: Apache-2.0
"""Steps on the format of samples: layouts, padding, sizes, fields that are not needed."""
