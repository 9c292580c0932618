# SPDX-License-Identifier: Apache-2.0
"""Reports of where the time of a loop goes: what is counted, what is made of it, and what it means."""
