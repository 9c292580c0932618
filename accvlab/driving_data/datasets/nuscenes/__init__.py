# SPDX-License-Identifier: Apache-2.0
"""The tables of nuScenes, read from their JSON files: frames, sweeps, boxes, CAN messages."""
