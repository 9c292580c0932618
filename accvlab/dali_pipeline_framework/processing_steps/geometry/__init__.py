# SPDX-License-Identifier: Apache-2.0
"""Steps that transform images with their cameras, boxes and points."""
