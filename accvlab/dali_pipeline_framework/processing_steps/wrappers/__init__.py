# SPDX-License-Identifier: Apache-2.0
"""Steps around other steps or functions: applied to parts of a sample, or to arrays."""
