# SPDX-License-Identifier: Apache-2.0
"""Clips of video: PhysicalAI-AV, and data sets of LeRobot."""
