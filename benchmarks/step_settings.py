# SPDX-License-Identifier: Apache-2.0
"""Settings of the steps in the benchmark of steps: all contestants use the same."""

OUTPUT_HW = (256, 704)
SCALE = (0.44, 0.55)
ZOOM = (1.0, 1.3)
FLIP_PROB = 0.5
ROTATION_DEGREES = (-5.0, 5.0)

MEAN = (123.675, 116.28, 103.53)
STD_DEV = (58.395, 57.12, 57.375)
TILE = 64

BRIGHTNESS = (-32.0, 32.0)
CONTRAST = (0.5, 1.5)
SATURATION = (0.5, 1.5)
HUE_DEGREES = (-18.0, 18.0)
GRID_TILE = (96, 225)

DETECTION_HW = (500, 888)  # padded to whole tiles
DETECTION_PADDED_HW = (512, 896)
HEATMAP_HW = (128, 224)

BEV_ANGLE_RAD = (-0.3925, 0.3925)
BEV_SCALE = (0.95, 1.05)
