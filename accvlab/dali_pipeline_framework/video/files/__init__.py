# SPDX-License-Identifier: Apache-2.0
"""Bytes of containers, codecs and images."""
