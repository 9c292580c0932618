# SPDX-License-Identifier: Apache-2.0
"""Random access to data sets: the base class, wrappers, and data sets of files, frames and videos."""
