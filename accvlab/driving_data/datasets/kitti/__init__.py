# SPDX-License-Identifier: Apache-2.0
"""KITTI: sequences of odometry, and of tracking with boxes."""
