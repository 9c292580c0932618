# SPDX-License-Identifier: Apache-2.0
"""Parts of orders: permutations, weights, lengths, last batches."""
