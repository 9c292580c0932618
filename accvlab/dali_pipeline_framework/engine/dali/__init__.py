# SPDX-License-Identifier: Apache-2.0
"""Private names and texts of DALI that other rooms need as well. All rooms but ``errors`` may import this one."""
