# SPDX-License-Identifier: Apache-2.0
"""DALI's processes: workers, shared memory, interrupts, and what is said when they fail."""
