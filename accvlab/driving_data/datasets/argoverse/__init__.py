# SPDX-License-Identifier: Apache-2.0
"""Argoverse 2: sensor logs."""
