# SPDX-License-Identifier: Apache-2.0
"""Where a loader stands, as a value that is saved and loaded; and values that others have saved."""
