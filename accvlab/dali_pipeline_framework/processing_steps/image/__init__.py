# SPDX-License-Identifier: Apache-2.0
"""Steps on pixels: decoding, colors, noise, erasing, normalization."""
