# SPDX-License-Identifier: Apache-2.0
"""What feeds a pipeline: callables, iterables, samplers' inputs, native readers, streams."""
