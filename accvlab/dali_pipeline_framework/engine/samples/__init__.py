# SPDX-License-Identifier: Apache-2.0
"""Samples of arrays, as the workers handle them: checked against the blueprint, processed by steps."""
