# SPDX-License-Identifier: Apache-2.0
"""Encoded videos that are fed while the loop runs."""
