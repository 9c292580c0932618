# SPDX-License-Identifier: Apache-2.0
"""Steps that move things: images with their cameras, boxes and points."""
