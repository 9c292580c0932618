# SPDX-License-Identifier: Apache-2.0
"""Clips of sequences: where they start, and which frames they have."""
