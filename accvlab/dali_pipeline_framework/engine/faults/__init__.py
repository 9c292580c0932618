# SPDX-License-Identifier: Apache-2.0
"""Samples that fail: what takes their place in the workers, and how the main process learns of it."""
