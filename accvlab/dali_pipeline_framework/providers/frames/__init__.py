# SPDX-License-Identifier: Apache-2.0
"""Extracted streams: folders of frames, one file for each."""
