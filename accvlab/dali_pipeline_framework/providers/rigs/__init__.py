# SPDX-License-Identifier: Apache-2.0
"""Several cameras, aligned by name or time."""
