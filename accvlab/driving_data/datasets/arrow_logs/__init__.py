# SPDX-License-Identifier: Apache-2.0
"""Logs of py123d: Arrow files, one per sensor."""
