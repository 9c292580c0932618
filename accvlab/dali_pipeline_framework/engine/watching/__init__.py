# SPDX-License-Identifier: Apache-2.0
"""Watching over the workers of a pipeline, and what is said about them."""
