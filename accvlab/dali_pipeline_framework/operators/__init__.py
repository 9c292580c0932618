# SPDX-License-Identifier: Apache-2.0
"""Functions of the graph, which steps are made of."""
