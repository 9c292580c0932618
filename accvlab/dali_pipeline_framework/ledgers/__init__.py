# SPDX-License-Identifier: Apache-2.0
"""Ledgers: what each rank has really delivered, and what that proves."""
