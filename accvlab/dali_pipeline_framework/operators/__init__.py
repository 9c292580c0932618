# SPDX-License-Identifier: Apache-2.0
"""Functions on nodes of a graph and on arrays, of which steps are made."""
