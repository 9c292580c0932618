# SPDX-License-Identifier: Apache-2.0
"""Actors of a Ray cluster as the workers of a pool: settings, connection, what they host, how they are asked."""
