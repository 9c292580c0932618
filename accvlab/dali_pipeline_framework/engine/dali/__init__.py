# SPDX-License-Identifier: Apache-2.0
"""Private names of DALI that the graph needs. All rooms may import this one; it imports none."""
