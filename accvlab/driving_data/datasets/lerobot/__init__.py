# SPDX-License-Identifier: Apache-2.0
"""Data sets of LeRobot: their files (`lerobot_files`), and the provider (`lerobot_provider`)."""
