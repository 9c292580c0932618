# SPDX-License-Identifier: Apache-2.0
"""What orders are made of: permutations, weights, schedules, lengths, last batches."""
