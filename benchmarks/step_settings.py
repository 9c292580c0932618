# SPDX-License-Identifier: Apache-2.0
"""Settings of the steps in the benchmarks: all contestants use the same."""

OUTPUT_HW = (256, 704)
SCALE = (0.44, 0.55)
FLIP_PROB = 0.5
ROTATION_DEGREES = (-5.0, 5.0)

MEAN = (123.675, 116.28, 103.53)
STD_DEV = (58.395, 57.12, 57.375)

BRIGHTNESS = (-32.0, 32.0)
CONTRAST = (0.5, 1.5)
SATURATION = (0.5, 1.5)
HUE_DEGREES = (-18.0, 18.0)
GRID_TILE = (96, 225)
