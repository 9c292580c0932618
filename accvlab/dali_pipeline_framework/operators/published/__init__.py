# SPDX-License-Identifier: Apache-2.0
"""The operators and helpers of the published API."""
