# SPDX-License-Identifier: Apache-2.0
"""Where the time goes: counters of stages, processor time, ranges for NVIDIA's profiler."""
