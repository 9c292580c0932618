# SPDX-License-Identifier: Apache-2.0
"""DALI's own readers as inputs: their blueprints, and the batches of their epochs.

A reader runs in DALI's threads, in C++, and knows only "next". Its position is kept by DALI's checkpoints.
"""
