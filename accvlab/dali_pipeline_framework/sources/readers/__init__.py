# SPDX-License-Identifier: Apache-2.0
"""DALI's own readers as inputs: what they deliver, and how many batches their epochs have.

A reader runs in DALI's threads, in C++, and knows only "next". Its position is kept by DALI's checkpoints.
"""
