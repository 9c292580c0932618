# SPDX-License-Identifier: Apache-2.0
"""Inputs of a pipeline: callables, iterables, samplers' inputs, native readers, streams."""

from ..public_names import public_names

__getattr__, __dir__ = public_names(__name__, __file__)
