# SPDX-License-Identifier: Apache-2.0
"""Private names and texts of DALI that other rooms need as well. All may import this one; it imports none."""
