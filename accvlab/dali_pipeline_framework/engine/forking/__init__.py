# SPDX-License-Identifier: Apache-2.0
"""The fork server: a process that imports once what workers need, and forks them."""
