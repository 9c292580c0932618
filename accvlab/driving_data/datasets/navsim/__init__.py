# SPDX-License-Identifier: Apache-2.0
"""NAVSIM: logs, filters of scenes, point clouds, and the provider."""
