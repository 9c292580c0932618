# SPDX-License-Identifier: Apache-2.0
"""Folders of recordings, with one file for each frame, by one camera or several."""
