# SPDX-License-Identifier: Apache-2.0
"""Chains of steps: their formats, their random draws, where each step runs, and how it runs on arrays."""
